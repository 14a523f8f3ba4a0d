/* host_test.c - seats, fates, the barrier, and processes told from later ones. */
#include "fabric/host/host.h"
#include "base/error.h"
#include "fabric/host/process.h"
#include "fabric/processes_test.h"
#include "fabric/ranks.h"

#include <fcntl.h>

static gwi_host *join(const struct processes *all, int rank, int node_size)
{
    gwi_job job = job_of(all, rank, node_size);
    gwi_host *host;

    REQUIRE(gwi_host_open(&job, 1 << 20, &host) == 0);
    return host;
}

static void wait_for_barrier(gwi_host *host)
{
    gwi_host_barrier_arrive(host);
    while (!gwi_host_barrier_done(host))
        usleep(100);
}

static void look_at_the_seats(const struct processes *all, int rank)
{
    gwi_host *host = join(all, rank, 2);
    gwi_place place = host->place;

    REQUIRE(place.rank == rank && place.size == 5);
    REQUIRE(place.nodes == 3 && place.node == rank / 2 && place.local_rank == rank % 2);
    REQUIRE(place.local_size == (rank == 4 ? 1 : 2));
    REQUIRE(host->seats[rank].pid == getpid());
    for (int other = 0; other < 5; other++)
        REQUIRE(gwi_process_start(host->seats[other].pid) == host->seats[other].start);
    REQUIRE(host->header->private_offset % GWI_EXTENT_ALIGN == 0);
    REQUIRE(host->header->private_offset >= host->header->file_bytes);
    wait_for_barrier(host);
    REQUIRE(gwi_host_check(host) == 0);
    wait_for_barrier(host);
    gwi_host_close(host);
}

static void everybody_has_a_seat_and_a_place(void **state)
{
    (void)state;
    run_processes(5, look_at_the_seats);
}

static void pass_barriers(const struct processes *all, int rank)
{
    gwi_host *host = join(all, rank, all->n);

    for (uint64_t i = 1; i <= 200; i++) {
        wait_for_barrier(host);
        for (int other = 0; other < all->n; other++)
            REQUIRE(host->seats[other].barriers >= i);
    }
    gwi_host_close(host);
}

static void nobody_passes_a_barrier_before_all_are_there(void **state)
{
    (void)state;
    run_processes(4, pass_barriers);
}

static void miss_a_barrier(const struct processes *all, int rank)
{
    gwi_host *host = join(all, rank, all->n);
    int missing[4];

    wait_for_barrier(host);
    if (rank != 2) {
        gwi_host_barrier_arrive(host);
        gwi_host_barrier_arrive(host); /* counts once */
        while (gwi_host_barrier_missing(host, missing, 4) > 1)
            usleep(100);
        REQUIRE(!gwi_host_barrier_done(host));
        REQUIRE(missing[0] == 2);
        reach(all, 0);
        while (!gwi_host_barrier_done(host))
            usleep(100);
    } else {
        await(all, 0, 3);
        wait_for_barrier(host);
    }
    gwi_host_close(host);
}

static void a_barrier_knows_who_is_missing(void **state)
{
    (void)state;
    run_processes(4, miss_a_barrier);
}

static void one_leaves_one_dies(const struct processes *all, int rank)
{
    gwi_host *host = join(all, rank, all->n);

    wait_for_barrier(host);
    if (rank == 1)
        raise(SIGKILL);
    if (rank == 2) {
        gwi_host_close(host);
        return;
    }
    int64_t start = gwi_now_ns();
    while (gwi_host_check(host) == 0) {
        REQUIRE(gwi_now_ns() - start < SOON_NS);
        usleep(1000);
    }
    REQUIRE(strncmp(gw_last_error(), "rank 1 ", 7) == 0);
    REQUIRE(gwi_host_fate(host, 1) == GWI_DEAD);
    while (gwi_host_fate(host, 2) == GWI_HERE)
        usleep(1000);
    REQUIRE(gwi_host_fate(host, 2) == GWI_LEFT);
    gwi_host_close(host);
}

static void a_death_is_told_from_a_departure(void **state)
{
    (void)state;
    expect_death(4, one_leaves_one_dies, 1);
}

static void wait_for_the_end_of(const struct processes *all, int rank)
{
    char path[64], state = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)all->pids[rank]);
    while (state != 'Z') { /* nobody takes it in before we have ended */
        FILE *stat = fopen(path, "r");
        REQUIRE(stat != NULL && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
        fclose(stat);
        usleep(1000);
    }
}

/* Rank 2 is killed; rank 1 finds that, and is killed as well; rank 3 looks when both have ended. */
static void die_one_after_the_other(const struct processes *all, int rank)
{
    gwi_host *host = join(all, rank, all->n);

    wait_for_barrier(host);
    if (rank == 0) {
        while (gwi_host_fate(host, 1) != GWI_DEAD)
            usleep(1000);
    } else if (rank == 3) {
        for (int dead = 1; dead <= 2; dead++)
            wait_for_the_end_of(all, dead);
        REQUIRE(gwi_host_check(host) == GW_EPEER);
        REQUIRE(strncmp(gw_last_error(), "rank 2 ", 7) == 0);
    } else {
        while (rank == 1 && gwi_host_check(host) == 0)
            usleep(1000);
        raise(SIGKILL);
    }
    gwi_host_close(host);
}

static void who_died_first_is_named_also_when_others_have_died_of_it(void **state)
{
    struct processes all;

    (void)state;
    start_processes(&all, 4, die_one_after_the_other);
    wait_for_processes(&all);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(all.statuses[rank], rank == 1 || rank == 2 ? SIGKILL : 0);
}

static void keep_the_crowd_right(const struct processes *all, int rank)
{
    gwi_host *host = join(all, rank, all->n);

    wait_for_barrier(host);
    if (rank == 1)
        raise(SIGKILL);
    while (gwi_host_check(host) == 0)
        usleep(1000);
    /* Rank 0 stays until the count is right, rank 2 until rank 0 has left. */
    if (rank == 0)
        while (atomic_load(&host->header->crowd.awake) != 2)
            usleep(1000);
    else
        while (gwi_host_fate(host, 0) == GWI_HERE)
            usleep(1000);
    gwi_host_close(host);
}

static void a_dead_rank_is_taken_out_of_the_crowd_once(void **state)
{
    (void)state;
    expect_death(3, keep_the_crowd_right, 1);
}

static void fork_a_child(const struct processes *all, int rank)
{
    gwi_host *host = join(all, rank, all->n);
    int fd = host->fd, status;

    wait_for_barrier(host);
    pid_t child = fork();
    if (child == 0)
        _exit(fcntl(fd, F_GETFD) == -1 ? 7 : 1);
    waitpid(child, &status, 0);
    REQUIRE(WEXITSTATUS(status) == 7);
    wait_for_barrier(host);
    REQUIRE(gwi_host_check(host) == 0);
    wait_for_barrier(host);
    gwi_host_close(host);
}

static void a_forked_child_holds_no_descriptor_of_the_job(void **state)
{
    (void)state;
    run_processes(2, fork_a_child);
}

static void a_process_is_told_from_a_later_one_by_its_start(void **state)
{
    (void)state;
    uint64_t start = gwi_process_start(getpid());
    int fd = -1;

    assert_true(start > 0);
    assert_int_equal(gwi_process_open(getpid(), start, &fd), 0);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(gwi_process_open(getpid(), start + 1, &fd), 1);
    assert_int_equal(gwi_process_open(0x3fffffff, start, &fd), 1);
}

static void ranks_are_listed_in_words(void **state)
{
    (void)state;
    int ranks[GWI_RANKS_SHOWN] = {2, 5, 7, 8, 9, 10, 11, 12};
    char text[256];

    assert_string_equal(gwi_ranks_text(ranks, 1, text, sizeof text), "rank 2");
    assert_string_equal(gwi_ranks_text(ranks, 2, text, sizeof text), "rank 2 and rank 5");
    assert_string_equal(gwi_ranks_text(ranks, 3, text, sizeof text), "rank 2, rank 5 and rank 7");
    assert_non_null(strstr(gwi_ranks_text(ranks, 20, text, sizeof text), "rank 12 and 12 more"));
}

GWI_TESTS(cmocka_unit_test(everybody_has_a_seat_and_a_place),
          cmocka_unit_test(nobody_passes_a_barrier_before_all_are_there),
          cmocka_unit_test(a_barrier_knows_who_is_missing),
          cmocka_unit_test(a_death_is_told_from_a_departure),
          cmocka_unit_test(who_died_first_is_named_also_when_others_have_died_of_it),
          cmocka_unit_test(a_dead_rank_is_taken_out_of_the_crowd_once),
          cmocka_unit_test(a_forked_child_holds_no_descriptor_of_the_job),
          cmocka_unit_test(a_process_is_told_from_a_later_one_by_its_start),
          cmocka_unit_test(ranks_are_listed_in_words))
