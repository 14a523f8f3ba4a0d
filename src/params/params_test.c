/* params_test.c - parameters as a user of the C API sees them: opening, asking, calls. */
#include "params/params_test.h"

/* opening */

static void write_and_read(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);

    for (int64_t key = 0; key < N_KEYS; key++)
        REQUIRE(pull(worker, key) == 0);
    meet(worker);
    for (int64_t key = rank; key < N_KEYS; key += all->n)
        REQUIRE(set(worker, key, (float)(10 * key)) == 0);
    meet(worker);
    for (int64_t key = 0; key < N_KEYS; key++)
        REQUIRE(push(worker, key, 1) == 0);
    meet(worker);
    for (int64_t key = 0; key < N_KEYS; key++)
        REQUIRE(pull(worker, key) == (float)(10 * key + all->n));
    meet(worker);
    if (rank == 0)
        REQUIRE(gwi_store_valid(&params->store));
    REQUIRE(gw_worker_close(worker) == 0);
    close_all(params, world);
}

static void what_one_process_writes_all_read(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        run_processes(n, write_and_read);
}

static void open_twice(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *first = open_params(world, 1), *second = open_params(world, 2);
    gw_worker *a = take_worker(first), *b = take_worker(second), *c = take_worker(second);

    REQUIRE(push(a, 3, 1) == 0 && push(b, 3, 10) == 0 && push(c, 3, 10) == 0);
    meet(a);
    REQUIRE(gw_worker_close(c) == 0);
    meet(b);
    REQUIRE(pull(a, 3) == (float)all->n && pull(b, 3) == (float)(20 * all->n));
    meet(a);
    REQUIRE(gw_params_close(first) == 0); /* with a worker that is still open */
    REQUIRE(pull(b, 3) == (float)(20 * all->n));
    REQUIRE(gw_params_close(second) == 0);
    for (int i = 0; i < 20; i++) {
        gw_params *params = open_params(world, 1);
        gw_worker *worker = take_worker(params);
        REQUIRE(pull(worker, 3) == 0);
        meet(worker);
        REQUIRE(set(worker, 3, 7) == 0);
        REQUIRE(gw_params_close(params) == 0);
    }
    REQUIRE(gw_params_close(NULL) == 0 && gw_worker_close(NULL) == 0);
    gw_world_close(world);
}

static void parameters_are_opened_and_closed_beside_each_other_and_again(void **state)
{
    (void)state;
    run_processes(1, open_twice);
    run_processes(3, open_twice);
}

typedef void spoil(gw_params_options *opt);

static void more_keys(gw_params_options *opt)
{
    opt->num_keys++;
}

static void longer(gw_params_options *opt)
{
    static const int64_t length = LENGTH + 1;

    opt->lengths = &length;
}

static void wider(gw_params_options *opt)
{
    opt->dtype = GW_F64;
}

static void more_workers(gw_params_options *opt)
{
    opt->workers++;
}

static void no_keys(gw_params_options *opt)
{
    opt->num_keys = 0;
}

static void no_lengths(gw_params_options *opt)
{
    opt->lengths = NULL;
}

static void wrong_lengths(gw_params_options *opt)
{
    static const int64_t lengths[] = {4, 4, 4};

    opt->lengths = lengths;
    opt->n_lengths = 3;
}

static void a_length_below_zero(gw_params_options *opt)
{
    static const int64_t length = -4;

    opt->lengths = &length;
}

static void whole_numbers(gw_params_options *opt)
{
    opt->dtype = GW_I32;
}

static void no_workers(gw_params_options *opt)
{
    opt->workers = 0;
}

static void many_workers(gw_params_options *opt)
{
    opt->workers = 5000;
}

static void no_size(gw_params_options *opt)
{
    opt->size_bytes = 8;
}

/* What is wrong on rank 1, what it gets and says, and what the others say. */
static const struct {
    spoil *spoil;
    int err;
    const char *words, *others;
} disagreements[] = {
    {more_keys, GW_EDISAGREE, "num_keys is 51 here and 50 on rank 0", "num_keys is 50 here and 51"},
    {longer, GW_EDISAGREE, "lengths are not the same here and on rank 0", "lengths are not"},
    {wider, GW_EDISAGREE, "on rank 0", "on rank 1"},
    {more_workers, GW_EDISAGREE, "workers is 3 here and 2 on rank 0", "workers is 2 here and 3"},
    {no_keys, GW_EINVAL, "num_keys is 0", "was refused"},
    {no_lengths, GW_EINVAL, "lengths is NULL", "was refused"},
    {wrong_lengths, GW_EINVAL, "lengths has 3 entries", "was refused"},
    {a_length_below_zero, GW_EINVAL, "lengths is -4", "was refused"},
    {whole_numbers, GW_ETYPE, "dtype must be float32 or float64", "was refused"},
    {no_workers, GW_EINVAL, "workers is 0", "was refused"},
    {many_workers, GW_EINVAL, "workers is 5000", "was refused"},
    {no_size, GW_EINVAL, "size_bytes is 8", "was refused"},
};

static void disagree(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);

    for (size_t i = 0; i < sizeof disagreements / sizeof *disagreements; i++) {
        gw_params_options opt = options(2);
        gw_params *params = (gw_params *)(uintptr_t)77;
        if (rank == 1)
            disagreements[i].spoil(&opt);
        int err = gw_params_open(world, &opt, &params);
        REQUIRE(err == (rank == 1 ? disagreements[i].err : GW_EDISAGREE));
        REQUIRE(saw_first(rank == 1 ? disagreements[i].words : disagreements[i].others));
        REQUIRE(rank == 1 || saw_first("rank 1"));
        REQUIRE((uintptr_t)params == 77);
    }
    gw_params *params = open_params(world, 1); /* and agree again */
    close_all(params, world);
}

static void a_rank_that_disagrees_is_named_on_every_rank(void **state)
{
    (void)state;
    run_processes(2, disagree);
    run_processes(4, disagree);
}

static void all_wrong(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);

    for (size_t i = 0; i < sizeof disagreements / sizeof *disagreements; i++)
        if (disagreements[i].err != GW_EDISAGREE) {
            gw_params_options opt = options(2);
            gw_params *params = NULL;
            disagreements[i].spoil(&opt);
            REQUIRE(gw_params_open(world, &opt, &params) == disagreements[i].err);
            REQUIRE(saw_first(disagreements[i].words) && params == NULL);
        }
    gw_world_close(world);
}

static void bad_arguments_on_all_ranks_are_refused_on_all(void **state)
{
    (void)state;
    run_processes(1, all_wrong);
    run_processes(3, all_wrong);
}

static void ask_for_too_much(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params_options opt = options(1);
    const int64_t longest = GWI_MAX_LENGTH;
    gw_params *params = NULL;

    opt.num_keys = 2000;
    opt.lengths = &longest; /* 17 TB */
    REQUIRE(gw_params_open(world, &opt, &params) == GW_ENOMEM);
    opt.num_keys = (int64_t)UINT32_MAX - 2;
    opt.dtype = GW_F64; /* more than there are addresses */
    REQUIRE(gw_params_open(world, &opt, &params) == GW_ENOMEM && params == NULL);
    params = open_params(world, 1);
    close_all(params, world);
}

static void more_memory_than_there_is_is_refused_on_all_ranks(void **state)
{
    (void)state;
    run_processes(1, ask_for_too_much);
    run_processes(3, ask_for_too_much);
}

static void ask_for_too_long(const struct processes *all, int rank)
{
    gw_world *world = join_as_node(all, rank);
    gw_params_options opt = options(1);
    int64_t longest = GWI_MAX_LENGTH, lengths[N_KEYS];
    gw_params *params = NULL;

    opt.lengths = &longest;
    opt.dtype = GW_F64;
    REQUIRE(gw_params_open(world, &opt, &params) == GW_EINVAL);
    REQUIRE(saw_first("lengths has 2147483648; with several nodes a vector has at most 268434944"));
    for (int i = 0; i < N_KEYS; i++)
        lengths[i] = i == 7 ? INT64_C(1) << 29 : 4;
    opt.lengths = lengths;
    opt.n_lengths = N_KEYS;
    opt.dtype = GW_F32;
    REQUIRE(gw_params_open(world, &opt, &params) == GW_EINVAL && params == NULL);
    REQUIRE(saw_first("lengths has 536870912; with several nodes a vector has at most 536869888"));
    params = open_params(world, 1);
    close_all(params, world);
}

static void vectors_that_no_message_holds_are_refused_with_several_nodes(void **state)
{
    (void)state;
    run_processes(2, ask_for_too_long);
}

/* Every key is asked of the other node, brought here, or kept as a replica, in turn. */
static void work_on_two_nodes(const struct processes *all, int rank)
{
    gw_world *world = join_as_node(all, rank);
    gw_params_options opt = options(1);
    int64_t keys[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    gw_keys some = {keys, 10};
    uint8_t local[10];
    gw_params *params;
    gw_worker *worker;

    REQUIRE(gw_params_open(world, &opt, &params) == 0);
    REQUIRE(gw_params_worker(params, &worker) == 0);
    size_t n = (size_t)gw_params_entries(params, some);
    float *values = calloc(n, sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)(rank + 1);
    for (int turn = 0; turn < 3; turn++) {
        REQUIRE(gw_worker_push(worker, some, values, n, NULL) == 0);
        REQUIRE(gw_worker_end_setup(worker) == 0);
        float *got = calloc(n, sizeof *got);
        REQUIRE(gw_worker_pull(worker, some, got, n, NULL) == 0);
        for (size_t i = 0; i < n; i++)
            REQUIRE(got[i] == (float)(3 * (turn + 1)));
        free(got);
        REQUIRE(gw_worker_barrier(worker) == 0);
        if (turn == 0 && rank == 0)
            REQUIRE(gw_worker_localize(worker, some, NULL) == 0);
        if (turn == 1)
            REQUIRE(gw_worker_intent(worker, some, 0, 10) == 0 &&
                    gw_worker_wait_sync(worker) == 0 &&
                    gw_worker_is_local(worker, some, local) == 0);
        for (int i = 0; turn == 1 && i < 10; i++)
            REQUIRE(local[i]);
    }
    free(values);
    REQUIRE(gw_worker_close(worker) == 0 && gw_params_close(params) == 0);
    gw_world_close(world);
}

static void keys_are_asked_for_moved_and_replicated_between_nodes(void **state)
{
    (void)state;
    run_processes(2, work_on_two_nodes);
}

/* A call that only looks is repeated a thousand times until a key has come. */
static void count_looks(const struct processes *all, int rank)
{
    gw_world *world = join_as_node(all, rank);
    gw_params_options opt = options(1);
    int n_keys = 0, n_looks = 0;
    gw_params *params;
    gw_worker *worker;

    REQUIRE(gw_params_open(world, &opt, &params) == 0);
    REQUIRE(gw_params_worker(params, &worker) == 0);
    for (int64_t key = 1; key < N_KEYS && rank == 0; key += 2) {
        uint8_t local = 0;
        REQUIRE(gw_worker_intent(worker, (gw_keys){&key, 1}, 0, 10) == 0);
        for (n_keys++; !local; n_looks++)
            REQUIRE(gw_worker_is_local(worker, (gw_keys){&key, 1}, &local) == 0);
    }
    REQUIRE(n_looks <= 100 * n_keys);
    REQUIRE(gw_worker_barrier(worker) == 0);
    REQUIRE(gw_worker_close(worker) == 0 && gw_params_close(params) == 0);
    gw_world_close(world);
}

static void who_asks_whether_announced_keys_have_come_waits_a_moment_for_them(void **state)
{
    (void)state;
    run_processes(2, count_looks);
}

static void die_before_opening(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params_options opt = options(1);
    gw_params *params = NULL;

    if (rank == 1)
        raise(SIGKILL);
    REQUIRE(gw_params_open(world, &opt, &params) == GW_EPEER && saw_first("rank 1"));
    gather(all, 0, all->n - 1);
    gw_world_close(world);
}

static void a_death_ends_the_opening(void **state)
{
    (void)state;
    expect_death(3, die_before_opening, 1);
}

/* asking */

static void ask(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params_options opt = options(1);
    int64_t lengths[N_KEYS];
    const int64_t keys[] = {0, 49, 49, 7}, bad[] = {3, 50}, negative[] = {3, 4, -1};
    uint8_t local[] = {7, 7, 7, 7, 7};
    gw_params *params;

    for (int key = 0; key < N_KEYS; key++)
        lengths[key] = 1 + key;
    opt.lengths = lengths;
    opt.n_lengths = N_KEYS;
    opt.dtype = GW_F64;
    REQUIRE(gw_params_open(world, &opt, &params) == 0);
    memset(lengths, 0, sizeof lengths); /* they were borrowed for the call */
    REQUIRE(gw_params_num_keys(params) == N_KEYS && gw_params_dtype(params) == GW_F64);
    REQUIRE(gw_params_length(params, 0) == 1 && gw_params_length(params, 49) == 50);
    REQUIRE(gw_params_length(params, 50) == GW_ERANGE && saw("key is 50; keys go from 0 to 49"));
    REQUIRE(gw_params_length(params, -1) == GW_ERANGE && saw("key is -1"));
    REQUIRE(gw_params_entries(params, (gw_keys){keys, 4}) == 1 + 50 + 50 + 8);
    REQUIRE(gw_params_entries(params, (gw_keys){NULL, 0}) == 0);
    REQUIRE(gw_params_entries(params, (gw_keys){bad, 2}) == GW_ERANGE && saw("keys[1] is 50"));
    gw_worker *worker = take_worker(params);
    REQUIRE(gw_worker_is_local(worker, (gw_keys){keys, 4}, local) == 0);
    REQUIRE(local[0] == 1 && local[1] == 1 && local[2] == 1 && local[3] == 1 && local[4] == 7);
    REQUIRE(gw_worker_is_local(worker, (gw_keys){negative, 3}, local) == GW_ERANGE);
    REQUIRE(saw("keys[2] is -1"));
    REQUIRE(gw_worker_clock(worker) == 0);
    for (int i = 1; i <= 3; i++)
        REQUIRE(gw_worker_advance_clock(worker) == 0 && gw_worker_clock(worker) == i);
    close_all(params, world);
}

static void keys_and_lengths_can_be_asked_for(void **state)
{
    (void)state;
    run_processes(1, ask);
    run_processes(2, ask);
}

static void call_wrongly(gw_worker *worker, operation *run, const char *name)
{
    const int64_t keys[] = {1, 2, 3}, past[] = {1, 2, 50}, below[] = {-1, 2, 3},
                  far[] = {1, INT64_MIN, INT64_MAX};
    float values[4 * LENGTH];
    char text[64];
    gw_ticket ticket = {77};

    for (int i = 0; i < 4 * LENGTH; i++)
        values[i] = 9;
    REQUIRE(run(worker, (gw_keys){past, 3}, values, 3 * LENGTH, &ticket) == GW_ERANGE);
    REQUIRE(saw("keys[2] is 50; keys go from 0 to 49"));
    REQUIRE(run(worker, (gw_keys){below, 3}, values, 3 * LENGTH, &ticket) == GW_ERANGE);
    REQUIRE(saw("keys[0] is -1"));
    REQUIRE(run(worker, (gw_keys){far, 3}, values, 3 * LENGTH, &ticket) == GW_ERANGE);
    REQUIRE(saw("keys[1] is -9223372036854775808"));
    REQUIRE(run(worker, (gw_keys){keys, 3}, values, 3 * LENGTH - 1, &ticket) == GW_EINVAL);
    snprintf(text, sizeof text, "%s has 11 entries", name);
    REQUIRE(saw(text) && saw("these 3 keys have 12"));
    REQUIRE(run(worker, (gw_keys){keys, 3}, values, 3 * LENGTH + 1, &ticket) == GW_EINVAL);
    REQUIRE(run(worker, (gw_keys){keys, 0}, values, 1, &ticket) == GW_EINVAL);
    REQUIRE(run(worker, (gw_keys){keys, 3}, NULL, 3 * LENGTH, &ticket) == GW_EINVAL);
    snprintf(text, sizeof text, "%s is NULL", name);
    REQUIRE(saw(text));
    REQUIRE(run(worker, (gw_keys){NULL, 3}, values, 3 * LENGTH, &ticket) == GW_EINVAL);
    REQUIRE(saw("keys is NULL"));
    for (int i = 0; i < 4 * LENGTH; i++)
        REQUIRE(values[i] == 9);
    REQUIRE(ticket.seq == 77);
    REQUIRE(run(worker, (gw_keys){NULL, 0}, NULL, 0, &ticket) == 0 && ticket.seq == -1);
}

static void call_badly(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);
    gw_ticket ticket = {77};
    const int64_t key = 5;
    float values[LENGTH];

    call_wrongly(worker, gw_worker_pull, "values");
    call_wrongly(worker, do_push, "updates");
    call_wrongly(worker, do_set, "values");
    for (int64_t k = 0; k < N_KEYS; k++)
        REQUIRE(pull(worker, k) == 0);
    REQUIRE(gw_worker_pull(worker, one(&key), values, LENGTH, &ticket) == 0 && ticket.seq == -1);
    REQUIRE(gw_worker_wait(worker, ticket) == 0 && gw_worker_wait_all(worker) == 0);
    REQUIRE(gw_worker_wait(worker, (gw_ticket){5}) == GW_EINVAL && saw("ticket 5"));
    REQUIRE(gw_worker_wait(worker, (gw_ticket){-2}) == GW_EINVAL);
    close_all(params, world);
}

static void bad_calls_are_refused_and_change_nothing(void **state)
{
    (void)state;
    run_processes(1, call_badly);
    run_processes(2, call_badly);
}

static void take_too_many(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 2);
    gw_worker *a = take_worker(params), *b = take_worker(params), *c = NULL;

    REQUIRE(gw_params_worker(params, &c) == GW_ESTATE && c == NULL);
    REQUIRE(saw("has had its 2 workers") && saw("workers=3"));
    REQUIRE(gw_worker_close(a) == 0);
    REQUIRE(gw_params_worker(params, &c) == GW_ESTATE && c == NULL);
    REQUIRE(push(b, 1, 1) == 0);
    close_all(params, world);
}

static void a_process_has_as_many_workers_as_it_opened_with(void **state)
{
    (void)state;
    run_processes(2, take_too_many);
}

/* All at once are what they are one by one. */
static void check_own(gw_params *params)
{
    int64_t own[100] = {0}, few[3] = {-7, -7, -7};
    gw_params_stat stat;
    int n = gw_params_stats_own(params, own, 100);

    REQUIRE(n > 20 && n <= 100);
    for (int i = 0; i < n; i++) {
        REQUIRE(gw_params_stat_get(params, i, &stat) == 0);
        REQUIRE(strcmp(gw_params_stat_name(i), stat.name) == 0);
        REQUIRE(stat.value == own[i] || strcmp(stat.name, "huge_page_bytes") == 0);
    }
    REQUIRE(gw_params_stat_name(n) == NULL && gw_params_stat_name(-1) == NULL);
    REQUIRE(gw_params_stats_own(params, few, 2) == n);
    REQUIRE(few[0] == own[0] && few[1] == own[1] && few[2] == -7);
}

static void count(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 2);
    gw_worker *a = take_worker(params), *b = take_worker(params);
    const int64_t keys[] = {1, 2, 1};
    float values[3 * LENGTH] = {0};
    gw_params_stat stat = {.value = 77};

    REQUIRE(stat_of(params, "calls") == 0 && stat_of(params, "keys_pulled") == 0);
    REQUIRE(gw_worker_pull(a, (gw_keys){keys, 3}, values, 3 * LENGTH, NULL) == 0);
    REQUIRE(gw_worker_push(a, (gw_keys){keys, 2}, values, 2 * LENGTH, NULL) == 0);
    REQUIRE(gw_worker_set(b, (gw_keys){keys, 1}, values, LENGTH, NULL) == 0);
    REQUIRE(gw_worker_set(b, (gw_keys){keys, 1}, values, LENGTH + 1, NULL) < 0);
    for (int closed = 0; closed < 2; closed++) { /* what a closed worker did still counts */
        REQUIRE(stat_of(params, "keys_pulled") == 3 && stat_of(params, "keys_pushed") == 2);
        REQUIRE(stat_of(params, "keys_set") == 1 && stat_of(params, "calls") == 3);
        REQUIRE(closed || gw_worker_close(a) == 0);
    }
    REQUIRE(stat_of(params, "read_retries") >= 0 && stat_of(params, "latch_waits") >= 0);
    REQUIRE(stat_of(params, "shared_bytes") >= N_KEYS * (8 + 4 * LENGTH));
    REQUIRE(stat_of(params, "huge_page_bytes") >= 0);
    check_own(params);
    REQUIRE(gw_params_stat_get(params, -1, &stat) == GW_ERANGE);
    REQUIRE(gw_params_stat_get(params, 1000, &stat) == GW_ERANGE && stat.value == 77);
    meet(b);
    REQUIRE(gw_worker_end_setup(b) == 0 && stat_of(params, "calls") == 0);
    close_all(params, world);
}

static void statistics_count_what_this_process_did(void **state)
{
    (void)state;
    run_processes(1, count);
}

static int64_t total_of(gw_params *params, const char *name)
{
    int64_t totals[100];
    int n = gw_params_stats_total(params, totals, 100);

    REQUIRE(n > 0 && n <= 100);
    for (int i = 0; i < n; i++)
        if (strcmp(gw_params_stat_name(i), name) == 0)
            return totals[i];
    return -1;
}

static void add_up(const struct processes *all, int rank)
{
    for (int node_size = 1; node_size <= all->n; node_size *= 2) {
        gw_world *world = join_in_nodes(all, rank, node_size);
        gw_params *params = open_params(world, 1);
        gw_worker *worker = take_worker(params);
        REQUIRE(push(worker, 3, 1) == 0);
        REQUIRE(total_of(params, "keys_pushed") == all->n);
        int64_t shared_bytes = stat_of(params, "shared_bytes");
        REQUIRE(shared_bytes > 0);
        REQUIRE(total_of(params, "shared_bytes") == shared_bytes * (all->n / node_size));
        close_all(params, world);
    }
}

static void memory_counts_once_a_node_in_the_total(void **state)
{
    (void)state;
    run_processes(4, add_up);
}

/* Two workers on each of two nodes.  Each time, both set up something and then pull a key of the
 * other node, as soon as they may. */
enum { SETUPS = 200, SET_UP_KEYS = 10 };

static void *set_up_and_pull(void *ctx)
{
    gw_worker *worker = ctx;
    gw_params *params = worker->params;
    int rank = params->world->fabric->place.rank;

    for (int i = 0; i < SETUPS; i++) {
        for (int64_t key = 0; key < SET_UP_KEYS; key++)
            REQUIRE(push(worker, key, 1) == 0);
        REQUIRE(gw_worker_end_setup(worker) == 0);
        pull(worker, 1 - rank);
        meet(worker); /* all have pulled */
        REQUIRE(stat_of(params, "keys_pushed") == 0 && stat_of(params, "keys_pulled") == 2);
        REQUIRE(stat_of(params, "requests") == 2);
        /* Two questions and two answers, of which only these have vectors. */
        REQUIRE(stat_of(params, "bytes_for_access") ==
                2 * (int64_t)(gwi_note_bytes(0) + gwi_note_bytes(LENGTH * sizeof(float))));
        meet(worker);
    }
    return NULL;
}

static void count_after_setups(const struct processes *all, int rank)
{
    gw_world *world = join_as_node(all, rank);
    gw_params *params = open_params(world, 2);
    gw_worker *workers[] = {take_worker(params), take_worker(params)};
    pthread_t thread;

    REQUIRE(pthread_create(&thread, NULL, set_up_and_pull, workers[0]) == 0);
    set_up_and_pull(workers[1]);
    pthread_join(thread, NULL);
    close_all(params, world);
}

static void statistics_begin_at_the_end_of_a_setup_and_miss_nothing_after_it(void **state)
{
    (void)state;
    run_processes(2, count_after_setups);
}

static void be_a_child(gw_params *params, gw_worker *worker)
{
    const int64_t key = 5;
    float values[LENGTH] = {1, 1, 1, 1};
    gw_params_stat stat;
    uint8_t local;
    gw_worker *other;

    REQUIRE(gw_worker_pull(worker, one(&key), values, LENGTH, NULL) == GW_ESTATE);
    REQUIRE(saw("forked"));
    REQUIRE(gw_worker_push(worker, one(&key), values, LENGTH, NULL) == GW_ESTATE);
    REQUIRE(gw_worker_set(worker, one(&key), values, LENGTH, NULL) == GW_ESTATE);
    REQUIRE(gw_worker_wait(worker, (gw_ticket){-1}) == GW_ESTATE);
    REQUIRE(gw_worker_wait_all(worker) == GW_ESTATE);
    REQUIRE(gw_worker_advance_clock(worker) == GW_ESTATE);
    REQUIRE(gw_worker_barrier(worker) == GW_ESTATE);
    REQUIRE(gw_worker_is_local(worker, one(&key), &local) == GW_ESTATE);
    REQUIRE(gw_params_worker(params, &other) == GW_ESTATE);
    REQUIRE(gw_params_stat_get(params, 0, &stat) == GW_ESTATE);
    REQUIRE(gw_params_stats_own(params, &stat.value, 1) == GW_ESTATE);
    REQUIRE(gw_worker_close(worker) == GW_ESTATE);
    REQUIRE(gw_params_close(params) == GW_ESTATE);
    REQUIRE(gw_worker_close(worker) == GW_ESTATE); /* it was left alone */
}

static void fork_a_child(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 2);
    gw_worker *worker = take_worker(params);
    int status = -1;

    REQUIRE(set(worker, rank, 3) == 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        be_a_child(params, worker);
        _exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    REQUIRE(pull(worker, rank) == 3 && push(worker, rank, 1) == 0 && pull(worker, rank) == 4);
    REQUIRE(gw_worker_close(take_worker(params)) == 0);
    meet(worker);
    close_all(params, world);
}

static void parameters_are_dead_in_a_forked_child_and_live_on_in_the_parent(void **state)
{
    (void)state;
    run_processes(1, fork_a_child);
    run_processes(2, fork_a_child);
}

GWI_TESTS(cmocka_unit_test(what_one_process_writes_all_read),
          cmocka_unit_test(parameters_are_opened_and_closed_beside_each_other_and_again),
          cmocka_unit_test(a_rank_that_disagrees_is_named_on_every_rank),
          cmocka_unit_test(bad_arguments_on_all_ranks_are_refused_on_all),
          cmocka_unit_test(more_memory_than_there_is_is_refused_on_all_ranks),
          cmocka_unit_test(vectors_that_no_message_holds_are_refused_with_several_nodes),
          cmocka_unit_test(keys_are_asked_for_moved_and_replicated_between_nodes),
          cmocka_unit_test(who_asks_whether_announced_keys_have_come_waits_a_moment_for_them),
          cmocka_unit_test(a_death_ends_the_opening),
          cmocka_unit_test(keys_and_lengths_can_be_asked_for),
          cmocka_unit_test(bad_calls_are_refused_and_change_nothing),
          cmocka_unit_test(a_process_has_as_many_workers_as_it_opened_with),
          cmocka_unit_test(statistics_count_what_this_process_did),
          cmocka_unit_test(memory_counts_once_a_node_in_the_total),
          cmocka_unit_test(statistics_begin_at_the_end_of_a_setup_and_miss_nothing_after_it),
          cmocka_unit_test(parameters_are_dead_in_a_forked_child_and_live_on_in_the_parent))
