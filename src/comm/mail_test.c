/* mail_test.c - messages with tags between processes, and by the thousand in a simulation. */
#include "comm/mail.h"
#include "base/random.h"
#include "base/thread.h"
#include "fabric/processes_test.h"
#include "fabric/sim/sim.h"

enum { CONTEXT = 77 };

/* A communicator of the whole world, without what collectives need. */
struct office {
    gw_world *world;
    gw_comm comm;
    int ranks[MAX_PROCESSES];
};

static void set_comm(struct office *o, int rank, int size)
{
    for (int i = 0; i < size; i++)
        o->ranks[i] = i;
    o->comm = (gw_comm){
        .world = o->world, .rank = rank, .size = size, .ranks = o->ranks, .context = CONTEXT};
}

static void join(struct office *o, const struct processes *all, int rank)
{
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;

    opt.rank = rank;
    opt.size = all->n;
    opt.job = all->job;
    opt.timeout_s = 60;
    REQUIRE(gw_world_join(&opt, &o->world) == 0);
    set_comm(o, rank, all->n);
}

static void leave(struct office *o)
{
    REQUIRE(gw_world_barrier(o->world) == 0);
    gw_world_close(o->world);
}

static int saw(const char *words)
{
    return strstr(gw_last_error(), words) != NULL;
}

static gw_request *isend(struct office *o, const void *bytes, size_t n, int dest, int64_t tag)
{
    gw_request *r = NULL;

    REQUIRE(gw_comm_isend(&o->comm, bytes, n, GW_U8, dest, tag, 0, NULL, &r) == 0 && r != NULL);
    return r;
}

static gw_request *irecv(struct office *o, void *bytes, size_t n, int source, int64_t tag)
{
    gw_request *r = NULL;

    REQUIRE(gw_comm_irecv(&o->comm, bytes, n, GW_U8, source, tag, &r) == 0 && r != NULL);
    return r;
}

static gw_status end(gw_request *r)
{
    gw_status status = {.source = -7};

    REQUIRE(gw_request_wait(&r, &status) == 0 && r == NULL);
    return status;
}

static void say(struct office *o, const char *text, int dest, int64_t tag)
{
    end(isend(o, text, strlen(text), dest, tag));
}

static gw_status hear(struct office *o, const char *text, int source, int64_t tag)
{
    char buffer[256] = "";
    gw_status status = end(irecv(o, buffer, strlen(text), source, tag));

    REQUIRE(strcmp(buffer, text) == 0);
    return status;
}

/* order and matching */

static void sort_mail(const struct processes *all, int rank)
{
    struct office o;

    join(&o, all, rank);
    int next = (rank + 1) % all->n, before = (rank + all->n - 1) % all->n;
    for (int round = 0; round < 50; round++) {
        gw_status status;

        say(&o, "first", next, 1);
        say(&o, "library", next, INT64_C(1) << 31);
        say(&o, "second", next, 1);
        say(&o, "other", next, 2);
        say(&o, "", next, 3);
        status = hear(&o, "other", before, 2);
        REQUIRE(status.tag == 2 && status.source == before && status.n == 5);
        REQUIRE(status.number == (uint64_t)round * 5 + 3);
        status = hear(&o, "first", before, GW_ANY_TAG);
        REQUIRE(status.tag == 1 && status.number == (uint64_t)round * 5);
        hear(&o, "second", GW_ANY_SOURCE, GW_ANY_TAG);
        status = hear(&o, "", GW_ANY_SOURCE, GW_ANY_TAG);
        REQUIRE(status.tag == 3 && status.n == 0 && status.source == before);
        hear(&o, "library", GW_ANY_SOURCE, INT64_C(1) << 31);
    }
    leave(&o);
}

static void messages_are_sorted_by_source_and_tag_and_stay_in_order(void **state)
{
    (void)state;
    run_processes(1, sort_mail); /* to oneself */
    run_processes(2, sort_mail);
    run_processes(5, sort_mail);
}

static void post_first(const struct processes *all, int rank)
{
    struct office o;
    gw_request *r[200];
    int got[200];
    int64_t number[3] = {1, 2, 3};
    uint64_t n;

    join(&o, all, rank);
    if (rank == 0) {
        for (int i = 0; i < 200; i++)
            r[i] = irecv(&o, &got[i], sizeof got[i], i % 2 ? 1 : GW_ANY_SOURCE, 5);
        REQUIRE(gw_world_barrier(o.world) == 0);
        for (int i = 199; i >= 0; i--)
            end(r[i]);
        for (int i = 0; i < 200; i++)
            REQUIRE(got[i] == i);
        REQUIRE(gw_comm_irecv(&o.comm, number, 3, GW_I64, 1, 6, &r[0]) == 0);
        gw_status status = end(r[0]);
        REQUIRE(number[0] == 4 && number[2] == 6);
        REQUIRE(status.flags == 0xfeed && status.n == 3 && status.number == 200);
    } else {
        REQUIRE(gw_world_barrier(o.world) == 0);
        for (int i = 0; i < 200; i++)
            end(isend(&o, &i, sizeof i, 0, 5));
        REQUIRE(gw_comm_isend(&o.comm, (int64_t[]){4, 5, 6}, 3, GW_I64, 0, 6, 0xfeed, &n, &r[0]) ==
                0);
        REQUIRE(n == 200 && end(r[0]).number == 200);
    }
    leave(&o);
}

static void receives_posted_before_are_served_in_order(void **state)
{
    (void)state;
    run_processes(2, post_first);
}

static void name_ranks_anew(const struct processes *all, int rank)
{
    struct office o;

    join(&o, all, rank);
    o.ranks[0] = 2;
    o.ranks[1] = 0;
    o.comm.size = 2;
    o.comm.context = 78;
    o.comm.rank = rank == 2 ? 0 : 1;
    if (rank == 2) {
        say(&o, "from 2, which is 0", 1, 4);
        end(isend(&o, "12", 2, 1, 4));
    } else if (rank == 0) {
        char three[3];
        gw_request *r;
        REQUIRE(hear(&o, "from 2, which is 0", GW_ANY_SOURCE, 4).source == 0);
        r = irecv(&o, three, 3, 0, 4);
        REQUIRE(gw_request_wait(&r, NULL) == GW_EDISAGREE && r == NULL);
        REQUIRE(saw("rank 2 (rank 0 of the communicator) sent 2 entries of uint8 with tag 4"));
        REQUIRE(saw("3 entries of uint8"));
    }
    gwi_mail_close_context(o.world, 78);
    leave(&o);
}

static void a_communicator_has_ranks_of_its_own(void **state)
{
    (void)state;
    run_processes(3, name_ranks_anew);
}

/* much of it */

static void flood(const struct processes *all, int rank)
{
    enum { N = 8 << 20 };
    struct office o;
    gw_request *out[8], *in[8];
    unsigned char *bytes[8], *back[8];

    join(&o, all, rank);
    for (int peer = 0; peer < all->n; peer++) {
        bytes[peer] = malloc(N);
        back[peer] = malloc(N);
        memset(bytes[peer], 10 * rank + peer, N);
        out[peer] = isend(&o, bytes[peer], N, peer, 1);
        say(&o, "after", peer, 1);
    }
    if (rank % 2)
        for (int peer = 0; peer < all->n; peer++)
            end(out[peer]); /* before receiving anything */
    for (int peer = 0; peer < all->n; peer++)
        in[peer] = irecv(&o, back[peer], N, peer, 1);
    for (int peer = all->n - 1; peer >= 0; peer--) {
        end(in[peer]);
        for (size_t i = 0; i < N; i += 997)
            REQUIRE(back[peer][i] == 10 * peer + rank);
        REQUIRE(back[peer][N - 1] == 10 * peer + rank);
        hear(&o, "after", peer, 1);
    }
    if (rank % 2 == 0)
        for (int peer = 0; peer < all->n; peer++)
            end(out[peer]);
    leave(&o);
}

static void all_send_8_mb_to_all_before_any_receives(void **state)
{
    (void)state;
    run_processes(1, flood);
    run_processes(2, flood);
    run_processes(4, flood);
}

/* More short messages than any ring holds; the sender need not wait, and may even leave. */
static void send_and_go(const struct processes *all, int rank)
{
    enum { N = 20000 };
    struct office o;
    int value = 0;

    join(&o, all, rank);
    if (rank == 0) {
        for (int i = 0; i < N; i++)
            end(isend(&o, &i, sizeof i, 1, i % 3));
        gw_world_close(o.world);
        return;
    }
    usleep(300 * 1000);
    for (int tag = 0; tag < 3; tag++)
        for (int i = tag; i < N; i += 3) {
            end(irecv(&o, &value, sizeof value, 0, tag));
            REQUIRE(value == i);
        }
    gw_request *r = irecv(&o, &value, sizeof value, 0, 0);
    REQUIRE(gw_request_wait(&r, NULL) == GW_EPEER && saw("rank 0 has left") && r == NULL);
    gw_world_close(o.world);
}

static void short_messages_that_found_no_room_arrive_though_the_sender_leaves(void **state)
{
    (void)state;
    run_processes(2, send_and_go);
}

/* failing */

static void ask_wrongly(const struct processes *all, int rank)
{
    struct office o;
    gw_request *r = NULL;
    char byte = 'x';
    gw_comm *c = &o.comm;
    int64_t high = (INT64_C(1) << 62) + 1;

    join(&o, all, rank);
    REQUIRE(gw_comm_isend(c, &byte, 1, GW_U8, 2, 0, 0, NULL, &r) == GW_ERANGE && saw("dest is 2"));
    REQUIRE(gw_comm_isend(c, &byte, 1, GW_U8, -1, 0, 0, NULL, &r) == GW_ERANGE);
    REQUIRE(gw_comm_isend(c, &byte, 1, GW_U8, 0, -1, 0, NULL, &r) == GW_ERANGE && saw("tag is -1"));
    REQUIRE(gw_comm_isend(c, &byte, 1, GW_U8, 0, high, 0, NULL, &r) == GW_ERANGE);
    REQUIRE(gw_comm_isend(c, NULL, 1, GW_U8, 0, 0, 0, NULL, &r) == GW_EINVAL);
    REQUIRE(gw_comm_isend(c, &byte, SIZE_MAX / 4, GW_C128, 0, 0, 0, NULL, &r) == GW_EINVAL);
    REQUIRE(gw_comm_isend(c, &byte, 1, (gw_dtype)99, 0, 0, 0, NULL, &r) == GW_ETYPE);
    REQUIRE(gw_comm_irecv(c, &byte, 1, GW_U8, 2, 0, &r) == GW_ERANGE && saw("source is 2"));
    REQUIRE(gw_comm_irecv(c, &byte, 1, GW_U8, -2, 0, &r) == GW_ERANGE);
    REQUIRE(gw_comm_irecv(c, &byte, 1, GW_U8, 0, -2, &r) == GW_ERANGE);
    REQUIRE(gw_comm_irecv(c, NULL, 1, GW_U8, 0, 0, &r) == GW_EINVAL);
    REQUIRE(r == NULL);
    REQUIRE(gw_request_wait(&r, NULL) == GW_EINVAL);
    gw_request_cancel(&r);
    leave(&o);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    run_processes(2, ask_wrongly);
}

static void disagree(const struct processes *all, int rank)
{
    struct office o;
    float buffer[4] = {1, 2, 3, 4};
    gw_request *r;
    int done;

    join(&o, all, rank);
    for (int early = 0; early < 2; early++)
        if (rank == 0) {
            REQUIRE(gw_world_barrier(o.world) == 0);
            REQUIRE(gw_comm_isend(&o.comm, buffer, 4, GW_F32, 1, 9, 0, NULL, &r) == 0);
            end(r);
            say(&o, "good", 1, 9);
            REQUIRE(gw_world_barrier(o.world) == 0);
        } else {
            if (early)
                REQUIRE(gw_comm_irecv(&o.comm, buffer, 2, GW_F64, 0, 9, &r) == 0);
            REQUIRE(gw_world_barrier(o.world) == 0);
            REQUIRE(gw_world_barrier(o.world) == 0);
            if (!early)
                REQUIRE(gw_comm_irecv(&o.comm, buffer, 2, GW_F64, 0, 9, &r) == 0);
            while ((done = gw_request_test(&r, NULL)) == 0)
                continue;
            REQUIRE(done == GW_EDISAGREE && r == NULL && saw("rank 0 sent 4 entries of float32"));
            REQUIRE(saw("2 entries of float64") && buffer[0] == 1);
            hear(&o, "good", 0, 9);
        }
    leave(&o);
}

static void a_message_of_another_type_fails_the_receive_and_no_other(void **state)
{
    (void)state;
    run_processes(2, disagree);
}

static void leave_early(const struct processes *all, int rank)
{
    struct office o;
    char byte;
    gw_request *r, *any;

    join(&o, all, rank);
    if (rank == 1) {
        say(&o, "farewell", 0, 1);
        gw_world_close(o.world);
        return;
    }
    if (rank == 0) {
        int64_t start = gwi_now_ns();
        r = irecv(&o, &byte, 1, 1, 2);
        REQUIRE(gw_request_wait(&r, NULL) == GW_EPEER && r == NULL);
        REQUIRE(saw("rank 1 has left") && saw("a receive with tag 2"));
        r = irecv(&o, &byte, 1, 1, 2);
        REQUIRE(gw_request_test(&r, NULL) == GW_EPEER && saw("rank 1 has left") && r == NULL);
        REQUIRE(gw_comm_isend(&o.comm, &byte, 1, GW_U8, 1, 0, 0, NULL, &r) == GW_EPEER);
        hear(&o, "farewell", 1, 1); /* it still counts */
        REQUIRE(gwi_now_ns() - start < SOON_NS);
        any = irecv(&o, &byte, 1, GW_ANY_SOURCE, 2);
        say(&o, "go", 2, 1);
        REQUIRE(gw_request_wait(&any, NULL) == 0); /* rank 2 was still here */
        any = irecv(&o, &byte, 1, GW_ANY_SOURCE, 2);
        REQUIRE(gw_request_wait(&any, NULL) == GW_EPEER && saw("has left"));
    } else {
        hear(&o, "go", 0, 1);
        say(&o, "x", 0, 2);
    }
    gw_world_close(o.world);
}

static void what_was_sent_before_leaving_arrives_and_then_waits_fail(void **state)
{
    (void)state;
    run_processes(3, leave_early);
}

static void stop_sending(const struct processes *all, int rank)
{
    enum { N = 8 << 20 };
    struct office o;
    unsigned char *bytes = calloc(1, N);
    gw_request *r;

    join(&o, all, rank);
    if (rank == 0) {
        r = isend(&o, bytes, N, 1, 1);
        REQUIRE(gw_request_wait(&r, NULL) == GW_EPEER && r == NULL);
        REQUIRE(saw("rank 1 has left") && saw("a send with tag 1"));
    } else {
        usleep(100 * 1000);
    }
    gw_world_close(o.world);
    free(bytes);
}

static void a_send_to_a_rank_that_leaves_fails(void **state)
{
    (void)state;
    run_processes(2, stop_sending);
}

static void die(const struct processes *all, int rank)
{
    enum { N = 8 << 20 };
    struct office o;
    unsigned char *bytes = calloc(1, N);
    gw_request *r;

    join(&o, all, rank);
    REQUIRE(gw_world_barrier(o.world) == 0);
    if (rank == 1) {
        isend(&o, bytes, N, 0, 1); /* rank 0 gets a part of it, or all */
        usleep(200 * 1000);
        raise(SIGKILL);
    }
    int64_t start = gwi_now_ns();
    if (rank == 0) {
        irecv(&o, bytes, N, 1, 1); /* which may be under way when its sender dies */
        r = irecv(&o, bytes, 1, 1, 2);
    } else if (rank == 2)
        r = isend(&o, bytes, N, 1, 1);
    else
        r = irecv(&o, bytes, 1, GW_ANY_SOURCE, 1);
    REQUIRE(gw_request_wait(&r, NULL) == GW_EPEER && r == NULL);
    REQUIRE(strncmp(gw_last_error(), "rank 1 ", 7) == 0);
    REQUIRE(gwi_now_ns() - start < SOON_NS);
    gather(all, 0, all->n - 1);
    gw_world_close(o.world);
    free(bytes);
}

static void a_death_ends_every_wait_with_the_rank_named(void **state)
{
    (void)state;
    expect_death(4, die, 1);
}

static void come_late(const struct processes *all, int rank)
{
    enum { N = 8 << 20 };
    struct office o;
    char *bytes = calloc(1, N);
    gw_request *r, *any, *out;

    join(&o, all, rank);
    o.world->job.timeout_ns = GWI_SECOND / 2;
    if (rank == 0) {
        r = irecv(&o, bytes, 5, 2, 3);
        REQUIRE(gw_request_wait(&r, NULL) == GW_ETIMEOUT && r != NULL);
        REQUIRE(saw("rank 2 did not come") && saw("a receive with tag 3") &&
                saw("in Wait for rank 2"));
        any = irecv(&o, bytes + 8, 5, GW_ANY_SOURCE, 4);
        REQUIRE(gw_request_wait(&any, NULL) == GW_ETIMEOUT && any != NULL);
        REQUIRE(saw("rank 1 and rank 2 did not come"));
        out = isend(&o, bytes, N, 2, 5);
        REQUIRE(gw_request_wait(&out, NULL) == GW_ETIMEOUT && out != NULL);
        REQUIRE(saw("rank 2 did not come") && saw("a send with tag 5"));
        reach(all, 0);
        o.world->job.timeout_ns = 60 * GWI_SECOND;
        end(r); /* they are as good as before */
        REQUIRE(strcmp(bytes, "three") == 0);
        REQUIRE(end(any).source == 2 && strcmp(bytes + 8, "four!") == 0);
        end(out);
    } else if (rank == 2) {
        await(all, 0, 1); /* it does not take in meanwhile */
        o.world->job.timeout_ns = 60 * GWI_SECOND;
        say(&o, "three", 0, 3);
        say(&o, "four!", 0, 4);
        end(irecv(&o, bytes, N, 0, 5));
    }
    free(bytes);
    int err;
    while ((err = gw_world_barrier(o.world)) == GW_ETIMEOUT)
        continue;
    REQUIRE(err == 0);
    gw_world_close(o.world);
}

static void a_wait_that_takes_too_long_names_the_ranks_and_can_go_on(void **state)
{
    (void)state;
    run_processes(3, come_late);
}

static void give_up(const struct processes *all, int rank)
{
    enum { N = 8 << 20 };
    struct office o;
    unsigned char *bytes = calloc(1, N);
    gw_request *r[3];

    join(&o, all, rank);
    if (rank == 0) {
        r[0] = isend(&o, bytes, N, 1, 1); /* some of it goes out */
        r[1] = isend(&o, bytes, N, 1, 1); /* of these nothing */
        r[2] = isend(&o, bytes, N, 1, 1);
        say(&o, "before", 1, 2);
        gw_request_cancel(&r[0]);
        gw_request_cancel(&r[2]);
        REQUIRE(r[0] == NULL && r[2] == NULL);
        memset(bytes, 3, N); /* lent to r[1] only, of which nothing went out */
        REQUIRE(gw_world_barrier(o.world) == 0);
        end(r[1]);
        say(&o, "after", 1, 2);
    } else {
        REQUIRE(gw_world_barrier(o.world) == 0);
        r[0] = irecv(&o, bytes, 1, 0, 99);
        gw_request_cancel(&r[0]);
        gw_status status = end(irecv(&o, bytes, N, GW_ANY_SOURCE, 1));
        REQUIRE(status.number == 1 && bytes[0] == 3 && bytes[N - 1] == 3);
        hear(&o, "before", 0, 2);
        hear(&o, "after", 0, 2);
    }
    free(bytes);
    leave(&o);
}

static void cancelled_sends_are_as_if_they_had_never_been(void **state)
{
    (void)state;
    run_processes(2, give_up);
}

static void have_children(const struct processes *all, int rank)
{
    struct office o;
    char byte = 0;
    int status;

    join(&o, all, rank);
    gw_request *r = irecv(&o, &byte, 1, 1 - rank, 1);
    pid_t child = fork();
    if (child == 0) {
        gw_request *mine = NULL;
        REQUIRE(gw_comm_isend(&o.comm, "x", 1, GW_U8, 0, 1, 0, NULL, &mine) == GW_ESTATE);
        REQUIRE(gw_comm_irecv(&o.comm, &byte, 1, GW_U8, 0, 1, &mine) == GW_ESTATE);
        REQUIRE(gw_request_test(&r, NULL) == GW_ESTATE && r != NULL);
        REQUIRE(gw_request_wait(&r, NULL) == GW_ESTATE && saw("forked from rank"));
        gw_request_cancel(&r);
        _exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    say(&o, "y", 1 - rank, 1);
    end(r);
    REQUIRE(byte == 'y');
    leave(&o);
}

static void a_forked_child_is_refused_and_harms_nobody(void **state)
{
    (void)state;
    run_processes(2, have_children);
}

/* the library's own */

static void post_and_take(const struct processes *all, int rank)
{
    struct office o;
    uint64_t word = (uint64_t)rank + 100, got;

    join(&o, all, rank);
    for (int peer = 0; peer < all->n; peer++)
        REQUIRE(gwi_mail_post(o.world, peer, 0, 12, &word, sizeof word) == 0);
    for (int peer = 0; peer < all->n; peer++) {
        REQUIRE(gwi_mail_take(o.world, peer, 0, 12, &got, sizeof got, "a split") == 0);
        REQUIRE(got == (uint64_t)peer + 100);
    }
    REQUIRE(gw_world_barrier(o.world) == 0);
    if (rank == 0) {
        o.world->job.timeout_ns = GWI_SECOND / 2;
        REQUIRE(gwi_mail_take(o.world, 1, 0, 13, &got, sizeof got, "a split") == GW_ETIMEOUT);
        REQUIRE(saw("rank 1 did not come") && saw("a split"));
    }
    while (gw_world_barrier(o.world) == GW_ETIMEOUT)
        continue;
    gw_world_close(o.world);
}

static void the_library_has_messages_of_its_own(void **state)
{
    (void)state;
    run_processes(3, post_and_take);
}

/* threads */

struct talker {
    struct office *office;
    int peer, tag;
};

enum { N_TALKS = 300 };

static void *talk(void *arg)
{
    struct talker *t = arg;
    unsigned char *bytes = malloc(100000), *back = malloc(100000);

    for (int i = 0; i < N_TALKS; i++) {
        size_t n = (size_t)i * 300;
        memset(bytes, i, n);
        gw_request *out = isend(t->office, bytes, n, t->peer, t->tag);
        gw_request *in = irecv(t->office, back, n, t->peer, t->tag);
        gw_status status = end(in);
        REQUIRE(status.n == n && (n == 0 || (back[0] == i % 256 && back[n - 1] == i % 256)));
        end(out);
    }
    free(bytes);
    free(back);
    return NULL;
}

static void talk_in_threads(const struct processes *all, int rank)
{
    struct office o;
    gwi_thread threads[2];

    join(&o, all, rank);
    struct talker talkers[] = {{&o, 1 - rank, 1}, {&o, 1 - rank, 2}, {&o, 1 - rank, 3}};
    for (int i = 0; i < 2; i++)
        REQUIRE(gwi_thread_start("talker", talk, &talkers[i], &threads[i]) == 0);
    talk(&talkers[2]);
    for (int i = 0; i < 2; i++)
        gwi_thread_join(threads[i]);
    leave(&o);
}

static void threads_talk_at_once(void **state)
{
    (void)state;
    run_processes(2, talk_in_threads);
}

static void *wait_for_it(void *arg)
{
    end(arg);
    return NULL;
}

/* A thread sleeps in its wait while another one takes in its message. */
static void wake_each_other(const struct processes *all, int rank)
{
    struct office o;
    gwi_thread thread;
    char byte;

    join(&o, all, rank);
    for (int round = 0; round < 20; round++) {
        int64_t start = gwi_now_ns();
        if (rank == 0) {
            REQUIRE(gwi_thread_start("waiter", wait_for_it, irecv(&o, &byte, 1, 1, 1), &thread) ==
                    0);
            hear(&o, "for the other", 1, 2);
            gwi_thread_join(thread);
            say(&o, "next", 1, 3);
        } else {
            usleep(3000);
            say(&o, "x", 0, 1);
            say(&o, "for the other", 0, 2);
            hear(&o, "next", 0, 3);
        }
        REQUIRE(gwi_now_ns() - start < 20 * GWI_SECOND);
    }
    /* Our own message, for a thread of ours. */
    gw_request *r = irecv(&o, &byte, 1, rank, 4);
    REQUIRE(gwi_thread_start("waiter", wait_for_it, r, &thread) == 0);
    usleep(5000);
    say(&o, "y", rank, 4);
    gwi_thread_join(thread);
    leave(&o);
}

static void a_thread_is_woken_when_another_one_takes_in_its_message(void **state)
{
    (void)state;
    run_processes(2, wake_each_other);
}

/* the same in a simulation, where messages are cut, delayed and cancelled at random */

enum { RANKS = 4, LETTERS = 40, TAGS = 3, END_TAG = 50 };

static const size_t lengths[TAGS] = {12, 3000, 20000};

/* What happened to letter i of a rank; written by its sender, then by its receiver. */
struct fate {
    int dest, tag, cancelled, arrived;
};

struct clerk {
    struct office office;
    gw_world world;
    gwi_random random;
    struct clerk *all;
    struct fate fates[LETTERS];
    int n_sent;
    gw_request *out[LETTERS];
    unsigned char *bytes[LETTERS];
    gw_request *in[RANKS][TAGS], *ends[RANKS], *end_out[RANKS];
    unsigned char buffers[RANKS][TAGS][20000];
    int last[RANKS][TAGS];
    int n_ends, ended, has_sent_ends;
};

static void fill(unsigned char *bytes, size_t n, int source, int i)
{
    for (size_t k = 0; k < n; k++)
        bytes[k] = (unsigned char)(source * 50 + i + (int)k * 7);
    memcpy(bytes, &i, sizeof i);
}

static void read_letter(struct clerk *c, int rank, int source, int tag)
{
    static unsigned char expected[20000];
    int i;

    memcpy(&i, c->buffers[source][tag], sizeof i);
    assert_in_range(i, c->last[source][tag] + 1, LETTERS - 1); /* in order */
    c->last[source][tag] = i;
    struct fate *fate = &c->all[source].fates[i];
    assert_true(fate->dest == rank && fate->tag == tag && !fate->arrived);
    fate->arrived = 1;
    fill(expected, lengths[tag], source, i);
    assert_memory_equal(expected, c->buffers[source][tag], lengths[tag]);
}

static void post_letter(struct clerk *c)
{
    int i = c->n_sent++;
    struct fate *f = &c->fates[i];

    f->dest = (int)(gwi_random_u64(&c->random) % RANKS);
    f->tag = (int)(gwi_random_u64(&c->random) % TAGS);
    c->bytes[i] = malloc(lengths[f->tag]);
    fill(c->bytes[i], lengths[f->tag], c->office.comm.rank, i);
    c->out[i] = isend(&c->office, c->bytes[i], lengths[f->tag], f->dest, f->tag);
}

/* Test the sends, cancel some. */
static int settle_sends(struct clerk *c)
{
    int left = 0;

    for (int i = 0; i < c->n_sent; i++) {
        if (c->out[i] == NULL)
            continue;
        if (gwi_random_u64(&c->random) % 16 == 0) {
            c->fates[i].cancelled = c->out[i]->stage != GWI_DONE;
            gw_request_cancel(&c->out[i]);
        } else if (gw_request_test(&c->out[i], NULL) == 0) {
            left++;
        }
        if (c->out[i] == NULL) {
            /* It is ours again. */
            memset(c->bytes[i], 0xee, lengths[c->fates[i].tag]);
            free(c->bytes[i]);
        }
    }
    return left;
}

static void receive_letters(struct clerk *c)
{
    int rank = c->office.comm.rank;

    for (int source = 0; source < RANKS; source++)
        for (int tag = 0; tag < TAGS; tag++) {
            gw_request **r = &c->in[source][tag];
            void *buffer = c->buffers[source][tag];
            if (*r == NULL)
                *r = irecv(&c->office, buffer, lengths[tag], source, tag);
            if (gw_request_test(r, NULL) == 1)
                read_letter(c, rank, source, tag);
        }
}

/* Whether everybody has ended, and all they sent before was received. */
static int all_read(struct clerk *c)
{
    for (int source = 0; source < RANKS; source++) {
        if (!(c->ended & 1 << source) && c->ends[source] == NULL)
            c->ends[source] = irecv(&c->office, NULL, 0, source, END_TAG);
        if (!(c->ended & 1 << source) && gw_request_test(&c->ends[source], NULL) == 1)
            c->ended |= 1 << source;
    }
    if (c->ended != (1 << RANKS) - 1)
        return 0;
    for (int source = 0; source < RANKS; source++)
        for (int tag = 0; tag < TAGS; tag++)
            while (c->in[source][tag] == NULL || c->in[source][tag]->stage == GWI_DONE)
                receive_letters(c);
    return 1;
}

static int work(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct clerk *c = state;

    (void)f, (void)now_ns;
    if (c->n_sent < LETTERS)
        post_letter(c);
    int left = settle_sends(c);
    if (gwi_random_u64(&c->random) % 2)
        receive_letters(c);
    if (c->n_sent < LETTERS || left > 0)
        return 0;
    for (int peer = 0; peer < RANKS && !c->has_sent_ends; peer++)
        c->end_out[peer] = isend(&c->office, NULL, 0, peer, END_TAG);
    c->has_sent_ends = 1;
    for (int peer = 0; peer < RANKS; peer++)
        if (c->end_out[peer] != NULL && gw_request_test(&c->end_out[peer], NULL) == 0)
            return 0;
    /* Copies may still wait for room. */
    return all_read(c) && c->world.mail->out.n_busy == 0;
}

static void open_clerk(struct clerk *c, gwi_sim *sim, int rank, uint64_t seed)
{
    c->world.fabric = gwi_sim_fabric(sim, rank);
    c->world.generation = gwi_fork_generation();
    assert_int_equal(gwi_mail_new(&c->world, &c->world.mail), 0);
    c->office.world = &c->world;
    set_comm(&c->office, rank, RANKS);
    gwi_random_init(&c->random, seed, (uint64_t)rank);
    memset(c->last, -1, sizeof c->last);
}

static void close_clerk(struct clerk *c)
{
    for (int source = 0; source < RANKS; source++)
        for (int tag = 0; tag < TAGS; tag++)
            gw_request_cancel(&c->in[source][tag]);
    assert_true(gwi_inbox_valid(&c->world.mail->in));
    assert_int_equal(c->world.mail->in.n_kept, 0);
    gwi_mail_free(c->world.mail);
}

static void simulate(uint64_t seed)
{
    struct clerk *clerks = calloc(RANKS, sizeof *clerks);
    void *states[RANKS];
    gwi_sim *sim;

    assert_int_equal(gwi_sim_new(&(gwi_sim_options){.seed = seed, .size = RANKS}, &sim), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        clerks[rank].all = clerks;
        open_clerk(&clerks[rank], sim, rank, seed);
        states[rank] = &clerks[rank];
    }
    int err = gwi_sim_run(sim, work, states, 0);
    if (err < 0)
        fail_msg("seed %llu: %s", (unsigned long long)seed, gw_last_error());
    for (int rank = 0; rank < RANKS; rank++) {
        close_clerk(&clerks[rank]);
        for (int i = 0; i < LETTERS; i++)
            if (!clerks[rank].fates[i].cancelled && !clerks[rank].fates[i].arrived)
                fail_msg("seed %llu: letter %d of rank %d is lost", (unsigned long long)seed, i,
                         rank);
    }
    gwi_sim_free(sim);
    free(clerks);
}

static void nothing_is_lost_or_mixed_up_however_messages_are_cut_and_cancelled(void **state)
{
    (void)state;
    const char *seed = getenv("SEED");

    if (seed != NULL) {
        simulate(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t i = 1; i <= 100; i++)
        simulate(i);
}

GWI_TESTS(cmocka_unit_test(messages_are_sorted_by_source_and_tag_and_stay_in_order),
          cmocka_unit_test(receives_posted_before_are_served_in_order),
          cmocka_unit_test(a_communicator_has_ranks_of_its_own),
          cmocka_unit_test(all_send_8_mb_to_all_before_any_receives),
          cmocka_unit_test(short_messages_that_found_no_room_arrive_though_the_sender_leaves),
          cmocka_unit_test(bad_arguments_are_refused),
          cmocka_unit_test(a_message_of_another_type_fails_the_receive_and_no_other),
          cmocka_unit_test(what_was_sent_before_leaving_arrives_and_then_waits_fail),
          cmocka_unit_test(a_send_to_a_rank_that_leaves_fails),
          cmocka_unit_test(a_death_ends_every_wait_with_the_rank_named),
          cmocka_unit_test(a_wait_that_takes_too_long_names_the_ranks_and_can_go_on),
          cmocka_unit_test(cancelled_sends_are_as_if_they_had_never_been),
          cmocka_unit_test(a_forked_child_is_refused_and_harms_nobody),
          cmocka_unit_test(the_library_has_messages_of_its_own),
          cmocka_unit_test(threads_talk_at_once),
          cmocka_unit_test(a_thread_is_woken_when_another_one_takes_in_its_message),
          cmocka_unit_test(nothing_is_lost_or_mixed_up_however_messages_are_cut_and_cancelled))
