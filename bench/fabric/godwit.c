/* godwit.c - pairs.h over Godwit. */
#include "pairs.h"

#include <godwit/world.h>

#include <stdio.h>
#include <stdlib.h>

static gw_world *world;

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
    *ret_rank = info.rank;
    *ret_size = info.size;
}

void peer_leave(void)
{
    gw_world_close(world);
}

void peer_barrier(void)
{
    check(gw_world_barrier(world));
}

void peer_send(int peer, const void *bytes, size_t n_bytes)
{
    check(gw_world_send(world, peer, bytes, n_bytes));
}

void peer_recv(int peer, void *buffer, size_t n_bytes)
{
    size_t n_received;

    check(gw_world_recv(world, peer, buffer, n_bytes, &n_received));
    if (n_received != n_bytes) {
        fprintf(stderr, "rank %d sent %zu bytes, not %zu\n", peer, n_received, n_bytes);
        exit(1);
    }
}
