/* meet_test.c - processes find each other, agree or are refused, and deaths end it. */
#include "fabric/host/meet.h"
#include "base/error.h"
#include "base/hash.h"
#include "fabric/host/hello.h"
#include "fabric/processes_test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

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

    job->timeout_ns = 2 * GWI_SECOND;
    if (wrong) { /* it shall not be the one that gathers */
        await(all, 0, 2);
        usleep(200 * 1000);
    }
    reach(all, 0);
    int err = gwi_meet(job, 1, make_list, NULL, &got, &fd);
    REQUIRE(err == (wrong ? GW_EDISAGREE : GW_ETIMEOUT));
    REQUIRE(strstr(gw_last_error(), "rank 2") != NULL);
    REQUIRE(strstr(gw_last_error(), word) != NULL);
    REQUIRE(got == -1 && fd == -1);
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

    job.timeout_ns = 2 * GWI_SECOND;
    if (rank == 2) {
        await(all, 0, 2);
        usleep(200 * 1000);
    }
    reach(all, 0);
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
    reach(all, 0);
    int err = gwi_meet(&job, 1, make_list, NULL, &got, &fd);
    REQUIRE(err == GW_EPEER);
    REQUIRE(strstr(gw_last_error(), "rank ") != NULL);
}

static void expect_others_to_notice(int victim)
{
    struct processes all;
    int64_t start;

    start_processes(&all, 3, lose_one);
    await(&all, 0, 3);
    sleep(1); /* they have said who they are, on all but a machine that stands still */
    start = gwi_now_ns();
    kill(all.pids[victim], SIGKILL);
    wait_for_processes(&all);
    assert_true(gwi_now_ns() - start < SOON_NS);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(all.statuses[rank], rank == victim ? SIGKILL : 0);
}

static void a_death_while_joining_ends_the_meeting_for_all(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) /* one of them gathers */
        expect_others_to_notice(victim);
}

/* Strangers know where a job meets, but not what to say there. */

static socklen_t meeting_point(const struct processes *all, struct sockaddr_un *ret_name)
{
    size_t n = strlen(all->job);

    *ret_name = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(ret_name->sun_path + 1, sizeof ret_name->sun_path - 1,
                          "godwit-%u-%016llx%016llx", (unsigned)getuid(),
                          (unsigned long long)gwi_hash_bytes(all->job, n, 1),
                          (unsigned long long)gwi_hash_bytes(all->job, n, 2));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* Connect as soon as somebody listens. */
static int connect_to(const struct processes *all)
{
    struct sockaddr_un name;
    socklen_t n = meeting_point(all, &name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    while (connect(fd, (struct sockaddr *)&name, n) != 0)
        usleep(1000);
    return fd;
}

/* Say something and be refused with `word`. */
static void talk(const struct processes *all, const void *packet, size_t n_bytes, const char *word)
{
    gwi_answer answer = {.status = 0};
    int fd = connect_to(all);

    REQUIRE(send(fd, packet, n_bytes, MSG_NOSIGNAL) == (ssize_t)n_bytes);
    REQUIRE(recv(fd, &answer, sizeof answer, 0) == sizeof answer);
    REQUIRE(answer.status == GW_EDISAGREE && strstr(answer.text, word) != NULL);
    close(fd);
}

static void talk_nonsense_then_meet(const struct processes *all, int rank)
{
    gwi_job job = job_of(all, rank, all->n);

    if (rank == 2) {
        char noise[3000] = "noise";
        gwi_hello hello = gwi_hello_of(&job, 1);
        close(connect_to(all));
        talk(all, noise, 1, "another version");
        talk(all, noise, sizeof hello, "another version");
        talk(all, noise, sizeof noise, "another version");
        hello.rank = 99;
        talk(all, &hello, sizeof hello, "rank 99");
        hello.rank = INT32_MIN;
        talk(all, &hello, sizeof hello, "ranks go from 0 to 2");
    }
    meet_with_rank(all, rank);
}

static void strangers_who_talk_nonsense_are_refused_and_the_job_meets(void **state)
{
    (void)state;
    run_processes(3, talk_nonsense_then_meet);
}

/* Gather by hand and answer with something odd. */
static void answer_oddly(const struct processes *all, const gwi_answer *answer, size_t n_bytes)
{
    struct sockaddr_un name;
    socklen_t n = meeting_point(all, &name);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd;
    gwi_hello hello;

    REQUIRE(bind(listener, (struct sockaddr *)&name, n) == 0 && listen(listener, 8) == 0);
    while ((fd = accept(listener, NULL, NULL)) >= 0 && recv(fd, &hello, sizeof hello, 0) <= 0)
        close(fd); /* that was only a look whether we listen */
    REQUIRE(send(fd, answer, n_bytes, MSG_NOSIGNAL) == (ssize_t)n_bytes);
    REQUIRE(recv(fd, &hello, sizeof hello, 0) == 0); /* it goes away */
}

static void meet_an_odd_gatherer(const struct processes *all, int rank, const gwi_answer *answer,
                                 size_t n_bytes)
{
    gwi_job job = job_of(all, rank, all->n);
    int got = -1, fd = -1;

    if (rank == 0) {
        answer_oddly(all, answer, n_bytes);
        return;
    }
    close(connect_to(all));
    REQUIRE(gwi_meet(&job, 1, make_list, NULL, &got, &fd) == GW_EBROKEN);
    REQUIRE(strstr(gw_last_error(), "makes no sense") != NULL && got == -1 && fd == -1);
}

static void odd_status(const struct processes *all, int rank)
{
    meet_an_odd_gatherer(all, rank, &(gwi_answer){.status = 7}, sizeof(gwi_answer));
}

static void odd_length(const struct processes *all, int rank)
{
    meet_an_odd_gatherer(all, rank, &(gwi_answer){.status = GWI_NOTED}, 20);
}

static void welcome_without_a_file(const struct processes *all, int rank)
{
    meet_an_odd_gatherer(all, rank, &(gwi_answer){.status = GWI_WELCOME, .rank = 1},
                         sizeof(gwi_answer));
}

static void an_answer_that_makes_no_sense_ends_the_joining(void **state)
{
    (void)state;
    run_processes(2, odd_status);
    run_processes(2, odd_length);
    run_processes(2, welcome_without_a_file);
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
          cmocka_unit_test(strangers_who_talk_nonsense_are_refused_and_the_job_meets),
          cmocka_unit_test(an_answer_that_makes_no_sense_ends_the_joining),
          cmocka_unit_test(a_prepare_that_fails_fails_everywhere))
