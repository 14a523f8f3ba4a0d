/* rounds_test.c - how much is told before others have answered, and who is looked at.
 *
 * Keys that are odd are at home on node 1, and node 0 has copies. */
#include "params/pair_test.h"

#define N_COPIES 2000
#define LENGTH 64
#define TOLD_MOST (192 * 1024)    /* as rounds.c says, */
#define PART 256                  /* also this, */
#define WAIT_MOST_NS (3 * GWI_MS) /* and this */
#define PATIENCE_NS GWI_MS        /* of a node whose clocks stand */

static int64_t keys[N_COPIES];

static int set_up(void **state)
{
    (void)state;
    open_pair(2 * N_COPIES, LENGTH, 1 << 22);
    for (int i = 0; i < N_COPIES; i++)
        keys[i] = 2 * i + 1;
    for (int i = 1; i >= 0; i--) {
        assert_int_equal(gwi_node_intent(nodes[i], 0, keys, N_COPIES, 0, 1), 0);
        settle_down();
    }
    assert_int_equal(gwi_node_count(nodes[0])->replicas, N_COPIES);
    for (int i = 0; i < 2; i++)
        gwi_node_count_anew(nodes[i]);
    return 0;
}

static void change(int node, const int64_t *which, int n)
{
    static const float ones[LENGTH] = {1};

    for (int i = 0; i < n; i++)
        assert_true(gwi_local_change(gwi_node_local(nodes[node]), which[i], GWI_ADD, ones));
}

static void who_has_told_much_waits_for_answers_but_not_for_long(void **state)
{
    const size_t n_most = TOLD_MOST / (LENGTH * sizeof(float));

    (void)state;
    change(0, keys, N_COPIES);
    later_ns += GWI_SECOND;
    for (int i = 0; i < 50; i++)
        step(0);
    assert_int_equal(gwi_node_count(nodes[0])->tells, n_most);
    later_ns += WAIT_MOST_NS;
    for (int i = 0; i < 50; i++)
        step(0);
    assert_int_equal(gwi_node_count(nodes[0])->tells, n_most + PART);
    settle_down();
    assert_int_equal(gwi_node_count(nodes[0])->tells, N_COPIES);
    assert_int_equal(nodes[0]->told_bytes, 0);
}

static void check_seen_to(uint64_t n_refreshed, uint64_t n_looked_at)
{
    step(1);
    assert_int_equal(gwi_node_count(nodes[1])->refreshes, n_refreshed);
    assert_int_equal(gwi_node_count(nodes[1])->round_keys, n_looked_at);
}

static void
a_copy_hears_what_it_lacks_when_its_patience_ends_and_is_not_looked_at_before(void **state)
{
    (void)state;
    later_ns += GWI_SECOND;
    change(1, &keys[0], 1);
    step(1); /* it has heard nothing for long, so it hears this at once, */
    later_ns += PATIENCE_NS / 2;
    change(1, &keys[1], 1);
    step(1); /* and the second one later */
    gwi_node_count_anew(nodes[1]);
    change(1, keys, 2);
    later_ns += PATIENCE_NS / 4;
    check_seen_to(0, 2); /* both have changed */
    later_ns += PATIENCE_NS / 2;
    check_seen_to(1, 3);
    later_ns += PATIENCE_NS / 2;
    check_seen_to(2, 4);
    settle_down();
    assert_int_equal(gwi_node_count(nodes[1])->refreshes, 2);
}

GWI_TESTS(cmocka_unit_test_setup_teardown(who_has_told_much_waits_for_answers_but_not_for_long,
                                          set_up, close_pair),
          cmocka_unit_test_setup_teardown(
              a_copy_hears_what_it_lacks_when_its_patience_ends_and_is_not_looked_at_before, set_up,
              close_pair))
