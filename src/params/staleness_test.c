/* staleness_test.c - what a node says of how long others wait for its changes, beside how long they
 * do.
 *
 * Keys that are odd are at home on node 1, and node 0 has copies.  As agents do, a node rests after
 * each round that found something. */
#include "params/pair_test.h"
#include "base/random.h"

#define N_COPIES 100
#define PROBE 1 /* not changed but to see how long that takes */
#define N_PROBES 100
#define REST_NS (5 * GWI_MS)
#define SELDOM_NS (20 * GWI_MS)
#define DOZE_NS (100 * GWI_MS)
#define NAP_NS (250 * GWI_US)

static int64_t keys[N_COPIES];
static gwi_random chance;
static int changes[2]; /* whether the workers of that node change all the time */
static int64_t turned_ns[2];
static float n_probes;

/* It has its turn soon. */
static void wake(int node)
{
    gwi_fabric *f = gwi_sim_fabric(sim, node);

    f->ops->nudge(f, node, GWI_LANE_PARAMS);
}

static void wake_both(void)
{
    wake(0);
    wake(1);
}

static int set_up(void **state)
{
    (void)state;
    open_pair(2 * N_COPIES + 2, 1, 1 << 22);
    gwi_random_init(&chance, 7, 0);
    n_probes = 0;
    changes[0] = changes[1] = 0;
    for (int i = 0; i < N_COPIES; i++)
        keys[i] = 2 * i + PROBE;
    for (int i = 1; i >= 0; i--) {
        assert_int_equal(gwi_node_intent(nodes[i], 0, keys, N_COPIES, 0, 1), 0);
        settle_down();
    }
    assert_int_equal(gwi_node_count(nodes[0])->replicas, N_COPIES);
    wake_both();
    return 0;
}

static int64_t now_ns(void)
{
    return gwi_sim_now_ns(sim) + later_ns;
}

static void change(int node, int64_t key)
{
    static const float one = 1;

    assert_true(gwi_local_change(gwi_node_local(nodes[node]), key, GWI_ADD, &one));
}

/* The turn of some node.  The simulation lets who is idle sleep longer each time, up to 100 ms. */
static void go_on(void)
{
    int rank;

    assert_true(gwi_sim_step(sim, &rank));
    if (rank < 0)
        return;
    if (now_ns() - turned_ns[rank] > NAP_NS)
        wake(rank);
    turned_ns[rank] = now_ns();
    for (int i = 1; changes[rank] && i < N_COPIES; i++)
        change(rank, keys[i]);
    uint64_t n_before = gwi_node_count(nodes[rank])->round_keys;
    int64_t began_ns = now_ns();
    step(rank);
    if (gwi_node_count(nodes[rank])->round_keys != n_before)
        gwi_node_rest(nodes[rank], began_ns + REST_NS, began_ns);
}

static void go_on_for(int64_t ns)
{
    for (int64_t end_ns = now_ns() + ns; now_ns() < end_ns;)
        go_on();
}

static double probe(int from)
{
    int64_t began_ns = now_ns();
    float found = 0;

    n_probes++;
    for (change(from, PROBE); found < n_probes;
         gwi_local_read(gwi_node_local(nodes[1 - from]), PROBE, &found))
        go_on();
    return (double)(now_ns() - began_ns);
}

static void check_estimate(int from, double measured_ns)
{
    double estimate_ns = (double)gwi_node_time(nodes[from]).staleness_ns;

    assert_in_range(estimate_ns, measured_ns / 2, measured_ns * 2);
}

/* At random moments, so often. */
static double measure(int from, int64_t every_ns)
{
    double sum_ns = 0;

    for (int i = 0; i < N_PROBES; i++) {
        go_on_for((int64_t)gwi_random_below(&chance, (uint64_t)(2 * every_ns)));
        sum_ns += probe(from);
    }
    return sum_ns / N_PROBES;
}

static void check_busy(int from, int to_changes)
{
    changes[from] = 1;
    changes[1 - from] = to_changes;
    measure(from, REST_NS); /* until it knows */
    check_estimate(from, measure(from, REST_NS));
}

static void changes_of_copies_wait_for_rounds(void **state)
{
    (void)state;
    check_busy(0, 0);
}

static void changes_of_copies_that_all_change_wait_for_rounds(void **state)
{
    (void)state;
    check_busy(0, 1);
}

static void changes_at_the_owner_wait_until_holders_tell(void **state)
{
    (void)state;
    check_busy(1, 1);
}

static void changes_at_the_owner_wait_for_patience_of_holders_that_do_not_tell(void **state)
{
    (void)state;
    check_busy(1, 0);
}

static void what_is_changed_seldom_is_seen_soon_and_pauses_do_not_count(void **state)
{
    (void)state;
    for (int from = 0; from < 2; from++) {
        measure(from, SELDOM_NS);
        check_estimate(from, measure(from, SELDOM_NS));
    }
}

/* The agent has slept, and was woken by the change. */
static double measure_after_sleep(int from)
{
    double sum_ns = 0;

    for (int i = 0; i < N_PROBES; i++) {
        settle_down();
        later_ns += DOZE_NS;
        gwi_node_look_now(nodes[0]);
        gwi_node_look_now(nodes[1]);
        wake_both();
        sum_ns += probe(from);
    }
    return sum_ns / N_PROBES;
}

static void sleep_of_who_is_woken_by_a_change_does_not_count(void **state)
{
    (void)state;
    check_busy(0, 1);
    changes[0] = changes[1] = 0;
    for (int from = 0; from < 2; from++) {
        measure_after_sleep(from);
        check_estimate(from, measure_after_sleep(from));
    }
}

#define WITH_COPIES(test) cmocka_unit_test_setup_teardown(test, set_up, close_pair)

GWI_TESTS(WITH_COPIES(changes_of_copies_wait_for_rounds),
          WITH_COPIES(changes_of_copies_that_all_change_wait_for_rounds),
          WITH_COPIES(changes_at_the_owner_wait_until_holders_tell),
          WITH_COPIES(changes_at_the_owner_wait_for_patience_of_holders_that_do_not_tell),
          WITH_COPIES(what_is_changed_seldom_is_seen_soon_and_pauses_do_not_count),
          WITH_COPIES(sleep_of_who_is_woken_by_a_change_does_not_count))
