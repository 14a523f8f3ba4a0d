/* meet_test.c - processes find each other, agree or are refused, and deaths end it. */
#include "fabric/host/meet.h"
#include "base/error.h"
#include "fabric/processes_test.h"

#include <fcntl.h>
#include <sys/mman.h>

/* Everybody gets the same file; its content lists the process numbers by rank. */
static int make_list(void *ctx, const gwi_attendee *all, int n, int *ret_fd)
{
    (void)ctx;
    int fd = memfd_create("list", MFD_CLOEXEC);

    for (int i = 0; i < n; i++) {
        REQUIRE(all[i].rank == i);
        REQUIRE(pwrite(fd, &all[i].pid, sizeof(pid_t), i * (int)sizeof(pid_t)) == sizeof(pid_t));
    }
    *ret_fd = fd;
    return 0;
}

static pid_t listed(int fd, int rank)
{
    pid_t pid = 0;

    REQUIRE(pread(fd, &pid, sizeof pid, rank * (int)sizeof pid) == sizeof pid);
    return pid;
}

static void meet_with_rank(const struct processes *all, int rank)
{
    gwi_job job = job_of(all, rank, all->n);
    int got = -1, fd = -1;

    REQUIRE(gwi_meet(&job, 1, make_list, NULL, &got, &fd) == 0);
    REQUIRE(got == rank);
    REQUIRE(listed(fd, rank) == getpid());
    REQUIRE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void meet_by_arrival(const struct processes *all, int rank)
{
    gwi_job job = job_of(all, rank == 2 ? 2 : -1, all->n); /* one insists on its rank */
    int got = -1, fd = -1;

    REQUIRE(gwi_meet(&job, 1, make_list, NULL, &got, &fd) == 0);
    REQUIRE(got >= 0 && got < all->n);
    REQUIRE(rank != 2 || got == 2);
    REQUIRE(listed(fd, got) == getpid());
}

static void all_who_come_get_their_rank_and_the_same_file(void **state)
{
    (void)state;
    run_processes(1, meet_with_rank);
    run_processes(2, meet_with_rank);
    run_processes(16, meet_with_rank);
}

static void ranks_by_order_of_arrival_are_all_different(void **state)
{
    (void)state;
    run_processes(7, meet_by_arrival);
}

static void many_meetings_in_a_row_do_not_mix(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        run_processes(4, meet_with_rank);
}

/* Three processes of which the last is wrong in some way; it alone is refused,
 * the others end by their time limit with both reasons. */
static void disagree(const struct processes *all, gwi_job *job, int wrong, const char *word)
{
    int got = -1, fd = -1;

    job->timeout_ns = GWI_SECOND / 2;
    if (wrong)
        usleep(200 * 1000); /* so that it is not the one that gathers */
    int err = gwi_meet(job, 1, make_list, NULL, &got, &fd);
    REQUIRE(err == (wrong ? GW_EDISAGREE : GW_ETIMEOUT));
    REQUIRE(strstr(gw_last_error(), "rank 2") != NULL);
    REQUIRE(strstr(gw_last_error(), word) != NULL);
    REQUIRE(got == -1 && fd == -1);
    (void)all;
}

static void disagree_on_size(const struct processes *all, int rank)
{
    gwi_job job = job_of(all, rank, all->n);

    job.size += rank == 2;
    disagree(all, &job, rank == 2, "4 processes");
}

static void disagree_on_nodes(const struct processes *all, int rank)
{
    gwi_job job = job_of(all, rank, rank == 2 ? 1 : 3);

    disagree(all, &job, rank == 2, "node has 1");
}

static void come_twice(const struct processes *all, int rank)
{
    gwi_job job = job_of(all, rank == 2 ? 1 : rank, all->n);
    int got = -1, fd = -1;

    job.timeout_ns = GWI_SECOND / 2;
    if (rank == 2)
        usleep(200 * 1000);
    int err = gwi_meet(&job, 1, make_list, NULL, &got, &fd);
    REQUIRE(err == (rank == 2 ? GW_EDISAGREE : GW_ETIMEOUT));
    REQUIRE(strstr(gw_last_error(), "rank 1 has joined already") != NULL);
    REQUIRE(rank == 2 || strstr(gw_last_error(), "rank 2 did not join") != NULL);
}

static void whoever_disagrees_is_refused_and_the_others_say_so(void **state)
{
    (void)state;
    run_processes(3, disagree_on_size);
    run_processes(3, disagree_on_nodes);
    run_processes(3, come_twice);
}

static void lose_one(const struct processes *all, int rank)
{
    gwi_job job = job_of(all, rank, all->n);
    int got = -1, fd = -1;

    if (rank == 1)
        usleep(100 * 1000);
    job.size = 4; /* one never comes, so all wait until somebody dies */
    int err = gwi_meet(&job, 1, make_list, NULL, &got, &fd);
    REQUIRE(err == GW_EPEER);
    REQUIRE(strstr(gw_last_error(), "rank ") != NULL);
}

static void expect_others_to_notice(int victim)
{
    struct processes all;
    int64_t start;

    start_processes(&all, 3, lose_one);
    usleep(400 * 1000);
    start = gwi_now_ns();
    kill(all.pids[victim], SIGKILL);
    wait_for_processes(&all);
    assert_true(gwi_now_ns() - start < 2 * GWI_SECOND);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(all.statuses[rank], rank == victim ? SIGKILL : 0);
}

static void a_death_while_joining_ends_the_meeting_for_all(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) /* one of them gathers */
        expect_others_to_notice(victim);
}

static int cannot_prepare(void *ctx, const gwi_attendee *all, int n, int *ret_fd)
{
    (void)ctx, (void)all, (void)n, (void)ret_fd;
    return gwi_fail(GW_ENOMEM, "no room today");
}

static void meet_in_vain(const struct processes *all, int rank)
{
    gwi_job job = job_of(all, rank, all->n);
    int got = -1, fd = -1;

    REQUIRE(gwi_meet(&job, 1, cannot_prepare, NULL, &got, &fd) == GW_ENOMEM);
    REQUIRE(strstr(gw_last_error(), "no room today") != NULL);
}

static void a_prepare_that_fails_fails_everywhere(void **state)
{
    (void)state;
    run_processes(4, meet_in_vain);
}

GWI_TESTS(cmocka_unit_test(all_who_come_get_their_rank_and_the_same_file),
          cmocka_unit_test(ranks_by_order_of_arrival_are_all_different),
          cmocka_unit_test(many_meetings_in_a_row_do_not_mix),
          cmocka_unit_test(whoever_disagrees_is_refused_and_the_others_say_so),
          cmocka_unit_test(a_death_while_joining_ends_the_meeting_for_all),
          cmocka_unit_test(a_prepare_that_fails_fails_everywhere))
