/* pair_test.h - two nodes in a simulation, with a worker each; a key is at home on node key % 2. */
#ifndef GWI_PARAMS_PAIR_TEST_H
#define GWI_PARAMS_PAIR_TEST_H

#include "base/test.h"
#include "fabric/sim/sim.h"
#include "params/engine.h"

#define PAIR_QUIET 100    /* steps of both; no message is under way for so long */
#define PAIR_MOST 1000000 /* steps until nothing is on its way, far more than any test needs */

static gwi_geometry geometry;
static gwi_node *nodes[2];
static gwi_sim *sim;
static int64_t later_ns; /* than the simulation has it */

static inline void open_pair(int64_t n_keys, int64_t length, size_t room_bytes)
{
    gwi_sim_options options = {.seed = 3, .size = 2, .node_size = 1, .room_bytes = room_bytes};

    later_ns = 0;
    assert_int_equal(gwi_geometry_init(&geometry, n_keys, &length, 1, GW_F32), 0);
    for (int i = 0; i < 2; i++) {
        gwi_node_options node = {.geometry = &geometry, .node = i, .nodes = 2, .workers = 1};
        assert_int_equal(gwi_node_new(&node, &nodes[i]), 0);
    }
    assert_int_equal(gwi_sim_new(&options, &sim), 0);
}

static inline int close_pair(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        gwi_node_abandon(nodes[i], gwi_sim_fabric(sim, i));
    gwi_sim_free(sim);
    for (int i = 0; i < 2; i++)
        gwi_node_free(nodes[i]);
    gwi_geometry_fini(&geometry);
    return 0;
}

/* Returns whether it did anything. */
static inline int step(int node)
{
    int64_t now_ns = gwi_sim_now_ns(sim) + later_ns;
    int busy = gwi_node_step(nodes[node], gwi_sim_fabric(sim, node), now_ns);

    assert_true(busy >= 0);
    return busy > 0;
}

static inline int pair_is_idle(void)
{
    return gwi_node_is_idle(nodes[0]) && gwi_node_is_idle(nodes[1]);
}

/* Until nothing is on its way any more. */
static inline void settle_down(void)
{
    int rank, n_steps = 0;

    for (int n_quiet = 0; n_quiet < PAIR_QUIET;) {
        assert_true(n_steps++ < PAIR_MOST);
        assert_true(gwi_sim_step(sim, &rank));
        if (rank >= 0)
            n_quiet = step(rank) || !pair_is_idle() ? 0 : n_quiet + 1;
    }
}

#endif
