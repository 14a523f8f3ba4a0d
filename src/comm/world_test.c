/* world_test.c - joining, messages and barriers as a user of the C API sees them. */
#include <godwit/world.h>

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

static void say(gw_world *world, int peer, const char *text)
{
    REQUIRE(gw_world_send(world, peer, text, strlen(text)) == 0);
}

static void hear(gw_world *world, int peer, const char *text)
{
    char buffer[256];
    size_t n = 0;

    REQUIRE(gw_world_recv(world, peer, buffer, sizeof buffer, &n) == 0);
    REQUIRE(n == strlen(text) && memcmp(buffer, text, n) == 0);
}

static int saw(const char *words)
{
    return strstr(gw_last_error(), words) != NULL;
}

static void talk(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_world_info info = {.size_bytes = sizeof info};
    int next = (rank + 1) % all->n, before = (rank + all->n - 1) % all->n;

    REQUIRE(gw_world_get_info(world, &info) == 0);
    REQUIRE(info.rank == rank && info.size == all->n && info.nodes == 1 &&
            strcmp(info.fabric, "shm") == 0);
    for (int i = 0; i < 100; i++) {
        say(world, next, "one");
        say(world, next, "");
        say(world, next, "three");
        hear(world, before, "one");
        hear(world, before, "");
        hear(world, before, "three");
        REQUIRE(gw_world_barrier(world) == 0);
    }
    gw_world_close(world);
}

static void messages_go_around_the_ring(void **state)
{
    (void)state;
    run_processes(1, talk);
    run_processes(2, talk);
    run_processes(4, talk);
    run_processes(16, talk);
}

static void flood(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    size_t n = 5 << 20, got = 0;
    unsigned char *bytes = malloc(n), *back = malloc(n);

    for (int peer = 0; peer < all->n; peer++) {
        memset(bytes, 10 * rank + peer, n);
        REQUIRE(gw_world_send(world, peer, bytes, n) == 0);
        say(world, peer, "after");
    }
    for (int peer = all->n - 1; peer >= 0; peer--) {
        REQUIRE(gw_world_peek(world, peer, &got) == 0 && got == n);
        REQUIRE(gw_world_recv(world, peer, back, n, &got) == 0 && got == n);
        for (size_t i = 0; i < n; i += 997)
            REQUIRE(back[i] == 10 * peer + rank);
        hear(world, peer, "after");
    }
    free(bytes);
    free(back);
    gw_world_close(world);
}

static void all_send_all_before_any_receives(void **state)
{
    (void)state;
    run_processes(2, flood);
    run_processes(4, flood);
}

static void peek_and_refuse(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    char small[4];
    size_t n = 77;

    if (rank == 0) {
        say(world, 1, "a long message");
        say(world, 1, "short");
    } else {
        REQUIRE(gw_world_peek(world, 0, &n) == 0 && n == 14);
        REQUIRE(gw_world_peek(world, 0, &n) == 0 && n == 14);
        n = 77;
        REQUIRE(gw_world_recv(world, 0, small, sizeof small, &n) == GW_EINVAL);
        REQUIRE(saw("14 bytes") && saw("holds 4") && n == 77);
        hear(world, 0, "a long message");
        hear(world, 0, "short");
    }
    REQUIRE(gw_world_barrier(world) == 0);
    gw_world_close(world);
}

static void a_message_too_long_for_the_buffer_waits(void **state)
{
    (void)state;
    run_processes(2, peek_and_refuse);
}

static void ask_wrongly(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    size_t n = 0;

    REQUIRE(gw_world_send(world, 2, "x", 1) == GW_ERANGE && saw("peer is 2"));
    REQUIRE(gw_world_send(world, -1, "x", 1) == GW_ERANGE && saw("peer is -1"));
    REQUIRE(gw_world_recv(world, 99, &n, sizeof n, &n) == GW_ERANGE);
    REQUIRE(gw_world_peek(world, -7, &n) == GW_ERANGE);
    REQUIRE(gw_world_barrier(world) == 0);
    gw_world_close(world);
}

static void ranks_that_do_not_exist_are_refused(void **state)
{
    (void)state;
    run_processes(2, ask_wrongly);
}

static void leave_early(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    size_t n;
    char byte;

    if (rank == 1) {
        say(world, 0, "farewell");
        gw_world_close(world);
        return;
    }
    if (rank == 0)
        hear(world, 1, "farewell");
    int64_t start = gwi_now_ns();
    REQUIRE(gw_world_recv(world, 1, &byte, 1, &n) == GW_EPEER && saw("rank 1 has left"));
    REQUIRE(gw_world_send(world, 1, "x", 1) == GW_EPEER && saw("rank 1 has left"));
    REQUIRE(gw_world_barrier(world) == GW_EPEER && saw("rank 1 has left"));
    REQUIRE(gwi_now_ns() - start < SOON_NS);
    gather(all, 0, 2);
    gw_world_close(world);
}

static void what_was_sent_before_leaving_arrives_and_then_waits_fail(void **state)
{
    (void)state;
    run_processes(3, leave_early);
}

static void die(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    size_t n;
    char byte;

    REQUIRE(gw_world_barrier(world) == 0);
    if (rank == 1) {
        usleep(200 * 1000);
        raise(SIGKILL);
    }
    int64_t start = gwi_now_ns();
    if (rank == 0)
        REQUIRE(gw_world_recv(world, 1, &byte, 1, &n) == GW_EPEER);
    else if (rank == 2)
        REQUIRE(gw_world_barrier(world) == GW_EPEER);
    else /* a wait for somebody else ends too */
        REQUIRE(gw_world_recv(world, 2, &byte, 1, &n) == GW_EPEER);
    REQUIRE(strncmp(gw_last_error(), "rank 1 ", 7) == 0);
    REQUIRE(gwi_now_ns() - start < SOON_NS);
    /* Stay until all have seen it: a rank that leaves is another matter. */
    gather(all, 0, all->n - 1);
    gw_world_close(world);
}

static void a_death_ends_every_wait_with_the_rank_named(void **state)
{
    (void)state;
    expect_death(4, die, 1);
}

static void look_away(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);

    REQUIRE(gw_world_barrier(world) == 0);
    reach(all, 0);
    if (rank == 1)
        raise(SIGKILL);
    await(all, 0, 3);
    usleep(1000 * 1000); /* nobody is in a call meanwhile */
    int err = gw_world_send(world, 2 - rank, "x", 1);
    REQUIRE(err == GW_EPEER && strncmp(gw_last_error(), "rank 1 ", 7) == 0);
    gather(all, 1, 2);
    gw_world_close(world);
}

static void the_next_call_after_a_death_fails_even_if_it_need_not_wait(void **state)
{
    (void)state;
    expect_death(3, look_away, 1);
}

/* Four met, and three of them are to meet again, of which one ends before it comes. */
static void meet_again(const struct processes *all, int rank, int ends_by_dying)
{
    gw_world *outer = join(all, rank), *inner = NULL;
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    char name[80];

    snprintf(name, sizeof name, "%s-again", all->job);
    opt.rank = rank;
    opt.size = 3;
    opt.job = name;
    opt.within = outer;
    if (rank == 1) { /* it never comes to the second meeting */
        usleep(150 * 1000);
        if (ends_by_dying)
            raise(SIGKILL);
        gw_world_close(outer);
        return;
    }
    int64_t start = gwi_now_ns();
    if (rank < 3) {
        REQUIRE(gw_world_join(&opt, &inner) == GW_EPEER && inner == NULL);
        REQUIRE(saw("rank 1 ") && saw(ends_by_dying ? "died" : "has left") && saw("joining a job"));
        REQUIRE(gwi_now_ns() - start < SOON_NS);
    }
    gather(all, 0, all->n - 1); /* all have seen it */
    gw_world_close(outer);
}

static void meet_again_and_lose(const struct processes *all, int rank)
{
    meet_again(all, rank, 1);
}

static void meet_again_and_miss(const struct processes *all, int rank)
{
    meet_again(all, rank, 0);
}

static void meet_again_all(const struct processes *all, int rank)
{
    gw_world *outer = join(all, rank), *inner = NULL;
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    char name[80];

    snprintf(name, sizeof name, "%s-again", all->job);
    opt.rank = rank;
    opt.size = 3;
    opt.job = name;
    opt.node_size = 1;
    opt.within = outer;
    if (rank < 3) { /* while the fourth waits for them */
        REQUIRE(gw_world_join(&opt, &inner) == 0);
        say(inner, (rank + 1) % 3, "inner");
        say(outer, 3, "outer");
        hear(inner, (rank + 2) % 3, "inner");
        REQUIRE(gw_world_barrier(inner) == 0);
        gw_world_close(inner);
    } else {
        for (int peer = 0; peer < 3; peer++)
            hear(outer, peer, "outer");
    }
    REQUIRE(gw_world_barrier(outer) == 0);
    gw_world_close(outer);
}

static void some_of_a_world_meet_again_as_one_of_their_own(void **state)
{
    (void)state;
    run_processes(4, meet_again_all);
}

static void joining_within_a_world_ends_when_one_of_it_dies_or_leaves(void **state)
{
    (void)state;
    expect_death(4, meet_again_and_lose, 1);
    run_processes(4, meet_again_and_miss);
}

/* A child of ours starts one that joins, and ends before anybody else comes. */
static void join_with_a_parent_that_ends(const struct processes *all, int rank)
{
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    gw_world *world = NULL;
    int report[2];
    char word = 0;

    REQUIRE(pipe(report) == 0);
    pid_t parent = fork();
    if (parent == 0 && fork() == 0) {
        opt.rank = rank;
        opt.size = 2;
        opt.job = all->job;
        opt.timeout_s = 60;
        opt.with_parent = 1;
        int err = gw_world_join(&opt, &world);
        word = err == GW_EPEER && saw("ended while this process was joining") ? 'y' : 'n';
        REQUIRE(write(report[1], &word, 1) == 1);
        _exit(0);
    }
    if (parent == 0) {
        usleep(150 * 1000);
        _exit(0);
    }
    REQUIRE(read(report[0], &word, 1) == 1 && word == 'y');
    REQUIRE(waitpid(parent, NULL, 0) == parent);
}

static void joining_with_a_parent_ends_when_the_parent_does(void **state)
{
    (void)state;
    run_processes(1, join_with_a_parent_that_ends);
}

static void come_late(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    char byte;
    size_t n = 77;

    world->job.timeout_ns = GWI_SECOND / 2;
    if (rank == 2) {
        await(all, 0, 2);
    } else {
        REQUIRE(gw_world_recv(world, 2, &byte, 1, &n) == GW_ETIMEOUT && saw("rank 2") && n == 77);
        REQUIRE(gw_world_barrier(world) == GW_ETIMEOUT && saw("rank 2 did not come"));
        reach(all, 0);
    }
    int err;
    while ((err = gw_world_barrier(world)) == GW_ETIMEOUT)
        continue;
    REQUIRE(err == 0);
    gw_world_close(world);
}

static void a_wait_that_takes_too_long_names_the_missing_and_can_go_on(void **state)
{
    (void)state;
    run_processes(3, come_late);
}

static void try_again(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    enum { TIMED_OUT, COMPLETE, AGAIN };

    if (rank == 0) {
        world->job.timeout_ns = 300 * GWI_MS;
        REQUIRE(gw_world_barrier(world) == GW_ETIMEOUT);
        world->job.timeout_ns = 60 * GWI_SECOND;
        reach(all, TIMED_OUT);
        await(all, COMPLETE, 1);
        REQUIRE(gw_world_barrier(world) == 0);
    } else {
        await(all, TIMED_OUT, 1);
        REQUIRE(gw_world_barrier(world) == 0);
        reach(all, COMPLETE);
        await(all, AGAIN, 1);
        usleep(100 * 1000);
    }
    /* Both are at the same barrier again. */
    int64_t start = gwi_now_ns();
    reach(all, AGAIN);
    REQUIRE(gw_world_barrier(world) == 0);
    REQUIRE(rank != 0 || gwi_now_ns() - start > 20 * GWI_MS);
    gw_world_close(world);
}

static void a_barrier_tried_again_is_the_same_barrier(void **state)
{
    (void)state;
    run_processes(2, try_again);
}

static void wait_in_a_circle(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    size_t n = 8 << 20, got;
    unsigned char *bytes = calloc(1, n);

    if (rank == 0) {
        hear(world, 1, "go"); /* while rank 2 has much to say to us */
        REQUIRE(gw_world_recv(world, 2, bytes, n, &got) == 0 && got == n);
    } else if (rank == 1) {
        hear(world, 2, "done");
        say(world, 0, "go");
    } else {
        REQUIRE(gw_world_send(world, 0, bytes, n) == 0);
        say(world, 1, "done");
    }
    REQUIRE(gw_world_barrier(world) == 0);
    free(bytes);
    gw_world_close(world);
}

static void who_receives_from_one_takes_in_what_others_send(void **state)
{
    (void)state;
    run_processes(3, wait_in_a_circle);
}

static _Atomic int wants_to_stop;

static int stop(void)
{
    return wants_to_stop;
}

static void interrupt_a_send(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    size_t n = 8 << 20, got = 0;
    unsigned char *bytes = calloc(1, n);

    if (rank == 0) {
        gw_set_interrupt_check(stop);
        wants_to_stop = 1;
        REQUIRE(gw_world_send(world, 1, bytes, n) == GW_EINTR); /* rank 1 takes nothing yet */
        wants_to_stop = 0;
        reach(all, 0);
        REQUIRE(gw_world_barrier(world) == 0);
        say(world, 1, "instead");
    } else {
        /* Not in a call meanwhile, so that the ring stays full. */
        await(all, 0, 1);
        REQUIRE(gw_world_barrier(world) == 0);
        REQUIRE(gw_world_recv(world, 0, bytes, n, &got) == 0);
        REQUIRE(got == 7 && memcmp(bytes, "instead", 7) == 0);
    }
    REQUIRE(gw_world_barrier(world) == 0);
    free(bytes);
    gw_world_close(world);
}

static void an_interrupted_send_leaves_no_half_message(void **state)
{
    (void)state;
    run_processes(2, interrupt_a_send);
}

static void interrupt_a_recv(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    size_t n = 3 << 20, got = 0;
    unsigned char *bytes = malloc(n);

    if (rank == 0) {
        memset(bytes, 5, n);
        REQUIRE(gw_world_barrier(world) == 0);
        await(all, 0, 1);
        REQUIRE(gw_world_send(world, 1, bytes, n) == 0);
    } else {
        REQUIRE(gw_world_barrier(world) == 0);
        gw_set_interrupt_check(stop);
        wants_to_stop = 1;
        REQUIRE(gw_world_recv(world, 0, bytes, n, &got) == GW_EINTR);
        wants_to_stop = 0;
        reach(all, 0);
        REQUIRE(gw_world_recv(world, 0, bytes, n, &got) == 0 && got == n);
        for (size_t i = 0; i < n; i++)
            REQUIRE(bytes[i] == 5);
    }
    free(bytes);
    REQUIRE(gw_world_barrier(world) == 0);
    gw_world_close(world);
}

static void an_interrupted_recv_loses_nothing(void **state)
{
    (void)state;
    run_processes(2, interrupt_a_recv);
}

static void have_children(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    int status;

    REQUIRE(gw_world_barrier(world) == 0);
    pid_t child = fork();
    if (child == 0) {
        gw_world_info info = {.size_bytes = sizeof info};
        size_t n;
        REQUIRE(gw_world_get_info(world, &info) == 0 && info.rank == rank);
        REQUIRE(gw_world_send(world, 0, "x", 1) == GW_ESTATE && saw("forked from rank"));
        REQUIRE(gw_world_recv(world, 0, &n, sizeof n, &n) == GW_ESTATE);
        REQUIRE(gw_world_barrier(world) == GW_ESTATE);
        gw_world_close(world);
        _exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    say(world, 1 - rank, "still here");
    hear(world, 1 - rank, "still here");
    REQUIRE(gw_world_barrier(world) == 0);
    gw_world_close(world);
}

static void a_forked_child_is_refused_and_harms_nobody(void **state)
{
    (void)state;
    run_processes(2, have_children);
}

/* Two threads of each process use the world at once. */
struct talker {
    gw_world *world;
    int peer;
};

enum { N_TALKS = 300 };

static void *send_many(void *arg)
{
    struct talker *t = arg;
    static unsigned char bytes[100000];

    for (int i = 0; i < N_TALKS; i++)
        REQUIRE(gw_world_send(t->world, t->peer, bytes, (size_t)i * 300) == 0);
    return NULL;
}

static void talk_in_threads(const struct processes *all, int rank)
{
    struct talker t = {join(all, rank), 1 - rank};
    unsigned char *bytes = malloc(100000);
    gwi_thread thread;

    REQUIRE(gwi_thread_start("sender", send_many, &t, &thread) == 0);
    for (int i = 0; i < N_TALKS; i++) {
        size_t n = 0;
        REQUIRE(gw_world_recv(t.world, t.peer, bytes, 100000, &n) == 0);
        REQUIRE(n == (size_t)i * 300);
    }
    gwi_thread_join(thread);
    free(bytes);
    REQUIRE(gw_world_barrier(t.world) == 0);
    gw_world_close(t.world);
}

static void threads_send_and_receive_at_once(void **state)
{
    (void)state;
    run_processes(2, talk_in_threads);
}

static void the_plan_tells_what_joining_would_do(void **state)
{
    (void)state;
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    gw_world_info info = {.size_bytes = sizeof info};
    char reason[256];

    opt.size = 5;
    opt.rank = 4;
    opt.node_size = 2;
    assert_int_equal(gw_world_plan(&opt, &info, reason, sizeof reason), 0);
    assert_int_equal(info.nodes, 3);
    assert_int_equal(info.node, 2);
    assert_int_equal(info.local_size, 1);
    assert_string_equal(info.fabric, "shm");
    assert_true(strlen(reason) > 10);
}

GWI_TESTS(cmocka_unit_test(messages_go_around_the_ring),
          cmocka_unit_test(all_send_all_before_any_receives),
          cmocka_unit_test(a_message_too_long_for_the_buffer_waits),
          cmocka_unit_test(ranks_that_do_not_exist_are_refused),
          cmocka_unit_test(what_was_sent_before_leaving_arrives_and_then_waits_fail),
          cmocka_unit_test(a_death_ends_every_wait_with_the_rank_named),
          cmocka_unit_test(the_next_call_after_a_death_fails_even_if_it_need_not_wait),
          cmocka_unit_test(some_of_a_world_meet_again_as_one_of_their_own),
          cmocka_unit_test(joining_within_a_world_ends_when_one_of_it_dies_or_leaves),
          cmocka_unit_test(joining_with_a_parent_ends_when_the_parent_does),
          cmocka_unit_test(a_wait_that_takes_too_long_names_the_missing_and_can_go_on),
          cmocka_unit_test(a_barrier_tried_again_is_the_same_barrier),
          cmocka_unit_test(who_receives_from_one_takes_in_what_others_send),
          cmocka_unit_test(an_interrupted_send_leaves_no_half_message),
          cmocka_unit_test(an_interrupted_recv_loses_nothing),
          cmocka_unit_test(a_forked_child_is_refused_and_harms_nobody),
          cmocka_unit_test(threads_send_and_receive_at_once),
          cmocka_unit_test(the_plan_tells_what_joining_would_do))
