/* moves_test.c - how a key comes to who wants it, how many notes that takes, and that copies are
 * equal in the end.
 *
 * Key 0 is at home on node 0, key 1 on node 1. */
#include "params/pair_test.h"
#include "base/random.h"

static int set_up(void **state)
{
    (void)state;
    open_pair(4, 2, 1 << 16);
    return 0;
}

static void bring(int to, int64_t key)
{
    int64_t seq;

    assert_int_equal(gwi_node_localize(nodes[to], 0, &key, 1, &seq), 0);
    settle_down();
    assert_int_equal(gwi_local_state(gwi_node_local(nodes[to]), key), GWI_OWNED);
    gwi_node_count_anew(nodes[0]);
    gwi_node_count_anew(nodes[1]);
}

static void announce(int node, int64_t key)
{
    assert_int_equal(gwi_node_intent(nodes[node], 0, &key, 1, 0, 1), 0);
    settle_down();
}

static uint64_t n_notes(int node)
{
    const gwi_node_stats *stats = gwi_node_count(nodes[node]);
    uint64_t sum = 0;

    for (int kind = 0; kind < GWI_N_NOTES; kind++)
        sum += stats->notes[kind];
    return sum;
}

static void check_states(int64_t key, unsigned on_0, unsigned on_1)
{
    assert_int_equal(gwi_local_state(gwi_node_local(nodes[0]), key), on_0);
    assert_int_equal(gwi_local_state(gwi_node_local(nodes[1]), key), on_1);
}

static void a_key_goes_home_with_two_notes_if_its_home_wants_it(void **state)
{
    (void)state;
    bring(1, 0);
    announce(0, 0);
    check_states(0, GWI_OWNED, GWI_ABSENT);
    assert_int_equal(n_notes(0) + n_notes(1), 2); /* a GIVE and a TRANSFER */
}

static void a_key_goes_from_home_to_who_wants_it_with_two_notes(void **state)
{
    (void)state;
    announce(0, 1);
    check_states(1, GWI_OWNED, GWI_ABSENT);
    assert_int_equal(n_notes(0) + n_notes(1), 2); /* a WANT and a TRANSFER */
}

static void who_still_wants_a_key_that_goes_home_keeps_a_copy(void **state)
{
    (void)state;
    bring(1, 0);
    announce(1, 0);
    announce(0, 0);
    check_states(0, GWI_OWNED, GWI_REPLICA);
    assert_int_equal(n_notes(0) + n_notes(1), 2);
}

static void a_key_that_its_home_uses_is_copied(void **state)
{
    (void)state;
    announce(1, 1);
    announce(0, 1);
    check_states(1, GWI_REPLICA, GWI_OWNED);
    assert_int_equal(n_notes(0) + n_notes(1), 2); /* a WANT and a GRANT */
}

/* A copy goes from small values to great ones and back, where differences are rounded. */
static void a_copy_that_nobody_else_changes_is_what_its_owner_has(void **state)
{
    float back[2], update[2], values[2][2] = {{0}};
    gwi_random random;

    (void)state;
    gwi_random_init(&random, 1, 0);
    announce(1, 1);
    announce(0, 1);
    check_states(1, GWI_REPLICA, GWI_OWNED);
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < 2; i++) {
            back[i] = -values[0][i];
            update[i] = (float)gwi_random_double(&random) * (turn % 2 == 0 ? 1e4f : 1e-2f);
        }
        assert_true(gwi_local_change(gwi_node_local(nodes[0]), 1, GWI_ADD, back));
        assert_true(gwi_local_change(gwi_node_local(nodes[0]), 1, GWI_ADD, update));
        settle_down();
        for (int i = 0; i < 2; i++)
            gwi_local_read(gwi_node_local(nodes[i]), 1, values[i]);
        assert_memory_equal(values[0], values[1], sizeof values[0]);
    }
}

/* A copy has told so much that the numbers begin again, and the key comes while the last of it is
 * on its way. */
static void what_was_told_and_has_not_arrived_comes_with_the_key_once(void **state)
{
    static float added[2] = {1, 2};
    const gwi_note localize = {.kind = GWI_NOTE_LOCALIZE, .node = 0, .key = 1};
    int64_t key = 1, seq;
    float found[2];

    (void)state;
    announce(1, key);
    announce(0, key);
    check_states(key, GWI_REPLICA, GWI_OWNED);
    gwi_item_find(nodes[0], key)->seq = gwi_item_find(nodes[1], key)->holders[0].seq = UINT32_MAX;
    assert_int_equal(gwi_node_access(nodes[0], 0, GWI_PUSH, &key, 1, added, &seq), 0);
    gwi_round(nodes[0], 0);
    assert_int_equal(gwi_item_find(nodes[0], key)->told.seq, 0);
    gwi_take_localize(nodes[1], &localize);
    settle_down();
    check_states(key, GWI_OWNED, GWI_REPLICA);
    gwi_local_read(gwi_node_local(nodes[0]), key, found);
    assert_true(found[0] == 1 && found[1] == 2);
}

GWI_TESTS(cmocka_unit_test_setup_teardown(a_key_goes_home_with_two_notes_if_its_home_wants_it,
                                          set_up, close_pair),
          cmocka_unit_test_setup_teardown(a_key_goes_from_home_to_who_wants_it_with_two_notes,
                                          set_up, close_pair),
          cmocka_unit_test_setup_teardown(who_still_wants_a_key_that_goes_home_keeps_a_copy, set_up,
                                          close_pair),
          cmocka_unit_test_setup_teardown(a_key_that_its_home_uses_is_copied, set_up, close_pair),
          cmocka_unit_test_setup_teardown(a_copy_that_nobody_else_changes_is_what_its_owner_has,
                                          set_up, close_pair),
          cmocka_unit_test_setup_teardown(what_was_told_and_has_not_arrived_comes_with_the_key_once,
                                          set_up, close_pair))
