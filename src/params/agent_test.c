#include "params/agent.h"
#include "base/error.h"
#include "fabric/processes_test.h"

#include <dirent.h>

#define LENGTH 4096 /* so that an answer to two does not fit into what is sent at once */

static gw_params *open_in_nodes(const struct processes *all, int rank, int node_size,
                                gw_world **ret_world)
{
    gw_world_options join = GW_WORLD_OPTIONS_INIT;
    gw_params_options opt = GW_PARAMS_OPTIONS_INIT;
    int64_t length = LENGTH;
    gw_params *params;

    join.rank = rank;
    join.size = all->n;
    join.node_size = node_size;
    join.job = all->job;
    join.timeout_s = 30;
    opt.num_keys = 10;
    opt.lengths = &length;
    opt.n_lengths = 1;
    REQUIRE(gw_world_join(&join, ret_world) == 0);
    REQUIRE(gw_params_open(*ret_world, &opt, &params) == 0);
    return params;
}

/* Rank 1 has the latch of key 0 and dies with it.  The agent of its node, in rank 0, has been asked
 * for the key, and for others behind it, by rank 2, on the other node, and waits for the latch. */
static void die_with_a_latch_that_the_agent_wants(const struct processes *all, int rank)
{
    gw_world *world;
    gw_params *params = open_in_nodes(all, rank, 2, &world);
    gw_worker *worker;
    int64_t key = 0, keys[] = {0, 2, 4}, away = 1, start;
    uint8_t local = 0;
    static float values[3 * LENGTH];
    uint64_t word;
    int err = 0;

    REQUIRE(gw_params_worker(params, &worker) == 0);
    if (rank == 1) {
        gwi_hand_note(&worker->seat->hand, 0, key);
        REQUIRE(gwi_word_try_latch(&params->store.words[key], &word));
    }
    REQUIRE(gw_worker_barrier(worker) == 0);
    if (rank == 1) {
        usleep(300 * 1000); /* the agent is at the latch by now, or will be */
        raise(SIGKILL);
    }
    start = gwi_now_ns();
    if (rank == 2)
        err = gw_worker_pull(worker, (gw_keys){keys, 3}, values, 3 * LENGTH, NULL);
    else
        err = gw_worker_barrier(worker);
    REQUIRE(err == GW_EPEER && strstr(gw_last_error(), "rank 1") != NULL);
    if (rank == 0) /* who waits for a key hears of it, too: it will not come */
        do
            err = gw_worker_is_local(worker, (gw_keys){&away, 1}, &local);
        while (err == 0 && !local && gwi_now_ns() - start < 10 * GWI_SECOND);
    REQUIRE(err == GW_EPEER && strstr(gw_last_error(), "rank 1") != NULL);
    REQUIRE(gw_params_close(params) == GW_EPEER);
    REQUIRE(gwi_now_ns() - start < 10 * GWI_SECOND);
    gw_world_close(world);
}

static void an_agent_does_not_wait_for_the_latch_of_a_dead_process(void **state)
{
    (void)state;
    expect_death(3, die_with_a_latch_that_the_agent_wants, 1);
}

/* Each wants key 1, which is at home on node 1, up to clock `end`; rank 0 gets a copy. */
static void get_copy(gw_worker *worker, int rank, int64_t end)
{
    int64_t key = 1;
    uint8_t local = 0;

    for (int r = 1; r >= 0; r--) {
        if (rank == r)
            REQUIRE(gw_worker_intent(worker, (gw_keys){&key, 1}, 0, end) == 0);
        while (rank == r && !local) {
            gwi_nap_ns(GWI_MS);
            REQUIRE(gw_worker_is_local(worker, (gw_keys){&key, 1}, &local) == 0);
        }
        REQUIRE(gw_worker_barrier(worker) == 0);
    }
}

/* Let the other node's agent serve pulls for a while. */
static void keep_busy(gw_worker *worker, int64_t key, float *values)
{
    for (int64_t end = gwi_now_ns() + 2 * GWI_SECOND; gwi_now_ns() < end;)
        REQUIRE(gw_worker_pull(worker, (gw_keys){&key, 1}, values, LENGTH, NULL) == 0);
}

static void see_soon(gw_worker *worker, int64_t key, float expected, float *values)
{
    int64_t start = gwi_now_ns();

    do {
        REQUIRE(gwi_now_ns() - start < GWI_SECOND / 2);
        gwi_nap_ns(GWI_MS);
        REQUIRE(gw_worker_pull(worker, (gw_keys){&key, 1}, values, LENGTH, NULL) == 0);
    } while (values[0] < expected);
}

/* Key 1 is at home on the node of rank 1, which wants it first, so rank 0 gets a copy. */
static void push_to_a_copy_after_long_service(const struct processes *all, int rank)
{
    static float values[LENGTH];
    gw_world *world;
    gw_params *params = open_in_nodes(all, rank, 1, &world);
    gw_worker *worker;
    int64_t key = 1;

    REQUIRE(gw_params_worker(params, &worker) == 0);
    if (rank == 1)
        keep_busy(worker, 0, values);
    else
        gwi_nap_ns(2 * GWI_SECOND);
    get_copy(worker, rank, INT64_C(1) << 40);
    for (int i = 1; i <= 2; i++) {
        values[0] = 1;
        if (rank == 0)
            REQUIRE(gw_worker_push(worker, (gw_keys){&key, 1}, values, LENGTH, NULL) == 0);
        else
            see_soon(worker, key, (float)i, values);
        REQUIRE(gw_worker_barrier(worker) == 0);
    }
    REQUIRE(gw_worker_close(worker) == 0);
    REQUIRE(gw_params_close(params) == 0);
    gw_world_close(world);
}

static void an_agent_that_has_served_for_long_tells_changes_soon(void **state)
{
    (void)state;
    run_processes(2, push_to_a_copy_after_long_service);
}

/* How often the agent of this process has gone to sleep so far. */
static long count_sleeps(void)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *task;
    long found = -1, n;

    REQUIRE(tasks != NULL);
    while ((task = readdir(tasks)) != NULL) {
        char path[300], line[100];
        int is_agent = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status != NULL && fgets(line, sizeof line, status) != NULL) {
            is_agent |= strcmp(line, "Name:\tgw-agent\n") == 0;
            if (is_agent && sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
                found = n;
        }
        if (status != NULL)
            fclose(status);
    }
    closedir(tasks);
    REQUIRE(found >= 0);
    return found;
}

/* Until the agent dozes. */
static void wait_for_doze(const gw_params *params)
{
    int64_t start = gwi_now_ns();

    while (!gwi_slot_dozes(&params->slots[0])) {
        REQUIRE(gwi_now_ns() - start < 10 * GWI_SECOND);
        gwi_nap_ns(GWI_MS);
    }
}

/* Both nodes have a copy of key 1, or the key; rank 1 pushes while all doze, and later advances its
 * clock, by which it does not want it any more: so rank 0 gets the key. */
static void wake_who_dozes(const struct processes *all, int rank)
{
    static float values[LENGTH];
    gw_world *world;
    gw_params *params = open_in_nodes(all, rank, 1, &world);
    gw_worker *worker;
    int64_t key = 1;
    uint8_t local = 1;

    REQUIRE(gw_params_worker(params, &worker) == 0);
    get_copy(worker, rank, 1);
    wait_for_doze(params);
    long before = count_sleeps();
    gwi_nap_ns(GWI_SECOND);
    REQUIRE(count_sleeps() - before < 50); /* it looked 200 times a second while it did not doze */
    REQUIRE(gw_worker_barrier(worker) == 0);
    wait_for_doze(params);
    values[0] = 1;
    if (rank == 1)
        REQUIRE(gw_worker_push(worker, (gw_keys){&key, 1}, values, LENGTH, NULL) == 0);
    else
        see_soon(worker, key, 1, values);
    REQUIRE(gw_worker_barrier(worker) == 0);
    wait_for_doze(params);
    if (rank == 1)
        REQUIRE(gw_worker_advance_clock(worker) == 0);
    for (int64_t start = gwi_now_ns(); rank == 1 && local; gwi_nap_ns(GWI_MS)) {
        REQUIRE(gwi_now_ns() - start < GWI_SECOND / 2);
        REQUIRE(gw_worker_is_local(worker, (gw_keys){&key, 1}, &local) == 0);
    }
    REQUIRE(gw_worker_barrier(worker) == 0);
    REQUIRE(gw_worker_close(worker) == 0);
    REQUIRE(gw_params_close(params) == 0);
    gw_world_close(world);
}

struct pusher {
    gw_worker *worker;
    int n_calls;
};

/* Right after a turn of who attends, when the next round is not due yet. */
static int push_at_the_second_call(void *ctx)
{
    static float values[LENGTH];
    struct pusher *p = ctx;
    int64_t key = 1;

    if (p->n_calls++ == 0)
        return 0;
    REQUIRE(gw_worker_push(p->worker, (gw_keys){&key, 1}, values, LENGTH, NULL) == 0);
    return 1;
}

/* While somebody attends nobody can wake the agent, which then would sleep for up to 100 ms. */
static void change_while_somebody_attends(const struct processes *all, int rank)
{
    gw_world *world;
    gw_params *params = open_in_nodes(all, rank, 1, &world);
    int64_t took_ns = 0;
    gw_worker *worker;

    REQUIRE(gw_params_worker(params, &worker) == 0);
    get_copy(worker, rank, INT64_C(1) << 40);
    for (int i = 0; i < 20 && rank == 0; i++) {
        struct pusher p = {worker, 0};
        wait_for_doze(params);
        REQUIRE(gwi_agent_attend(params->agent, push_at_the_second_call, &p) == 1);
        for (int64_t start = gwi_now_ns(); gwi_marks_any(&params->local.marks[0]);) {
            REQUIRE(gwi_now_ns() - start < 10 * GWI_SECOND);
            gwi_nap_ns(GWI_MS / 10);
            took_ns += GWI_MS / 10;
        }
    }
    REQUIRE(took_ns < 600 * GWI_MS);
    REQUIRE(gw_worker_barrier(worker) == 0);
    REQUIRE(gw_worker_close(worker) == 0);
    REQUIRE(gw_params_close(params) == 0);
    gw_world_close(world);
}

static void an_agent_that_dozes_hears_of_changes_while_somebody_attends(void **state)
{
    (void)state;
    run_processes(2, change_while_somebody_attends);
}

/* Rank 1 asks for five keys of rank 0, a message each, while a worker of that attends and looks at
 * nothing. */

enum { ATTENDED, ASKED, ANSWERED };

struct questions {
    const struct processes *all;
    int turn;
};

static int await_questions(void *ctx)
{
    const struct questions *q = ctx;

    gwi_nap_ns(2 * GWI_MS); /* so that the agent sleeps */
    reach(q->all, ATTENDED);
    await(q->all, ASKED, q->turn);
    return 1;
}

static void ask_for_all_of_node_0(gw_worker *worker)
{
    static float values[5][LENGTH];
    static const int64_t keys[5] = {0, 2, 4, 6, 8};
    gw_ticket ticket;

    for (int i = 0; i < 5; i++)
        REQUIRE(gw_worker_pull(worker, (gw_keys){&keys[i], 1}, values[i], LENGTH, &ticket) == 0);
}

static void ask_while_somebody_attends(const struct processes *all, int rank)
{
    gw_world *world;
    gw_params *params = open_in_nodes(all, rank, 1, &world);
    int64_t took_ns = 0;
    gw_worker *worker;

    REQUIRE(gw_params_worker(params, &worker) == 0);
    for (int i = 1; i <= 30; i++) {
        struct questions q = {all, i};
        if (rank == 0) {
            REQUIRE(gwi_agent_attend(params->agent, await_questions, &q) == 1);
            await(all, ANSWERED, i);
            continue;
        }
        await(all, ATTENDED, i);
        ask_for_all_of_node_0(worker);
        int64_t start = gwi_now_ns();
        reach(all, ASKED);
        REQUIRE(gw_worker_wait_all(worker) == 0);
        took_ns += gwi_now_ns() - start;
        reach(all, ANSWERED);
    }
    REQUIRE(took_ns < 600 * GWI_MS); /* who is not woken sleeps for up to 100 ms each time */
    REQUIRE(gw_worker_close(worker) == 0);
    REQUIRE(gw_params_close(params) == 0);
    gw_world_close(world);
}

static void what_came_while_somebody_attended_is_not_left_lying(void **state)
{
    (void)state;
    run_processes(2, ask_while_somebody_attends);
}

static void an_agent_with_nothing_to_do_dozes_until_a_change_or_a_clock(void **state)
{
    (void)state;
    run_processes(2, wake_who_dozes);
}

GWI_TESTS(cmocka_unit_test(an_agent_does_not_wait_for_the_latch_of_a_dead_process),
          cmocka_unit_test(an_agent_with_nothing_to_do_dozes_until_a_change_or_a_clock),
          cmocka_unit_test(an_agent_that_dozes_hears_of_changes_while_somebody_attends),
          cmocka_unit_test(what_came_while_somebody_attended_is_not_left_lying),
          cmocka_unit_test(an_agent_that_has_served_for_long_tells_changes_soon))
