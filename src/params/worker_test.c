/* worker_test.c - workers of threads and processes meet. */
#include "params/params_test.h"

#define ROUNDS 200

/* Every worker adds 1, meets the others, and sees what all have added. */
static void *count_rounds(void *arg)
{
    gw_worker *worker = arg;
    int n_workers = worker->params->n_seats;

    for (int round = 1; round <= ROUNDS; round++) {
        REQUIRE(push(worker, 3, 1) == 0);
        meet(worker);
        REQUIRE(pull(worker, 3) == (float)(round * n_workers));
        meet(worker);
    }
    return NULL;
}

static void count_in_threads(const struct processes *all, int rank, int n_threads)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, n_threads);
    pthread_t threads[8];

    for (int t = 0; t < n_threads; t++)
        REQUIRE(pthread_create(&threads[t], NULL, count_rounds, take_worker(params)) == 0);
    for (int t = 0; t < n_threads; t++)
        pthread_join(threads[t], NULL);
    close_all(params, world);
}

static void one_thread(const struct processes *all, int rank)
{
    count_in_threads(all, rank, 1);
}

static void three_threads(const struct processes *all, int rank)
{
    count_in_threads(all, rank, 3);
}

static void a_barrier_waits_for_every_worker_of_every_process(void **state)
{
    (void)state;
    run_processes(1, one_thread);
    run_processes(4, one_thread);
    run_processes(1, three_threads);
    run_processes(3, three_threads);
}

static void *wait_and_close(void *arg)
{
    usleep(300 * 1000);
    REQUIRE(gw_worker_close(arg) == 0);
    return NULL;
}

/* The second worker of each process is closed while the first one waits for it. */
static void close_meanwhile(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 2);
    gw_worker *worker = take_worker(params), *other = take_worker(params);
    pthread_t thread;

    int64_t start = gwi_now_ns();
    REQUIRE(pthread_create(&thread, NULL, wait_and_close, other) == 0);
    meet(worker);
    REQUIRE(gwi_now_ns() - start > 50 * GWI_MS);
    pthread_join(thread, NULL);
    for (int i = 0; i < 50; i++)
        meet(worker);
    if (rank != 0)
        REQUIRE(gw_worker_close(worker) == 0);
    else
        for (int i = 0; i < 50; i++)
            meet(worker); /* alone now, or soon */
    close_all(params, world);
}

static void barriers_go_on_without_workers_that_were_closed(void **state)
{
    (void)state;
    run_processes(1, close_meanwhile);
    run_processes(3, close_meanwhile);
}

static void come_late(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);
    int err;

    world->job.timeout_ns = GWI_SECOND / 2;
    if (rank == 1) {
        await(all, 0, all->n - 1);
    } else {
        REQUIRE(gw_worker_barrier(worker) == GW_ETIMEOUT);
        REQUIRE(strncmp(gw_last_error(), "rank 1 did not come", 19) == 0);
        REQUIRE(saw("the workers' barrier"));
        reach(all, 0);
    }
    while ((err = gw_worker_barrier(worker)) == GW_ETIMEOUT)
        ; /* continues the same wait */
    REQUIRE(err == 0);
    REQUIRE(push(worker, 2, 1) == 0);
    while ((err = gw_worker_barrier(worker)) == GW_ETIMEOUT)
        ;
    REQUIRE(err == 0 && pull(worker, 2) == (float)all->n);
    gw_params_close(params);
    gw_world_close(world);
}

static void a_barrier_that_times_out_names_who_is_missing_and_can_be_continued(void **state)
{
    (void)state;
    run_processes(3, come_late);
}

static void never_take_a_worker(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 2);
    gw_worker *worker = take_worker(params);

    world->job.timeout_ns = GWI_SECOND / 2;
    REQUIRE(gw_worker_barrier(worker) == GW_ETIMEOUT && saw_first("rank 0"));
    gw_worker *other = take_worker(params);
    REQUIRE(gw_worker_close(other) == 0);
    REQUIRE(gw_worker_barrier(worker) == 0);
    close_all(params, world);
}

static void barriers_count_workers_from_the_start(void **state)
{
    (void)state;
    run_processes(1, never_take_a_worker);
}

/* Rank 1 never takes its workers; by closing all it has closed them. */
static void close_without_workers(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 2);

    if (rank != 1) {
        gw_worker *worker = take_worker(params), *other = take_worker(params);
        REQUIRE(gw_worker_close(other) == 0);
        meet(worker);
        meet(worker);
    } else {
        usleep(200 * 1000);
    }
    close_all(params, world);
}

static void barriers_go_on_without_processes_that_closed_all(void **state)
{
    (void)state;
    run_processes(2, close_without_workers);
    run_processes(3, close_without_workers);
}

static void leave(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);

    REQUIRE(push(worker, 4, 1) == 0);
    meet(worker);
    if (rank == 1) {
        gw_world_close(world);
        _exit(0); /* without gw_params_close() */
    }
    int64_t start = gwi_now_ns();
    REQUIRE(gw_worker_barrier(worker) == GW_EPEER && saw_first("rank 1 has left"));
    REQUIRE(gwi_now_ns() - start < SOON_NS);
    REQUIRE(pull(worker, 4) == (float)all->n); /* what needs nobody works */
    gather(all, 0, all->n - 1);
    REQUIRE(gw_params_close(params) == GW_EPEER && saw_first("rank "));
    gw_world_close(world);
}

static void a_rank_that_leaves_ends_barriers_with_its_name(void **state)
{
    (void)state;
    run_processes(3, leave);
}

static void die_in_between(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);

    meet(worker);
    if (rank == 1) {
        usleep(200 * 1000);
        raise(SIGKILL);
    }
    int64_t start = gwi_now_ns();
    REQUIRE(gw_worker_barrier(worker) == GW_EPEER);
    REQUIRE(strncmp(gw_last_error(), "rank 1 ", 7) == 0);
    REQUIRE(gwi_now_ns() - start < SOON_NS);
    gather(all, 0, all->n - 1);
    REQUIRE(gw_params_close(params) == GW_EPEER);
    gw_world_close(world);
}

static void a_death_ends_barriers_and_the_closing_with_its_name(void **state)
{
    (void)state;
    expect_death(3, die_in_between, 1);
}

GWI_TESTS(cmocka_unit_test(a_barrier_waits_for_every_worker_of_every_process),
          cmocka_unit_test(barriers_go_on_without_workers_that_were_closed),
          cmocka_unit_test(a_barrier_that_times_out_names_who_is_missing_and_can_be_continued),
          cmocka_unit_test(barriers_count_workers_from_the_start),
          cmocka_unit_test(barriers_go_on_without_processes_that_closed_all),
          cmocka_unit_test(a_rank_that_leaves_ends_barriers_with_its_name),
          cmocka_unit_test(a_death_ends_barriers_and_the_closing_with_its_name))
