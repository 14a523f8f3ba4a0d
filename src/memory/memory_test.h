/* memory_test.h - joining and opening, for tests in several processes. */
#ifndef GWI_MEMORY_MEMORY_TEST_H
#define GWI_MEMORY_MEMORY_TEST_H

#include "fabric/processes_test.h"

#include <godwit/memory.h>

#include <string.h>

static int node_size; /* of the test under way; 0: all */

static inline gw_comm *join_processes(const struct processes *all, int rank, gw_world **ret_world)
{
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    gw_comm *comm = NULL;

    opt.rank = rank;
    opt.size = all->n;
    opt.job = all->job;
    opt.node_size = node_size > 0 ? node_size : all->n;
    opt.timeout_s = 60;
    REQUIRE(gw_world_join(&opt, ret_world) == 0);
    REQUIRE(gw_comm_world(*ret_world, &comm) == 0);
    return comm;
}

static inline gw_memory *open_memory(gw_comm *comm, gw_memory_kind kind, gw_dtype dtype,
                                     int64_t rows, int64_t columns)
{
    int64_t shape[] = {rows, columns};
    gw_memory_options opt = {.size_bytes = sizeof opt,
                             .kind = kind,
                             .dtype = dtype,
                             .n_dims = columns > 0 ? 2 : 1,
                             .shape = shape};
    gw_memory *memory = NULL;

    REQUIRE(gw_memory_open(comm, &opt, &memory) == 0);
    return memory;
}

static inline gw_indices all_rows(int64_t *numbers, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        numbers[i] = i;
    return (gw_indices){numbers, (size_t)n, GW_I64};
}

#endif
