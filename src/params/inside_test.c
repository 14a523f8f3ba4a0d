/* inside_test.c - what is shown of parameters: to who asks, and in a trace. */
#include "params/inside.h"
#include "base/trace_out.h"
#include "fabric/processes_test.h"
#include "params/turns.h"

#include <godwit/jobs.h>

#include <fcntl.h>

#define N_KEYS 50
#define LENGTH 4

static char path[64];

static int new_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/gw-inside-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    unsetenv("GODWIT_TRACE");
    unlink(path);
    return 0;
}

static char *contents(void)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 4 << 20);

    assert_non_null(file);
    assert_non_null(text);
    text[fread(text, 1, (4 << 20) - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* The sum of a number over all places where the text has it. */
static uint64_t sum_of(const char *text, const char *name)
{
    uint64_t sum = 0;

    for (const char *at = text; (at = strstr(at, name)) != NULL; at += strlen(name))
        sum += strtoull(at + strlen(name), NULL, 10);
    return sum;
}

static gw_params *open_params(const struct processes *all, int rank, int node_size,
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
    join.timeout_s = 60;
    opt.num_keys = N_KEYS;
    opt.lengths = &length;
    opt.n_lengths = 1;
    REQUIRE(gw_world_join(&join, ret_world) == 0);
    REQUIRE(gw_params_open(*ret_world, &opt, &params) == 0);
    return params;
}

/* what is seen from outside */

struct seen {
    const char *job;
    int ranks, parameters;
    uint64_t keys[4], accesses[4], remote[4], moves[4], node[4], clock[4], workers[4];
};

static uint64_t figure(const gw_job_rank *rank, const char *name)
{
    for (int i = 0; i < rank->n_figures; i++)
        if (strcmp(rank->names[i], name) == 0)
            return rank->figures[i];
    REQUIRE(!"there is such a figure");
    return 0;
}

static void see(void *ctx, const gw_job_rank *rank)
{
    struct seen *seen = ctx;

    if (strstr(rank->job, seen->job) == NULL)
        return;
    seen->ranks++;
    if (rank->n_figures == 0)
        return;
    REQUIRE(rank->fate == 0 && rank->answers && rank->rank < 4 && rank->size == 2);
    seen->parameters++;
    seen->keys[rank->rank] = figure(rank, "keys");
    seen->accesses[rank->rank] = figure(rank, "accesses");
    seen->remote[rank->rank] = figure(rank, "remote");
    seen->moves[rank->rank] = figure(rank, "moves");
    seen->node[rank->rank] = figure(rank, "node");
    seen->clock[rank->rank] = figure(rank, "clock_most");
    seen->workers[rank->rank] = figure(rank, "workers"); /* none of one that is being closed */
    REQUIRE(figure(rank, "num_keys") == N_KEYS);
}

/* Node 0 takes all keys; node 1 reads some of them there. */
static void let_keys_move(gw_worker *worker, int rank)
{
    int64_t keys[N_KEYS];
    float values[N_KEYS * LENGTH];

    for (int i = 0; i < N_KEYS; i++)
        keys[i] = i;
    if (rank == 0)
        REQUIRE(gw_worker_localize(worker, (gw_keys){keys, N_KEYS}, NULL) == 0);
    REQUIRE(gw_worker_barrier(worker) == 0);
    for (int i = 0; i < 3; i++)
        REQUIRE(gw_worker_pull(worker, (gw_keys){keys, 20}, values, 20 * LENGTH, NULL) == 0);
    for (int i = 0; i <= rank; i++)
        REQUIRE(gw_worker_advance_clock(worker) == 0);
    REQUIRE(gw_worker_barrier(worker) == 0);
}

static void look_at_two_nodes(const struct processes *all, int rank)
{
    gw_world *world;
    gw_params *params = open_params(all, rank, 1, &world);
    struct seen seen = {.job = all->job};
    gw_worker *worker;

    REQUIRE(gw_params_worker(params, &worker) == 0);
    let_keys_move(worker, rank);
    REQUIRE(gw_jobs_look(see, &seen) >= 1); /* both at once */
    REQUIRE(seen.ranks == 2 && seen.parameters == 2);
    REQUIRE(seen.keys[0] == N_KEYS && seen.keys[1] == 0);
    REQUIRE(seen.moves[0] == N_KEYS / 2 && seen.moves[1] == 0);
    REQUIRE(seen.accesses[0] == 60 && seen.remote[0] == 0);
    REQUIRE(seen.accesses[1] == 60 && seen.remote[1] == 60);
    REQUIRE(seen.node[0] == 0 && seen.node[1] == 1);
    REQUIRE(seen.workers[0] == 1 && seen.workers[1] == 1);
    REQUIRE(seen.clock[0] == 1 && seen.clock[1] == 2);
    REQUIRE(gw_worker_barrier(worker) == 0);
    /* What is counted begins anew, what is there does not. */
    REQUIRE(gw_worker_end_setup(worker) == 0);
    REQUIRE(gw_worker_barrier(worker) == 0); /* the other one has begun anew too */
    seen = (struct seen){.job = all->job};
    REQUIRE(gw_jobs_look(see, &seen) >= 1);
    REQUIRE(seen.keys[0] == N_KEYS && seen.moves[0] == 0 && seen.accesses[rank] == 0);
    REQUIRE(gw_worker_barrier(worker) == 0);
    REQUIRE(gw_params_close(params) == 0);
    seen = (struct seen){.job = all->job};
    REQUIRE(gw_jobs_look(see, &seen) >= 1 && seen.ranks == 2);
    gw_world_close(world);
}

static void look_at_one_node(const struct processes *all, int rank)
{
    gw_world *world;
    gw_params *params = open_params(all, rank, 2, &world);
    struct seen seen = {.job = all->job};
    gw_worker *worker;

    REQUIRE(gw_params_worker(params, &worker) == 0);
    let_keys_move(worker, rank);
    REQUIRE(gw_jobs_look(see, &seen) >= 1);
    REQUIRE(seen.parameters == 2 && seen.keys[0] == N_KEYS && seen.keys[1] == 0);
    REQUIRE(seen.accesses[1] == 60 && seen.remote[1] == 0);
    REQUIRE(seen.workers[0] == 1 && seen.workers[1] == 1);
    REQUIRE(gw_worker_barrier(worker) == 0);
    REQUIRE(gw_params_close(params) == 0);
    gw_world_close(world);
}

static void run_two(process_main *run)
{
    struct processes all;

    start_processes(&all, 2, run);
    wait_for_processes(&all);
    assert_int_equal(all.statuses[0], 0);
    assert_int_equal(all.statuses[1], 0);
}

static void figures_of_all_ranks_are_seen(void **state)
{
    (void)state;
    run_two(look_at_two_nodes);
}

static void figures_of_one_node_without_agents_are_seen_too(void **state)
{
    (void)state;
    run_two(look_at_one_node);
}

/* in a trace */

static void a_trace_has_what_happened_on_both_nodes(void **state)
{
    (void)state;
    setenv("GODWIT_TRACE", path, 1);
    run_two(look_at_two_nodes);
    char *text = contents();
    assert_int_equal(strncmp(text, "[\n{\"ph\":\"M\"", 11), 0);
    assert_string_equal(text + strlen(text) - 4, "}\n]\n");
    assert_int_equal(sum_of(text, "\"moved_in\":"), N_KEYS / 2);
    assert_int_equal(sum_of(text, "\"moved_out\":"), N_KEYS / 2);
    assert_non_null(strstr(text, "\"name\":\"rank 1 (node 1)\""));
    assert_non_null(strstr(text, "\"name\":\"agent of parameters 1\""));
    assert_non_null(strstr(text, "\"for\":\"the end of a pull\""));
    assert_non_null(strstr(text, "\"cat\":\"wait\",\"name\":\"the workers' barrier\""));
    /* At the end node 0 has all keys of all ranges, and node 1 none. */
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, "\"node\":0,\"num_keys\":50,\"owned\":[")); at++)
        last = at;
    assert_non_null(last);
    assert_non_null(strstr(last, "\"owned\":[1,1,1,1,"));
    free(text);
}

static void turns_become_spans_with_all_that_they_did(void **state)
{
    (void)state;
    gwi_trace_options options = {.fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC),
                                 .process = 1,
                                 .name = "x",
                                 .about = "",
                                 .pause_ns = 5 * GWI_MS};
    gwi_node_stats stats = {0};

    assert_null(gwi_turns_open(1)); /* nobody traces yet */
    assert_int_equal(gwi_trace_start(&options), 0);
    gwi_turns *turns = gwi_turns_open(1);
    assert_non_null(turns);
    for (int i = 0; i < 2000; i++) {
        stats.moves += 3;
        stats.rounds++;
        if (i == 1000)
            stats = (gwi_node_stats){.moves = 3}; /* end_setup */
        gwi_turns_add(turns, &stats, gwi_now_ns(), 1);
        gwi_turns_add(turns, &stats, gwi_now_ns(), 0);
        if (i % 500 == 0)
            gwi_nap_ns(3 * GWI_MS);
    }
    stats.moves += 5; /* by an order that a worker handed over at the end */
    gwi_turns_close(turns, &stats);
    gwi_trace_stop();
    char *text = contents();
    assert_int_equal(sum_of(text, "\"moved_in\":"), 6005);
    assert_non_null(strstr(text, "\"cat\":\"agent\",\"name\":\"moves\""));
    size_t n_spans = 0;
    for (const char *at = text; (at = strstr(at, "\"ph\":\"X\"")) != NULL; at++)
        n_spans++;
    assert_in_range(n_spans, 4, 400);
    free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, new_file, remove_file)

GWI_TESTS(TEST(figures_of_all_ranks_are_seen),
          TEST(figures_of_one_node_without_agents_are_seen_too),
          TEST(a_trace_has_what_happened_on_both_nodes),
          TEST(turns_become_spans_with_all_that_they_did))
