/* godwit.c - collectives.h over Godwit. */
#include "collectives.h"

#include <godwit/comm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gw_world *world;
static gw_comm *comm;

static void check(int err)
{
    if (err >= 0)
        return;
    fprintf(stderr, "%s: %s\n", gw_strerror(err), gw_last_error());
    exit(1);
}

void peer_join(int *argc, char ***argv, int *ret_rank, int *ret_size)
{
    (void)argc, (void)argv;
    gw_world_options options = GW_WORLD_OPTIONS_INIT;
    gw_world_info info = {sizeof info};

    check(gw_world_join(&options, &world));
    check(gw_world_get_info(world, &info));
    if (strcmp(info.fabric, "shm") != 0) {
        fprintf(stderr, "this is about the fabric shm, not %s\n", info.fabric);
        exit(1);
    }
    check(gw_comm_world(world, &comm));
    *ret_rank = gw_comm_rank(comm);
    *ret_size = gw_comm_size(comm);
}

void peer_leave(void)
{
    gw_world_close(world);
}

void peer_barrier(void)
{
    check(gw_comm_barrier(comm));
}

void peer_allreduce(const double *in, double *out, size_t n)
{
    check(gw_comm_allreduce(comm, in, out, n, GW_F64, GW_SUM));
}

void peer_bcast(double *data, size_t n)
{
    check(gw_comm_bcast(comm, data, n, GW_F64, 0));
}

void peer_allgather(const double *in, double *out, size_t n)
{
    check(gw_comm_allgather(comm, in, out, n, GW_F64));
}

void peer_alltoall(const double *in, double *out, size_t n)
{
    check(gw_comm_alltoall(comm, in, out, n, GW_F64));
}

void peer_reduce_scatter(const double *in, double *out, size_t n)
{
    check(gw_comm_reduce_scatter(comm, in, out, n, GW_F64, GW_SUM));
}
