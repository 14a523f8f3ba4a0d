/* farewell_test.c - what other nodes hear of an agent that has failed. */
#include "params/farewell.h"
#include "base/test.h"
#include "fabric/sim/sim.h"
#include "params/node.h"

#include <string.h>

#define N_KEYS 8
#define NODES 4
#define WHY "rank 0 serves keys no longer, for it is tired"

static const int ranks[NODES] = {0, 1, 2, 3};
static const uint64_t opening = 7;
static gwi_geometry geometry;
static gwi_node *nodes[NODES]; /* but of 0, which is played by the test */
static gwi_farewell farewell;

static int set_up(void **state)
{
    static const int64_t length = 3;

    (void)state;
    assert_int_equal(gwi_geometry_init(&geometry, N_KEYS, &length, 1, GW_F64), 0);
    for (int n = 1; n < NODES; n++) {
        gwi_node_options options = {
            .geometry = &geometry, .node = n, .nodes = NODES, .workers = 1, .opening = opening};
        assert_int_equal(gwi_node_new(&options, &nodes[n]), 0);
    }
    assert_int_equal(gwi_farewell_init(&farewell, opening, GWI_LANE_PARAMS, ranks, NODES), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gwi_farewell_fini(&farewell);
    gwi_farewell_fini(&farewell); /* a second time is fine */
    for (int n = 1; n < NODES; n++)
        gwi_node_free(nodes[n]);
    gwi_geometry_fini(&geometry);
    return 0;
}

static gwi_sim *new_sim(size_t room_bytes)
{
    gwi_sim_options options = {.seed = 9, .size = NODES, .node_size = 1, .room_bytes = room_bytes};
    gwi_sim *sim;

    assert_int_equal(gwi_sim_new(&options, &sim), 0);
    return sim;
}

/* All but `deaf` listen for a while.  Returns how many have failed so far, for that reason. */
static int listen(gwi_sim *sim, int reason, int deaf)
{
    int rank, n_told = 0;

    for (int i = 0; i < 5000 && gwi_sim_step(sim, &rank) == 1; i++) {
        if (rank <= 0 || rank == deaf || gwi_node_was_told(nodes[rank]))
            continue;
        int err = gwi_node_step(nodes[rank], gwi_sim_fabric(sim, rank), gwi_sim_now_ns(sim));
        assert_int_equal(err < 0 ? err : 0, gwi_node_was_told(nodes[rank]) ? reason : 0);
        if (err < 0)
            assert_string_equal(gw_last_error(), WHY);
    }
    for (int n = 1; n < NODES; n++)
        n_told += gwi_node_was_told(nodes[n]);
    return n_told;
}

static void all_other_nodes_hear_it_once(void **state)
{
    gwi_sim *sim = new_sim(1 << 16);
    gwi_fabric *f = gwi_sim_fabric(sim, 0);

    (void)state;
    assert_int_equal(gwi_farewell_send(&farewell, f), 0); /* nothing is to be said yet */
    gwi_farewell_write(&farewell, f, GW_ENOMEM, WHY);
    assert_int_equal(gwi_farewell_send(&farewell, f), 0);
    assert_int_equal(gwi_farewell_send(&farewell, f), 0);
    gwi_farewell_give_up(&farewell, f);
    assert_int_equal(listen(sim, GW_ENOMEM, 0), NODES - 1);
    gwi_sim_free(sim);
}

/* Node 1 has half a message when it comes; node 2 does not listen, and its room is taken. */
static void who_has_no_room_keeps_nobody_from_hearing_it(void **state)
{
    static unsigned char long_one[4096];
    gwi_outgoing half = {
        .peer = 1, .lane = GWI_LANE_PARAMS, .bytes = long_one, .n_bytes = sizeof long_one};
    gwi_outgoing full = half;
    gwi_sim *sim = new_sim(2048);
    gwi_fabric *f = gwi_sim_fabric(sim, 0);

    (void)state;
    full.peer = 2;
    assert_int_equal(f->ops->send(f, &half), 0);
    assert_int_equal(f->ops->send(f, &full), 0);
    assert_true(half.begun && full.begun);
    assert_int_equal(listen(sim, GW_ENOMEM, 2), 0);
    f->ops->abandon(f, &half);
    f->ops->abandon(f, &full);
    gwi_farewell_write(&farewell, f, GW_ENOMEM, WHY);
    assert_int_equal(gwi_farewell_send(&farewell, f), 1);
    assert_int_equal(listen(sim, GW_ENOMEM, 2), 2);
    gwi_farewell_give_up(&farewell, f);
    assert_int_equal(gwi_farewell_send(&farewell, f), 0);
    assert_int_equal(listen(sim, GW_ENOMEM, 0), 2);
    gwi_sim_free(sim);
}

static int shares_with_node_2(gwi_fabric *f, int rank)
{
    (void)f;
    return rank == 2;
}

static void a_death_is_told_to_those_on_other_machines(void **state)
{
    gwi_sim *sim = new_sim(1 << 16);
    gwi_fabric *f = gwi_sim_fabric(sim, 0);
    struct gwi_fabric_ops ops = *f->ops;

    (void)state;
    ops.shares = shares_with_node_2;
    f->ops = &ops;
    gwi_farewell_write(&farewell, f, GW_EPEER, WHY);
    assert_int_equal(gwi_farewell_send(&farewell, f), 0);
    assert_int_equal(listen(sim, GW_EPEER, 0), 2);
    assert_false(gwi_node_was_told(nodes[2]));
    gwi_sim_free(sim);
}

static void a_sentence_that_is_too_long_is_cut(void **state)
{
    char sentence[2 * GWI_SENTENCE_BYTES];
    const unsigned char *payload;
    size_t at = sizeof opening;
    gwi_sim *sim = new_sim(1 << 16);
    gwi_note note;

    (void)state;
    memset(sentence, 'x', sizeof sentence);
    sentence[sizeof sentence - 1] = '\0';
    gwi_farewell_write(&farewell, gwi_sim_fabric(sim, 0), GW_EBROKEN, sentence);
    const gwi_frame *frame = &farewell.frame;
    assert_int_equal(gwi_frame_next(frame->bytes, frame->n_bytes, &at, &note, &payload), 1);
    assert_int_equal(note.kind, GWI_NOTE_FAILED);
    assert_int_equal((int32_t)note.n, GW_EBROKEN);
    assert_int_equal(note.n_bytes, GWI_SENTENCE_BYTES);
    assert_int_equal(gwi_frame_next(frame->bytes, frame->n_bytes, &at, &note, &payload), 0);
    gwi_sim_free(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_other_nodes_hear_it_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_has_no_room_keeps_nobody_from_hearing_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_death_is_told_to_those_on_other_machines, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_sentence_that_is_too_long_is_cut, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
