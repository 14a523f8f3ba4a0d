/* latch_test.c - death and delay with a latch held. */
#include "params/params_test.h"

#include <sched.h>

static void expect_holder_dead(gw_worker *worker, operation *run, int64_t key)
{
    float values[LENGTH] = {0};
    char text[64];
    int64_t start = gwi_now_ns();

    REQUIRE(run(worker, one(&key), values, LENGTH, NULL) == GW_EPEER);
    REQUIRE(gwi_now_ns() - start < SOON_NS);
    REQUIRE(strncmp(gw_last_error(), "rank 1 ", 7) == 0);
    snprintf(text, sizeof text, "rank 1 died holding the latch of key %d,", (int)key);
    REQUIRE(saw_first(text));
}

static void die_holding(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);
    operation *const operations[] = {gw_worker_pull, do_push, do_set};

    for (int64_t key = 0; key < N_KEYS; key++)
        REQUIRE(push(worker, key, 1) == 0);
    meet(worker);
    if (rank == 1) {
        hold(worker, 0, 7);
        hold(worker, 1, 0);
        hold(worker, 2, 49);
    }
    meet(worker);
    if (rank == 1) {
        usleep(200 * 1000); /* the others are waiting by now */
        raise(SIGKILL);
    }
    for (int turn = 0; turn < 3; turn++) { /* the second and third find it dead */
        expect_holder_dead(worker, operations[(turn + rank) % 3], 7);
        expect_holder_dead(worker, operations[(turn + rank) % 3], 0);
        expect_holder_dead(worker, operations[(turn + rank) % 3], 49);
        for (int64_t key = 1; key < 49; key++) /* the rest works */
            if (key != 7)
                REQUIRE(push(worker, key, 1) == 0 && pull(worker, key) > 1);
    }
    gather(all, 0, all->n - 1);
    REQUIRE(gw_params_close(params) == GW_EPEER);
    gw_world_close(world);
}

static void who_died_holding_a_latch_is_named_to_all_who_want_the_key(void **state)
{
    (void)state;
    expect_death(2, die_holding, 1);
    expect_death(4, die_holding, 1);
}

/* Rank 1 dies; after that rank 0 has the latch of key 5 for longer than it takes rank 2, which
 * wants it, to look for deaths again. */
static void wait_for_the_living(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);

    if (rank == 1)
        hold(worker, 0, 7);
    meet(worker);
    if (rank == 1)
        raise(SIGKILL);
    expect_holder_dead(worker, do_push, 7); /* they know of it */
    if (rank == 0) {
        hold(worker, 0, 5);
        reach(all, 0);
        await(all, 1, 1);
        usleep(500 * 1000);
        let_go(worker, 5);
    } else {
        await(all, 0, 1);
        reach(all, 1);
        REQUIRE(push(worker, 5, 1) == 0 && pull(worker, 5) == 1);
        REQUIRE(stat_of(params, "latch_waits") > 0);
    }
    gather(all, 2, all->n - 1);
    REQUIRE(gw_params_close(params) == GW_EPEER);
    gw_world_close(world);
}

static void a_death_does_not_end_the_wait_for_a_latch_that_a_living_process_has(void **state)
{
    (void)state;
    expect_death(3, wait_for_the_living, 1);
}

static void *want_key_7(void *arg)
{
    expect_holder_dead(arg, do_push, 7);
    return NULL;
}

static void die_before_threads(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 3);
    gw_worker *workers[3];
    pthread_t threads[3];

    for (int i = 0; i < 3; i++)
        workers[i] = take_worker(params);
    if (rank == 1)
        hold(workers[2], 0, 7);
    REQUIRE(gw_world_barrier(world) == 0);
    if (rank == 1) {
        usleep(200 * 1000);
        raise(SIGKILL);
    }
    for (int i = 0; i < 3; i++)
        REQUIRE(pthread_create(&threads[i], NULL, want_key_7, workers[i]) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    gw_params_close(params);
    gw_world_close(world);
}

static void every_thread_that_waits_hears_of_the_death(void **state)
{
    (void)state;
    expect_death(2, die_before_threads, 1);
}

/* Push hot keys until killed, or until a push fails because somebody else was. */
static void push_until_the_end(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params_options opt = options(1);
    const int64_t length = 2000, keys[] = {0, 1, 2, 3};
    float *values = calloc(4 * 2000, sizeof *values);
    gw_params *params;
    int err = 0;

    opt.num_keys = 4;
    opt.lengths = &length;
    REQUIRE(values != NULL && gw_params_open(world, &opt, &params) == 0);
    gw_worker *worker = take_worker(params);
    meet(worker);
    reach(all, 0);
    int64_t limit = gwi_deadline_ns(rank == 1 ? 60 * GWI_SECOND : GWI_SECOND);
    while (err == 0 && gwi_now_ns() < limit)
        err = gw_worker_push(worker, (gw_keys){keys, 4}, values, 8000, NULL);
    if (err != 0)
        REQUIRE(err == GW_EPEER && strncmp(gw_last_error(), "rank 1 ", 7) == 0);
    gw_params_close(params);
    gw_world_close(world);
    free(values);
}

static void nobody_spins_for_ever_when_a_process_is_killed_at_any_moment(void **state)
{
    (void)state;
    gwi_random random;

    gwi_random_init(&random, 7, 0);
    for (int turn = 0; turn < 5; turn++) {
        struct processes all;
        start_processes(&all, 3, push_until_the_end);
        await(&all, 0, 3);
        usleep((useconds_t)gwi_random_below(&random, 300000));
        kill(all.pids[1], SIGKILL);
        int64_t start = gwi_now_ns();
        wait_for_processes(&all);
        assert_true(gwi_now_ns() - start < SOON_NS);
        for (int rank = 0; rank < 3; rank++)
            assert_int_equal(all.statuses[rank], rank == 1 ? SIGKILL : 0);
    }
}

/* Rank 0 is stopped while it holds the latch; rank 1 knows its process. */
static void stop_holding(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);

    if (rank == 0)
        hold(worker, 0, 9);
    REQUIRE(gw_world_barrier(world) == 0);
    if (rank == 0) {
        raise(SIGSTOP);
        let_go(worker, 9);
    } else {
        int64_t start = gwi_now_ns();
        world->job.timeout_ns = 700 * GWI_MS;
        REQUIRE(push(worker, 9, 1) == GW_ETIMEOUT);
        REQUIRE(strncmp(gw_last_error(), "rank 0 did not come within 0.7 s", 32) == 0);
        REQUIRE(saw_first("latch of key 9"));
        REQUIRE(gwi_now_ns() - start > 600 * GWI_MS && gwi_now_ns() - start < SOON_NS);
        REQUIRE(push(worker, 8, 1) == 0);
        REQUIRE(kill(all->pids[0], SIGCONT) == 0);
        int err;
        while ((err = push(worker, 9, 1)) == GW_ETIMEOUT)
            ;
        REQUIRE(err == 0 && pull(worker, 9) == 1);
    }
    int err = gw_params_close(params);
    REQUIRE(err == 0 || err == GW_ETIMEOUT);
    gw_world_close(world);
}

static void a_latch_held_too_long_times_out_with_the_holders_name(void **state)
{
    (void)state;
    run_processes(2, stop_holding);
}

static _Atomic int hooks_called[2];

/* When the wait has begun, and until it ends: who is to go on may not have stopped yet. */
static void *let_go_on(void *arg)
{
    while (hooks_called[0] == 0)
        usleep(1000);
    while (hooks_called[1] == 0) {
        usleep(200 * 1000);
        REQUIRE(kill(*(const pid_t *)arg, SIGCONT) == 0);
    }
    return NULL;
}

static void note_before(void)
{
    hooks_called[0]++;
}

static void note_after(void)
{
    hooks_called[1]++;
}

static void stop_for_a_while(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);
    pthread_t thread;

    if (rank == 0)
        hold(worker, 0, 9);
    REQUIRE(gw_world_barrier(world) == 0);
    if (rank == 0) {
        raise(SIGSTOP);
        let_go(worker, 9);
    } else {
        gw_set_wait_hooks(note_before, note_after);
        REQUIRE(pthread_create(&thread, NULL, let_go_on, (void *)(uintptr_t)all->pids) == 0);
        REQUIRE(rank == 1 ? push(worker, 9, 1) == 0 : pull(worker, 9) == 0);
        pthread_join(thread, NULL);
        REQUIRE(hooks_called[0] > 0 && hooks_called[0] == hooks_called[1]);
        REQUIRE(stat_of(params, "latch_waits") > 0);
        REQUIRE(pull(worker, 9) == 1);
        gw_set_wait_hooks(NULL, NULL);
    }
    close_all(params, world);
}

static void a_wait_for_a_latch_goes_on_when_its_holder_does(void **state)
{
    (void)state;
    run_processes(2, stop_for_a_while);
}

static int say_yes(void)
{
    return 1;
}

static void be_interrupted(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 2);
    gw_worker *worker = take_worker(params), *other = take_worker(params);

    hold(other, 0, 9);
    gw_set_interrupt_check(say_yes);
    REQUIRE(push(worker, 9, 1) == GW_EINTR);
    REQUIRE(gw_worker_barrier(worker) == GW_EINTR);
    gw_set_interrupt_check(NULL);
    let_go(other, 9);
    REQUIRE(push(worker, 9, 1) == 0 && pull(other, 9) == 1);
    close_all(params, world);
}

static void a_wait_for_a_latch_can_be_interrupted(void **state)
{
    (void)state;
    run_processes(1, be_interrupted);
}

/* Rank 0 has asked for key 1, whose latch rank 1 has: so as long as the answer does not come it
 * looks at each key by itself.  Other workers of its process have the latches of its own keys. */
static void fail_at_latches(const struct processes *all, int rank)
{
    gw_world *world = join_as_node(all, rank);
    gw_params *params = open_params(world, 2);
    gw_worker *worker = take_worker(params), *other = take_worker(params);
    operation *const operations[] = {do_push, do_set, gw_worker_pull};
    float values[LENGTH] = {5, 5, 5, 5}, late[LENGTH];
    const int64_t held = 0, away = 1;
    gw_ticket ticket;

    if (rank == 1)
        hold(worker, 0, away);
    REQUIRE(gw_world_barrier(world) == 0);
    if (rank == 0) {
        REQUIRE(gw_worker_pull(worker, one(&away), late, LENGTH, &ticket) == 0);
        for (int i = 0; i < 3; i++) {
            hold(other, 0, held);
            gw_set_interrupt_check(say_yes);
            REQUIRE(operations[i](worker, one(&held), values, LENGTH, NULL) == GW_EINTR);
            gw_set_interrupt_check(NULL);
            let_go(other, held);
            REQUIRE(pull(other, held) == 0);
            REQUIRE(push(worker, 2, 1) == 0 && pull(worker, 2) == (float)(i + 1));
        }
        REQUIRE(push(worker, held, 1) == 0 && pull(worker, held) == 1);
        REQUIRE(gw_worker_is_done(worker, ticket) == 0);
        reach(all, 0);
        REQUIRE(gw_worker_wait(worker, ticket) == 0);
    } else {
        await(all, 0, 1);
        let_go(worker, away);
    }
    close_all(params, world);
}

static void on_several_nodes_who_gets_no_latch_changes_nothing_and_can_go_on(void **state)
{
    (void)state;
    run_processes(2, fail_at_latches);
}

/* Work on keys that a stopped process does not hold goes on, with threads that want it. */
static void *push_many(void *arg)
{
    for (int i = 0; i < 2000; i++)
        REQUIRE(push(arg, 9, 1) == 0);
    return NULL;
}

static void contend(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 4);
    pthread_t threads[4];
    gw_worker *workers[4];

    for (int i = 0; i < 4; i++) {
        workers[i] = take_worker(params);
        REQUIRE(pthread_create(&threads[i], NULL, push_many, workers[i]) == 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    REQUIRE(gw_world_barrier(world) == 0);
    REQUIRE(pull(workers[0], 9) == (float)(all->n * 4 * 2000));
    REQUIRE(gw_world_barrier(world) == 0);
    close_all(params, world);
}

static void threads_and_processes_that_fight_for_one_key_all_get_it(void **state)
{
    (void)state;
    run_processes(1, contend);
    run_processes(3, contend);
}

GWI_TESTS(cmocka_unit_test(who_died_holding_a_latch_is_named_to_all_who_want_the_key),
          cmocka_unit_test(a_death_does_not_end_the_wait_for_a_latch_that_a_living_process_has),
          cmocka_unit_test(every_thread_that_waits_hears_of_the_death),
          cmocka_unit_test(nobody_spins_for_ever_when_a_process_is_killed_at_any_moment),
          cmocka_unit_test(a_latch_held_too_long_times_out_with_the_holders_name),
          cmocka_unit_test(a_wait_for_a_latch_goes_on_when_its_holder_does),
          cmocka_unit_test(a_wait_for_a_latch_can_be_interrupted),
          cmocka_unit_test(on_several_nodes_who_gets_no_latch_changes_nothing_and_can_go_on),
          cmocka_unit_test(threads_and_processes_that_fight_for_one_key_all_get_it))
