/* group_test.c - communicators in several processes: splitting, disagreeing, dying.
 *
 * Values of all collectives are compared in tests/comm; this is about everything else. */
#include <godwit/comm.h>

#include "base/thread.h"
#include "comm/world.h"
#include "fabric/processes_test.h"

static gw_world *join(const struct processes *all, int rank)
{
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    gw_world *world;

    opt.rank = rank;
    opt.size = all->n;
    opt.job = all->job;
    opt.timeout_s = 60;
    REQUIRE(gw_world_join(&opt, &world) == 0);
    return world;
}

static gw_comm *comm_of(gw_world *world)
{
    gw_comm *comm;

    REQUIRE(gw_comm_world(world, &comm) == 0);
    return comm;
}

static int said(const char *words)
{
    return strstr(gw_last_error(), words) != NULL;
}

static int sum_of_ranks(gw_comm *comm)
{
    int64_t mine = gw_comm_world_rank(comm, gw_comm_rank(comm)), sum = -1;

    REQUIRE(gw_comm_allreduce(comm, &mine, &sum, 1, GW_I64, GW_SUM) == 0);
    return (int)sum;
}

static void split_and_sum(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_comm *comm = comm_of(world), *half, *again, *none = comm;

    REQUIRE(sum_of_ranks(comm) == 0 + 1 + 2 + 3 + 4);
    REQUIRE(gw_comm_split(comm, rank % 2, -rank, &half) == 0);
    REQUIRE(gw_comm_size(half) == (rank % 2 == 0 ? 3 : 2));
    REQUIRE(gw_comm_world_rank(half, 0) == (rank % 2 == 0 ? 4 : 3));
    REQUIRE(sum_of_ranks(half) == (rank % 2 == 0 ? 6 : 4));
    /* A group of a group, and one that not everybody is in. */
    REQUIRE(gw_comm_split(half, 0, rank, &again) == 0);
    REQUIRE(gw_comm_world_rank(again, 0) == rank % 2 && sum_of_ranks(again) == sum_of_ranks(half));
    REQUIRE(gw_comm_split(comm, rank == 2 ? -1 : 0, 0, &none) == 0);
    REQUIRE((none == NULL) == (rank == 2));
    if (none != NULL)
        REQUIRE(gw_comm_size(none) == 4 && sum_of_ranks(none) == 8);
    gw_comm_close(none);
    gw_comm_close(again);
    gw_comm_close(half);
    REQUIRE(sum_of_ranks(comm) == 10);
    gw_world_close(world);
}

static void groups_are_split_and_split_again(void **state)
{
    (void)state;
    run_processes(5, split_and_sum);
}

static void listed(const struct processes *all, int rank)
{
    static const int ranks[] = {3, 1, 2}, twice[] = {1, 1}, others[] = {0, 9};
    gw_world *world = join(all, rank);
    gw_comm *comm = NULL;

    REQUIRE(gw_comm_of_ranks(world, twice, 2, &comm) == GW_EINVAL && said("are both 1"));
    REQUIRE(gw_comm_of_ranks(world, others, 2, &comm) == GW_ERANGE && said("ranks[1] is 9"));
    if (rank == 0) {
        REQUIRE(gw_comm_of_ranks(world, ranks, 3, &comm) == GW_EINVAL);
        REQUIRE(said("this is rank 0") && comm == NULL);
    } else {
        REQUIRE(gw_comm_of_ranks(world, ranks, 3, &comm) == 0);
        REQUIRE(gw_comm_world_rank(comm, gw_comm_rank(comm)) == rank);
        REQUIRE(gw_comm_rank(comm) == (rank == 3 ? 0 : rank) && sum_of_ranks(comm) == 6);
        gw_comm_close(comm);
    }
    gw_world_close(world);
}

static void a_list_of_ranks_makes_a_communicator_in_that_order(void **state)
{
    (void)state;
    run_processes(4, listed);
}

/* Different calls, again and again; between them the communicator works. */
static void disagree(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_comm *comm = comm_of(world);
    static double data[20000];
    size_t n = sizeof data / sizeof data[0];

    for (int i = 0; i < 20; i++) {
        REQUIRE(gw_comm_allreduce(comm, data, data, rank == 1 ? n - 1 : n, GW_F64, GW_SUM) ==
                GW_EDISAGREE);
        REQUIRE(said("rank 1 calls Allreduce") && said("rank 1: Allreduce float64[19999], SUM") &&
                said("rank 2: Allreduce float64[20000], SUM"));
        int err = rank == 2 ? gw_comm_barrier(comm)
                            : gw_comm_bcast(comm, data, 3, GW_F64, rank == 0 ? 0 : 0);
        REQUIRE(err == GW_EDISAGREE && said("rank 2 calls Barrier"));
        REQUIRE(sum_of_ranks(comm) == 3);
    }
    gw_world_close(world);
}

static void ranks_that_disagree_all_hear_who_called_what_and_go_on(void **state)
{
    (void)state;
    run_processes(3, disagree);
}

static void wait_for_the_late(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_comm *comm = comm_of(world);
    double x = 1;

    REQUIRE(gw_comm_barrier(comm) == 0);
    if (rank != 1) {
        world->job.timeout_ns = GWI_SECOND;
        REQUIRE(gw_comm_allreduce(comm, &x, &x, 1, GW_F64, GW_SUM) == GW_ETIMEOUT);
        REQUIRE(said("rank 1 did not come within 1 s to Allreduce") && said("Barrier"));
        REQUIRE(gw_comm_barrier(comm) == GW_ESTATE && said("did not end well"));
    }
    gather(all, 0, all->n);
    gw_world_close(world);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    run_processes(3, wait_for_the_late);
}

/* Rank 1 dies in the midst of large calls; the others stop with its name. */
static void outlive(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_comm *comm = comm_of(world);
    size_t n = 1 << 18;
    double *data = calloc(n, sizeof *data);
    int64_t began;
    int err = 0;

    for (int i = 0; err == 0; i++) {
        if (rank == 1 && i == 20)
            raise(SIGKILL);
        began = gwi_now_ns();
        err = gw_comm_allreduce(comm, data, data, n, GW_F64, GW_MAX);
    }
    REQUIRE(err == GW_EPEER && said("rank 1") && said("Allreduce"));
    REQUIRE(gwi_now_ns() - began < SOON_NS);
    gw_world_close(world);
}

/* Rank 1 dies while the others compute; their next call says what it was. */
static void come_after_a_death(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_comm *comm = comm_of(world);
    double x = 1;

    REQUIRE(gw_comm_allreduce(comm, &x, &x, 1, GW_F64, GW_MAX) == 0);
    reach(all, 0);
    if (rank == 1)
        raise(SIGKILL);
    await(all, 0, 3);
    sleep(1);
    REQUIRE(gw_comm_allreduce(comm, &x, &x, 1, GW_F64, GW_MAX) == GW_EPEER);
    REQUIRE(said("rank 1") && said("Allreduce"));
    gw_world_close(world);
}

static void a_death_between_two_collectives_is_told_with_the_second(void **state)
{
    (void)state;
    expect_death(3, come_after_a_death, 1);
}

static void a_death_in_a_collective_is_noticed_by_the_others(void **state)
{
    (void)state;
    expect_death(4, outlive, 1);
}

static void leave_early(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_comm *comm = comm_of(world);
    double x = 1;

    REQUIRE(gw_comm_allreduce(comm, &x, &x, 1, GW_F64, GW_SUM) == 0);
    if (rank != 0) {
        int64_t began = gwi_now_ns();
        REQUIRE(gw_comm_allreduce(comm, &x, &x, 1, GW_F64, GW_SUM) == GW_EPEER);
        REQUIRE(said("rank 0 has left the job") && gwi_now_ns() - began < SOON_NS);
        gather(all, 0, 2);
    }
    gw_world_close(world);
}

static void a_rank_that_left_fails_the_others_at_once(void **state)
{
    (void)state;
    run_processes(3, leave_early);
}

/* Two communicators, two threads each with one of them. */
static void *sum_often(void *arg)
{
    for (int i = 0; i < 300; i++)
        REQUIRE(sum_of_ranks(arg) == 1);
    return NULL;
}

static void in_threads(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_comm *comm = comm_of(world), *copy;
    gwi_thread other;

    REQUIRE(gw_comm_split(comm, 0, rank, &copy) == 0);
    REQUIRE(gwi_thread_start("other", sum_often, copy, &other) == 0);
    sum_often(comm);
    gwi_thread_join(other);
    gw_comm_close(copy);
    gw_world_close(world);
}

static void communicators_do_not_disturb_each_other(void **state)
{
    (void)state;
    run_processes(2, in_threads);
}

static void forked(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_comm *comm = comm_of(world);
    int status = -1;

    pid_t child = fork();
    if (child == 0) {
        double x = 0;
        int err = gw_comm_allreduce(comm, &x, &x, 1, GW_F64, GW_SUM);
        _exit(err == GW_ESTATE && said("forked") ? 0 : 1);
    }
    waitpid(child, &status, 0);
    REQUIRE(status == 0 && sum_of_ranks(comm) == 1);
    gw_world_close(world);
}

static void a_forked_child_is_refused(void **state)
{
    (void)state;
    run_processes(2, forked);
}

/* Sums in which the order matters are the same on all ranks and whatever the size. */
static void add_up(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_comm *comm = comm_of(world);

    for (size_t n = 1000; n <= 300000; n += 299000) {
        float *x = malloc(n * sizeof *x), *sum = malloc(n * sizeof *sum);
        for (size_t i = 0; i < n; i++)
            x[i] = (rank == 0 ? 1e8f : rank == 1 ? 1.0f : -1e8f) + (float)(i % 7);
        REQUIRE(gw_comm_allreduce(comm, x, sum, n, GW_F32, GW_SUM) == 0);
        for (size_t i = 0; i < n; i++) {
            float k = (float)(i % 7);
            volatile float expected = 1e8f + k;
            expected = expected + (1.0f + k);
            expected = expected + (-1e8f + k);
            REQUIRE(sum[i] == expected);
        }
        free(x);
        free(sum);
    }
    gw_world_close(world);
}

static void entries_are_combined_in_the_order_of_ranks(void **state)
{
    (void)state;
    run_processes(3, add_up);
}

GWI_TESTS(cmocka_unit_test(groups_are_split_and_split_again),
          cmocka_unit_test(a_list_of_ranks_makes_a_communicator_in_that_order),
          cmocka_unit_test(ranks_that_disagree_all_hear_who_called_what_and_go_on),
          cmocka_unit_test(a_rank_that_does_not_come_is_named),
          cmocka_unit_test(a_death_between_two_collectives_is_told_with_the_second),
          cmocka_unit_test(a_death_in_a_collective_is_noticed_by_the_others),
          cmocka_unit_test(a_rank_that_left_fails_the_others_at_once),
          cmocka_unit_test(communicators_do_not_disturb_each_other),
          cmocka_unit_test(a_forked_child_is_refused),
          cmocka_unit_test(entries_are_combined_in_the_order_of_ranks))
