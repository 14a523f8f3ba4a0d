/* remote_test.c - orders to agents that meet trouble. */
#include "base/error.h"
#include "params/agent_turn.h"
#include "params/params_test.h"

#define LONG 32768 /* of such vectors three fit into a tray, one an order */
#define MANY 4

static const int64_t long_length = LONG;
/* At home on the second of two nodes, and served by the first of its two processes. */
static const int64_t keys_elsewhere[MANY] = {1, 5, 9, 13};
static float values[MANY][LONG];

static const struct processes *everybody;
static const gw_worker *asker;

/* There is room in the tray from now on, but the wait for it ends by this. */
static int make_room_and_interrupt(void)
{
    const gwi_order *oldest = (const gwi_order *)(const void *)asker->tray.base;

    reach(everybody, 0);
    while (atomic_load(&oldest->done) == 0)
        usleep(1000);
    return 1;
}

/* Rank 2 has the latch of the first key that rank 1 asks for, by orders to the agent of rank 0. */
static void be_interrupted_at_a_full_tray(const struct processes *all, int rank)
{
    gw_world *world = join_in_nodes(all, rank, 2);
    gw_params_options opt = options(1);
    gw_params *params;
    gw_ticket ticket;

    opt.lengths = &long_length;
    REQUIRE(gw_params_open(world, &opt, &params) == 0);
    gw_worker *worker = take_worker(params);
    if (rank == 2) {
        for (int i = 0; i < MANY; i++)
            for (int j = 0; j < LONG; j++)
                values[i][j] = (float)(i + 1);
        REQUIRE(do_set(worker, (gw_keys){keys_elsewhere, MANY}, values, MANY * LONG, NULL) == 0);
        hold(worker, 0, keys_elsewhere[0]);
    }
    REQUIRE(gw_world_barrier(world) == 0);
    if (rank == 2) {
        await(all, 0, 1);
        let_go(worker, keys_elsewhere[0]);
    }
    if (rank == 1) {
        everybody = all;
        asker = worker;
        gw_set_interrupt_check(make_room_and_interrupt);
        for (int i = 0; i < MANY; i++)
            REQUIRE(gw_worker_pull(worker, one(&keys_elsewhere[i]), values[i], LONG, &ticket) ==
                    (i < MANY - 1 ? 0 : GW_EINTR));
        gw_set_interrupt_check(NULL);
        REQUIRE(gw_worker_wait_all(worker) == 0);
        for (int i = 0; i < MANY; i++)
            REQUIRE(values[i][0] == (float)(i < MANY - 1 ? i + 1 : 0));
        REQUIRE(worker->tray.head == worker->tray.tail); /* all of it is free */
        for (int n = 1; n <= MANY; n++) {
            REQUIRE(gw_worker_pull(worker, (gw_keys){keys_elsewhere, (size_t)n}, values,
                                   (size_t)n * LONG, NULL) == 0);
            REQUIRE(values[n - 1][0] == (float)n && values[n - 1][LONG - 1] == (float)n);
        }
    }
    close_all(params, world);
}

static void an_order_for_which_the_wait_for_room_failed_takes_none(void **state)
{
    (void)state;
    run_processes(4, be_interrupted_at_a_full_tray);
}

/* what is behind */

/* The agent is busy, so the intent stays where it was dropped. */
static void ask_before_an_intent_is_taken(const struct processes *all, int rank)
{
    gw_world *world = join_in_nodes(all, rank, 1);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);
    const int64_t key = 1; /* of rank 1 */
    float vector[LENGTH];
    gw_ticket ticket;

    if (rank == 0) {
        REQUIRE(gw_worker_pull(worker, one(&key), vector, LENGTH, &ticket) == 0 && ticket.seq >= 0);
        REQUIRE(gw_worker_wait(worker, ticket) == 0 && gw_worker_is_done(worker, ticket) == 1);
        pthread_mutex_lock(&params->agent->lock);
        REQUIRE(gw_worker_intent(worker, one(&key), 1, 2) == 0);
        int is_done = gw_worker_is_done(worker, ticket);
        pthread_mutex_unlock(&params->agent->lock);
        REQUIRE(is_done == 1);
    }
    close_all(params, world);
}

static void what_is_done_stays_done_whatever_is_announced_after_it(void **state)
{
    (void)state;
    run_processes(2, ask_before_an_intent_is_taken);
}

/* memory that runs out */

enum { OPEN, AT_PLACING, WAITING, FAILED, SEEN };

static struct gwi_fabric_ops with_little_memory;
static int (*usual_need)(gwi_fabric *, const gwi_segment *, size_t, size_t);
static int n_failing, n_waiting;

/* From the opening on there is no more.  That is said when so many agents have come so far, each
 * with the latch of a key that came, and so many wait for them. */
static int need_too_much(gwi_fabric *f, const gwi_segment *segment, size_t at, size_t n_bytes)
{
    if (atomic_load(&everybody->milestones->reached[OPEN]) == 0)
        return usual_need(f, segment, at, n_bytes);
    reach(everybody, AT_PLACING);
    await(everybody, AT_PLACING, n_failing);
    await(everybody, WAITING, n_waiting);
    return gwi_fail(GW_ENOMEM, "there are no %zu bytes", n_bytes);
}

static void have_little_memory(gw_world *world, int of_how_many, int for_how_many)
{
    with_little_memory = *world->fabric->ops;
    usual_need = with_little_memory.segment_need;
    with_little_memory.segment_need = need_too_much;
    world->fabric->ops = &with_little_memory;
    n_failing = of_how_many;
    n_waiting = for_how_many;
}

static void say_that_it_waits(void)
{
    static int n_said;

    if (n_said++ == 0)
        reach(everybody, WAITING);
}

static void expect_no_memory(gw_worker *worker, operation *run, int64_t key, const char *words)
{
    float vector[LENGTH] = {1, 1, 1, 1};
    int64_t start = gwi_now_ns();

    REQUIRE(run(worker, one(&key), vector, LENGTH, NULL) == GW_ENOMEM && saw(words));
    REQUIRE(gwi_now_ns() - start < SOON_NS);
}

/* Key 1 comes from rank 2 to the node of ranks 0 and 1, whose agent, in rank 0, cannot place it. */
static void run_out_of_memory(const struct processes *all, int rank)
{
    gw_world *world = join_in_nodes(all, rank, 2);
    const char *words = rank == 0 ? "there are no " : "rank 0 serves keys no longer";
    const int64_t key = 1;

    everybody = all;
    if (rank == 0)
        have_little_memory(world, 1, 1);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);
    REQUIRE(gw_world_barrier(world) == 0);
    if (rank == 0) {
        reach(all, OPEN);
        REQUIRE(gw_worker_localize(worker, one(&key), NULL) == GW_ENOMEM && saw(words));
        reach(all, FAILED);
    } else if (rank == 1) {
        await(all, AT_PLACING, 1);
        gw_set_wait_hooks(say_that_it_waits, say_that_it_waits);
        expect_no_memory(worker, gw_worker_pull, key, words);
        gw_set_wait_hooks(NULL, NULL);
        await(all, FAILED, 1);
    }
    if (rank < 2) {
        REQUIRE(!gwi_store_latched(&params->store, key) && !gwi_store_has(&params->store, key));
        expect_no_memory(worker, gw_worker_pull, key, words);
        expect_no_memory(worker, do_set, key, words);
        REQUIRE(push(worker, 2 * rank, 1) == 0 && pull(worker, 2 * rank) == 1);
    }
    gather(all, SEEN, all->n);
    gw_params_abandon(params);
    gw_world_close(world);
}

static void a_key_for_which_there_is_no_memory_stays_free_and_who_wants_it_hears_why(void **state)
{
    (void)state;
    run_processes(3, run_out_of_memory);
}

/* agents of other nodes */

static int64_t key_of(const gw_params *params, int home, int channel)
{
    int64_t key = 0;

    while (gwi_spread_home(&params->spread, key) != home ||
           gwi_spread_channel(&params->spread, key) != channel)
        key++;
    return key;
}

static int begins(const char *words)
{
    return strncmp(gw_last_error(), words, strlen(words)) == 0;
}

/* The agent of the last rank cannot place a key that comes from the first node, when all others
 * wait: some for wait_sync, some for a key that it serves. */
static void see_the_last_one_fail(const struct processes *all, int rank, int node_size)
{
    int culprit = all->n - 1, channel = culprit % node_size;
    gw_world *world = join_in_nodes(all, rank, node_size);
    float vector[LENGTH];
    char words[100];

    everybody = all;
    snprintf(words, sizeof words,
             "rank %d serves keys no longer, for its agent has failed: there are no ", culprit);
    if (rank == culprit)
        have_little_memory(world, 1, culprit);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);
    const int64_t here = key_of(params, 0, channel),
                  there = key_of(params, culprit / node_size, channel);
    REQUIRE(gw_world_barrier(world) == 0);
    int64_t start = gwi_now_ns();
    if (rank == culprit) {
        reach(all, OPEN);
        REQUIRE(gw_worker_localize(worker, one(&here), NULL) == GW_ENOMEM && begins(words));
    } else {
        await(all, AT_PLACING, 1);
        gw_set_wait_hooks(say_that_it_waits, say_that_it_waits);
        int err = rank % 2 == 0 ? gw_worker_wait_sync(worker)
                                : gw_worker_pull(worker, one(&there), vector, LENGTH, NULL);
        REQUIRE(err == GW_ENOMEM && begins(words));
        gw_set_wait_hooks(NULL, NULL);
    }
    REQUIRE(gw_worker_wait_sync(worker) == GW_ENOMEM && begins(words));
    if (channel == 0) /* whose agents count who has come */
        REQUIRE(gw_worker_barrier(worker) == GW_ENOMEM && begins(words));
    if (rank < node_size)
        expect_no_memory(worker, do_set, there, words);
    REQUIRE(gwi_now_ns() - start < SOON_NS);
    close_all(params, world); /* which waits for none of it */
}

static void fail_among_three_nodes(const struct processes *all, int rank)
{
    see_the_last_one_fail(all, rank, 1);
}

static void fail_among_nodes_of_two(const struct processes *all, int rank)
{
    see_the_last_one_fail(all, rank, 2);
}

static void all_nodes_hear_which_agent_failed_and_why(void **state)
{
    (void)state;
    run_processes(3, fail_among_three_nodes);
    run_processes(4, fail_among_nodes_of_two);
}

/* Who is told to have failed. */
static int named(void)
{
    int rank = -1, end = 0;

    sscanf(gw_last_error(), "rank %d serves keys no longer, for its agent has failed: %n", &rank,
           &end);
    return end > 0 ? rank : -1;
}

/* The agents of ranks 1 and 2 can both not place a key that comes from rank 0, which waits. */
static void fail_at_the_same_moment(const struct processes *all, int rank)
{
    gw_world *world = join_in_nodes(all, rank, 1);
    float vector[LENGTH];

    everybody = all;
    if (rank > 0)
        have_little_memory(world, 2, 1);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);
    const int64_t theirs = key_of(params, 1, 0), ours = key_of(params, 0, 0) + (rank == 2) * all->n;
    REQUIRE(gw_world_barrier(world) == 0);
    int64_t start = gwi_now_ns();
    if (rank > 0) {
        reach(all, OPEN);
        REQUIRE(gw_worker_localize(worker, one(&ours), NULL) == GW_ENOMEM);
        REQUIRE(named() == rank); /* it knew of itself first */
    } else {
        await(all, AT_PLACING, 2);
        gw_set_wait_hooks(say_that_it_waits, say_that_it_waits);
        REQUIRE(gw_worker_pull(worker, one(&theirs), vector, LENGTH, NULL) == GW_ENOMEM);
        gw_set_wait_hooks(NULL, NULL);
    }
    int who = named();
    REQUIRE(who == 1 || who == 2);
    gather(all, FAILED, all->n);
    for (int i = 0; i < 100; i++) { /* and it stays at that, whatever comes */
        REQUIRE(gw_worker_wait_sync(worker) == GW_ENOMEM && named() == who);
        usleep(1000);
    }
    REQUIRE(gwi_now_ns() - start < SOON_NS);
    close_all(params, world);
}

static void of_two_agents_that_fail_at_once_each_node_names_the_one_it_knew_of_first(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        run_processes(3, fail_at_the_same_moment);
}

GWI_TESTS(
    cmocka_unit_test(of_two_agents_that_fail_at_once_each_node_names_the_one_it_knew_of_first),
    cmocka_unit_test(all_nodes_hear_which_agent_failed_and_why),
    cmocka_unit_test(an_order_for_which_the_wait_for_room_failed_takes_none),
    cmocka_unit_test(what_is_done_stays_done_whatever_is_announced_after_it),
    cmocka_unit_test(a_key_for_which_there_is_no_memory_stays_free_and_who_wants_it_hears_why))
