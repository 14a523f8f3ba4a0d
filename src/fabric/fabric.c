/* fabric.c - choosing a fabric, places, and waiting with a limit. */
#include "fabric/fabric.h"
#include "base/clock.h"
#include "base/thread.h"
#include "fabric/job.h"
#include "fabric/mpi/mpi.h"
#include "fabric/shm/shm.h"

#include <string.h>

#define CHECK_NS (100 * GWI_MS)

int gwi_fabric_open(const gwi_job *job, gwi_fabric **ret_fabric)
{
    return strcmp(job->fabric, "mpi") == 0 ? gwi_mpi_open(job, ret_fabric)
                                           : gwi_shm_open(job, ret_fabric);
}

gwi_place gwi_place_of(int rank, int size, int node_size)
{
    gwi_place p = {.rank = rank, .size = size, .node_size = node_size};

    p.node = rank / node_size;
    p.nodes = (size + node_size - 1) / node_size;
    p.local_rank = rank % node_size;
    p.local_size = p.node == p.nodes - 1 ? size - p.node * node_size : node_size;
    return p;
}

gwi_place gwi_fabric_place(const gwi_fabric *f, int rank)
{
    return f->places != NULL ? f->places[rank]
                             : gwi_place_of(rank, f->place.size, f->place.node_size);
}

void gwi_patience_begin(gwi_patience *p, gwi_fabric *f, int lane, int64_t deadline_ns)
{
    *p = (gwi_patience){.fabric = f, .deadline_ns = deadline_ns};
    f->ops->waiter_init(f, lane, &p->waiter);
}

void gwi_patience_end(gwi_patience *p)
{
    gwi_waiter_fini(&p->waiter);
}

int gwi_patience_pause(gwi_patience *p)
{
    if (gwi_waiter_pause(&p->waiter) == 0)
        return 0;

    int64_t now = gwi_now_ns();
    if (p->next_check_ns == 0)
        p->next_check_ns = now + CHECK_NS;
    if (now >= p->next_check_ns) {
        p->next_check_ns = now + CHECK_NS;
        int err = p->fabric->ops->check(p->fabric);
        if (err < 0)
            return err;
        if (gwi_interrupted())
            return gwi_fail(GW_EINTR, "interrupted by a signal");
    }
    return now >= p->deadline_ns ? GW_ETIMEOUT : 1;
}

int gwi_fabric_segment_open(gwi_fabric *f, size_t n_bytes, size_t n_now, int64_t deadline_ns,
                            gwi_segment *ret_segment)
{
    gwi_patience p;
    int done, err = 0;

    gwi_patience_begin(&p, f, GWI_LANE_WORLD, deadline_ns);
    while ((done = f->ops->segment_open(f, n_bytes, n_now, ret_segment)) == 0 && err >= 0)
        err = gwi_patience_pause(&p);
    gwi_patience_end(&p);
    if (done != 0)
        return done < 0 ? done : 0;
    if (err == GW_ETIMEOUT)
        return gwi_fail(err, "the other processes of node %d did not all open the segment in time",
                        f->place.node);
    return err;
}

/* what a fabric lacks */

void *gwi_no_reserve(gwi_fabric *f, int peer, int lane, size_t *ret_n_bytes)
{
    (void)f, (void)peer, (void)lane, (void)ret_n_bytes;
    return NULL;
}

void gwi_no_commit(gwi_fabric *f, int peer, int lane, size_t n_bytes)
{
    (void)f, (void)peer, (void)lane, (void)n_bytes;
}

static int no_open(gwi_fabric *f, const int *ranks, int n_ranks, uint64_t context,
                   gwi_native_group **ret_group)
{
    (void)ranks, (void)n_ranks, (void)context, (void)ret_group;
    return gwi_fail(GW_EUNSUP, "the fabric %s has no collectives of its own", f->ops->name);
}

static int no_start(gwi_fabric *f, gwi_native_group *group, const gwi_native_call *call,
                    gwi_native_request *ret_request)
{
    (void)group, (void)call, (void)ret_request;
    return gwi_fail(GW_EUNSUP, "the fabric %s has no collectives of its own", f->ops->name);
}

static int no_test(gwi_fabric *f, gwi_native_request *request)
{
    (void)request;
    return gwi_fail(GW_EUNSUP, "the fabric %s has no collectives of its own", f->ops->name);
}

static void no_forget(gwi_fabric *f, gwi_native_request *request)
{
    (void)f, (void)request;
}

static void no_close(gwi_fabric *f, gwi_native_group *group)
{
    (void)f, (void)group;
}

const struct gwi_native_ops gwi_no_native = {
    .open = no_open,
    .start = no_start,
    .test = no_test,
    .forget = no_forget,
    .close = no_close,
};
