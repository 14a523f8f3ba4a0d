/* request.c - the public calls of messages with tags. */
#include "comm/request.h"
#include "base/platform.h"
#include "base/thread.h"
#include "comm/mail.h"
#include "comm/world.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void gwi_request_fail(gw_request *r, int err)
{
    r->stage = GWI_DONE;
    r->err = err;
    free(r->sentence);
    r->sentence = strdup(gw_last_error());
}

/* checking */

static int check_rank(const gw_comm *comm, int rank, const char *name)
{
    if (gwi_likely(rank >= 0 && rank < comm->size))
        return 0;
    return gwi_fail(GW_ERANGE, "%s is %d; ranks of this communicator go from 0 to %d", name, rank,
                    comm->size - 1);
}

static int check_tag(int64_t tag)
{
    if (gwi_likely(tag >= 0 && tag <= GWI_TAG_MAX))
        return 0;
    return gwi_fail(GW_ERANGE, "tag is %" PRId64 "; tags go from 0 to 2^31 - 1", tag);
}

static int check_entries(const void *data, size_t n, gw_dtype dtype, size_t *ret_n_bytes)
{
    if (gwi_unlikely((unsigned)dtype >= GW_N_DTYPES))
        return gwi_fail(GW_ETYPE, "dtype is %d; types go from 0 to %d", (int)dtype,
                        GW_N_DTYPES - 1);
    if (gwi_unlikely(!gwi_entries_bytes(n, (uint32_t)dtype, ret_n_bytes)))
        return gwi_fail(GW_EINVAL, "n is %zu entries, more than memory can hold", n);
    if (gwi_unlikely(data == NULL && n > 0))
        return gwi_fail(GW_EINVAL, "data is NULL, but n is %zu; give an array of %zu entries", n,
                        n);
    return 0;
}

/* starting */

static int start(gwi_op op, const gw_request *wish, int source, uint32_t flags,
                 uint64_t *ret_number, gw_request **ret_request)
{
    gw_world *world = wish->world;
    int err = gwi_world_begin(world, op, wish->peer);

    if (err < 0)
        return err;
    if (wish->sends)
        err = gwi_check_fate(world, wish->peer, "a send");
    if (err == 0)
        err = gwi_mail_start(world->mail, wish, source, flags, ret_number, ret_request);
    return gwi_world_end(world, err);
}

int gw_comm_isend(gw_comm *comm, const void *data, size_t n, gw_dtype dtype, int dest, int64_t tag,
                  uint32_t flags, uint64_t *ret_number, gw_request **ret_request)
{
    size_t n_bytes;
    int err;

    if ((err = check_rank(comm, dest, "dest")) < 0 || (err = check_tag(tag)) < 0 ||
        (err = check_entries(data, n, dtype, &n_bytes)) < 0)
        return err;
    gw_request wish = {.world = comm->world,
                       .comm = comm,
                       .sends = 1,
                       .peer = comm->ranks[dest],
                       .context = comm->context,
                       .tag = tag,
                       .n = n,
                       .dtype = dtype,
                       .data = data,
                       .n_bytes = n_bytes};
    return start(GWI_OP_ISEND, &wish, comm->rank, flags, ret_number, ret_request);
}

int gw_comm_irecv(gw_comm *comm, void *data, size_t n, gw_dtype dtype, int source, int64_t tag,
                  gw_request **ret_request)
{
    size_t n_bytes;
    int err;

    if ((source != GW_ANY_SOURCE && (err = check_rank(comm, source, "source")) < 0) ||
        (tag != GW_ANY_TAG && (err = check_tag(tag)) < 0) ||
        (err = check_entries(data, n, dtype, &n_bytes)) < 0)
        return err;
    gw_request wish = {.world = comm->world,
                       .comm = comm,
                       .peer = source == GW_ANY_SOURCE ? -1 : comm->ranks[source],
                       .context = comm->context,
                       .tag = tag,
                       .n = n,
                       .dtype = dtype,
                       .buffer = data,
                       .n_bytes = n_bytes};
    return start(source == GW_ANY_SOURCE ? GWI_OP_IRECV_ANY : GWI_OP_IRECV, &wish, 0, 0, NULL,
                 ret_request);
}

/* ending */

static gwi_op op_of(const gw_request *r)
{
    return r->sends ? GWI_OP_WAIT_SEND : r->peer >= 0 ? GWI_OP_WAIT_RECV : GWI_OP_WAIT_ANY;
}

typedef int end_request(gwi_mail *mail, gw_request **request, gw_status *ret_status);

static int finish(gw_request **request, end_request *end, gw_status *ret_status)
{
    const gw_request *r = *request;

    if (r == NULL)
        return gwi_fail(GW_EINVAL, "request is NULL; it was done already, or never made");
    gw_world *world = r->world;
    int err = gwi_world_begin(world, op_of(r), r->peer);
    return err < 0 ? err : gwi_world_end(world, end(world->mail, request, ret_status));
}

int gw_request_test(gw_request **request, gw_status *ret_status)
{
    return finish(request, gwi_mail_test, ret_status);
}

int gw_request_wait(gw_request **request, gw_status *ret_status)
{
    int err = finish(request, gwi_mail_wait, ret_status);

    return err < 0 ? err : 0;
}

void gw_request_cancel(gw_request **request)
{
    gw_request *r = *request;

    *request = NULL;
    /* A forked child must not touch what it shares with its parent. */
    if (r == NULL || r->world->generation != gwi_fork_generation())
        return;
    gwi_mail_cancel(r->world->mail, r);
}
