/* collectives.c - collectives drawn by lot give what a reference says, on every engine.
 *
 *     collectives -n 4 [--node-size 2] [--seed 1]      starts 4 processes
 *     mpirun -n 4 collectives [--node-size 2]          joins whatever started it
 *
 * On the communicator of the world, on halves of it in reverse order, and on all ranks but
 * one in another order.  --trials says how many on each; --light leaves out the few with
 * many bytes; --absent checks instead what becomes of those who wait for a rank that does
 * not come.  A rank that fails prints the trial and ends with 1.                  */
#include "base/error.h"
#include "base/option.h"
#include "fabric/processes_test.h"
#include "trial.h"

#include <godwit/world.h>

#include <getopt.h>

#define HEAVY_BYTES 5000000 /* of an input; up to four times as many */

static struct {
    int n; /* 0: somebody has started us */
    int node_size, seed, trials;
    int light, absent;
} args = {.seed = 1, .trials = 150};

static int world_rank;

#define EXPECT(condition, text, ...)                                                          \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s:%d: rank %d: " text " (seed %d; last error: %s)\n", __FILE__, \
                    __LINE__, world_rank, __VA_ARGS__, args.seed, gw_last_error());           \
            fflush(stderr);                                                                   \
            _exit(1);                                                                         \
        }                                                                                     \
    } while (0)

/* one trial */

static gw_call call_of(const struct trial *t, int rank, void *input, const int64_t *shape)
{
    gw_call call = {
        .size_bytes = sizeof call,
        .kind = t->kind,
        .op = t->op,
        .input = {.data = input, .dtype = t->dtype, .n_dims = t->n_dims, .shape = shape},
        .root = t->root,
        .axis = t->axis,
        .axis2 = t->axis2,
        .count = t->count[rank],
        .flags = 1u << rank % 32};

    if (t->kind == GW_BARRIER || (t->kind == GW_SCATTER && rank != t->root))
        call.input = (gw_array){0};
    return call;
}

/* Agree, look at what was agreed on, and run. */
static int call_in_two_steps(gw_comm *comm, const struct trial *t, const gw_call *call,
                             const int64_t *shape, void *output)
{
    gw_agreed agreed = {.size_bytes = sizeof agreed};
    int err = gw_comm_agree(comm, call, &agreed);
    uint32_t flags = 0;

    if (err < 0)
        return err;
    for (int r = 0; r < t->size; r++)
        flags |= 1u << r % 32;
    EXPECT(agreed.flags == flags, "flags are %#x, not %#x", agreed.flags, flags);
    for (int i = 0; i < t->n_dims && t->kind != GW_BARRIER; i++)
        EXPECT(agreed.output.shape[i] == shape[i],
               "axis %d of the output has %lld entries, not %lld", i,
               (long long)agreed.output.shape[i], (long long)shape[i]);
    return gw_comm_run(comm, output);
}

static void run_trial(gw_comm *comm, const struct trial *t)
{
    int rank = gw_comm_rank(comm), err;
    int64_t in_shape[TRIAL_DIMS], out_shape[TRIAL_DIMS];
    int64_t n = trial_output_shape(t, rank, out_shape);
    size_t n_bytes = (size_t)n * entry_bytes(t->dtype);
    char text[1000], want[80], have[80];

    trial_input_shape(t, rank, in_shape);
    trial_describe(t, text, sizeof text);
    void *input = trial_input(t, rank), *expected = trial_output(t, rank);
    unsigned char *output = t->same_memory ? input : malloc(n_bytes + 1);
    EXPECT(output != NULL, "no memory for %zu bytes", n_bytes);
    if (!t->same_memory)
        memset(output, 0xee, n_bytes + 1);

    gw_call call = call_of(t, rank, input, in_shape);
    err = t->in_two_steps ? call_in_two_steps(comm, t, &call, out_shape, output)
                          : gw_comm_call(comm, &call, output, n_bytes);
    EXPECT(err == 0, "%s: %s", text, gw_errname(err));
    int64_t bad = trial_compare(t, expected, output, n);
    if (bad >= 0) {
        entry_text(t->dtype, expected, bad, want, sizeof want);
        entry_text(t->dtype, output, bad, have, sizeof have);
        EXPECT(0, "%s: entry %lld of %lld is %s, not %s", text, (long long)bad, (long long)n, have,
               want);
    }
    EXPECT(t->same_memory || output[n_bytes] == 0xee, "%s: wrote behind the output", text);
    if (!t->same_memory)
        free(output);
    free(input);
    free(expected);
}

/* many trials on one communicator */

static void run_trials(gw_comm *comm, int stream)
{
    struct range range = {.size = gw_comm_size(comm), .dtype = GW_N_DTYPES};
    gwi_random random;
    struct trial t;

    gwi_random_init(&random, (uint64_t)args.seed, (uint64_t)stream);
    for (int i = 0; i < args.trials; i++) {
        static const int64_t longest[] = {4, 40, 600, 6000};
        range.longest = longest[i % 4];
        range.kind = (gw_collective)(i / 4 % (GW_N_COLLECTIVES + 1));
        trial_draw(&t, &random, &range);
        run_trial(comm, &t);
    }
}

/* So many bytes that they go in several steps, whatever the steps are. */
static void run_heavy_trials(gw_comm *comm)
{
    static const gw_dtype dtypes[] = {GW_F32, GW_BF16, GW_I16, GW_F64, GW_BOOL, GW_C64};
    struct range range = {.size = gw_comm_size(comm)};
    gwi_random random;
    struct trial t;

    gwi_random_init(&random, (uint64_t)args.seed, 1000);
    for (int kind = 0; kind < GW_BARRIER; kind++) {
        range.kind = (gw_collective)kind;
        range.dtype = dtypes[(args.seed + kind) % 6];
        range.longest = HEAVY_BYTES / (int64_t)entry_bytes(range.dtype);
        trial_draw(&t, &random, &range);
        run_trial(comm, &t);
    }
}

/* Every operation on every type that it combines, short and long. */
static void run_all_operations(gw_comm *comm)
{
    static const gw_collective kinds[] = {GW_ALLREDUCE, GW_REDUCE, GW_SCAN, GW_REDUCE_SCATTER};
    gwi_random random;
    struct trial t;
    int i = 0;

    gwi_random_init(&random, (uint64_t)args.seed, 2000);
    for (int dtype = 0; dtype < GW_N_DTYPES; dtype++)
        for (int op = 0; op < GW_N_OPS; op++, i++) {
            struct range range = {.size = gw_comm_size(comm),
                                  .longest = i % 2 == 0 ? 8 : 900,
                                  .kind = kinds[(i / 2 + op) % 4],
                                  .dtype = (gw_dtype)dtype};
            if (gw_op_check((gw_op)op, (gw_dtype)dtype) < 0)
                continue;
            do
                trial_draw(&t, &random, &range);
            while (t.op != (gw_op)op);
            run_trial(comm, &t);
        }
}

/* Who calls something else is told so, and so are the others; then all go on. */
static void disagree(gw_comm *comm)
{
    float x = 1, y = 0;
    int odd = gw_comm_rank(comm) == gw_comm_size(comm) - 1;
    int err = odd ? gw_comm_barrier(comm) : gw_comm_allreduce(comm, &x, &y, 1, GW_F32, GW_SUM);

    EXPECT(err == (gw_comm_size(comm) > 1 ? GW_EDISAGREE : 0), "ranks that disagree get %s",
           gw_errname(err));
    err = gw_comm_allreduce(comm, &x, &y, 1, GW_F32, GW_SUM);
    EXPECT(err == 0 && y == (float)gw_comm_size(comm), "after a disagreement: %s, %g",
           gw_errname(err), (double)y);
}

/* The calls by name, where they differ from the rest in how they are called. */
static void run_by_name(gw_comm *comm)
{
    int rank = gw_comm_rank(comm), size = gw_comm_size(comm);
    int64_t mine[2] = {rank, -rank}, all[2 * MAX_RANKS], back[2 * MAX_RANKS];
    int root = size - 1;

    EXPECT(gw_comm_allgather(comm, mine, all, 2, GW_I64) == 0, "%s", "allgather");
    for (int r = 0; r < size; r++)
        EXPECT(all[2 * r] == r && all[2 * r + 1] == -r, "allgather of rank %d", r);
    EXPECT(gw_comm_alltoall(comm, all, back, 2, GW_I64) == 0, "%s", "alltoall");
    for (int r = 0; r < size; r++)
        EXPECT(back[2 * r] == rank && back[2 * r + 1] == -rank, "alltoall of rank %d", r);
    EXPECT(gw_comm_gather(comm, mine, rank == root ? back : NULL, 2, GW_I64, root) == 0, "%s",
           "gather");
    EXPECT(gw_comm_scatter(comm, rank == root ? back : NULL, all, 2, GW_I64, root) == 0, "%s",
           "scatter");
    EXPECT(all[0] == rank && all[1] == -rank, "scatter of rank %d", rank);
    EXPECT(gw_comm_reduce(comm, mine, rank == root ? all : NULL, 2, GW_I64, GW_SUM, root) == 0,
           "%s", "reduce");
    EXPECT(rank != root || all[0] == (int64_t)size * (size - 1) / 2, "sum %lld", (long long)all[0]);
}

/* all but one, in another order; NULL for that one */
static gw_comm *others_of(gw_world *world, int rank, int size)
{
    int ranks[MAX_RANKS], n = 0, out = args.seed % size;
    gw_comm *comm = NULL;

    for (int i = 0; i < size; i++)
        if ((i * (size - 1) + 1) % size != out)
            ranks[n++] = (i * (size - 1) + 1) % size; /* downwards, from 1 */
    if (rank != out)
        EXPECT(gw_comm_of_ranks(world, ranks, n, &comm) == 0, "a communicator of %d ranks", n);
    return comm;
}

static void run_all(gw_world *world, gw_comm *all)
{
    int rank = gw_comm_rank(all), size = gw_comm_size(all);
    gw_comm *half = NULL, *others = NULL;

    run_by_name(all);
    run_all_operations(all);
    run_trials(all, 0);
    disagree(all);
    EXPECT(gw_comm_split(all, rank % 2, -rank, &half) == 0, "%s", "splitting");
    EXPECT(gw_comm_size(half) == (size + 1 - rank % 2) / 2, "half of %d has %d ranks", size,
           gw_comm_size(half));
    run_trials(half, 1 + rank % 2);
    if (size > 1)
        others = others_of(world, rank, size);
    if (others != NULL)
        run_trials(others, 3);
    disagree(half);
    gw_comm_close(half);
    gw_comm_close(others);
    if (!args.light)
        run_heavy_trials(all);
    EXPECT(gw_comm_barrier(all) == 0, "%s", "the last barrier");
}

/* All come to the barrier in the end; who is there first may have to wait longer than once. */
static void meet_again(gw_world *world)
{
    int err = GW_ETIMEOUT;

    for (int i = 0; i < 10 && err == GW_ETIMEOUT; i++)
        err = gw_world_barrier(world);
    EXPECT(err == 0, "%s: the world does not go on", gw_errname(err));
}

/* The last rank does not come to a call of which all others are part. */
static void run_absent(gw_world *world, gw_comm *all)
{
    int rank = gw_comm_rank(all), size = gw_comm_size(all), err;
    static double many[100000];
    char name[32];
    gw_comm *comm = NULL;

    EXPECT(gw_comm_split(all, 0, rank, &comm) == 0, "%s", "splitting");
    if (rank < size - 1) {
        err = gw_comm_allreduce(comm, many, many, 100000, GW_F64, GW_SUM);
        snprintf(name, sizeof name, "rank %d did not come", size - 1);
        EXPECT(err == GW_ETIMEOUT && strstr(gw_last_error(), name) == gw_last_error(),
               "%s, which should say '%s'", gw_errname(err), name);
        err = gw_comm_barrier(comm);
        EXPECT(err == GW_ESTATE, "%s after a failed wait", gw_errname(err));
    }
    meet_again(world);
    gw_comm_close(comm);
    EXPECT(gw_comm_barrier(all) == 0, "%s", "another communicator goes on");
}

static void run_world(const gw_world_options *given)
{
    gw_world_options options = *given;
    gw_world_info info = {.size_bytes = sizeof info};
    gw_world *world;
    gw_comm *all;

    options.node_size = args.node_size;
    options.timeout_s = args.absent ? 3 : 60;
    EXPECT(gw_world_join(&options, &world) == 0, "%s", "joining");
    EXPECT(gw_world_get_info(world, &info) == 0, "%s", "asking where we are");
    world_rank = info.rank;
    EXPECT(info.size <= MAX_RANKS, "at most %d ranks", MAX_RANKS);
    EXPECT(gw_comm_world(world, &all) == 0, "%s", "the communicator of the world");
    if (args.absent)
        run_absent(world, all);
    else
        run_all(world, all);
    gw_world_close(world);
}

static void one_process(const struct processes *all, int rank)
{
    gw_world_options options = GW_WORLD_OPTIONS_INIT;

    options.rank = rank;
    options.size = all->n;
    options.job = all->job;
    run_world(&options);
}

static int run_here(void)
{
    struct processes all;
    int n_failed = 0;

    start_processes(&all, args.n, one_process);
    wait_for_processes(&all);
    for (int rank = 0; rank < all.n; rank++)
        if (all.statuses[rank] != 0) {
            fprintf(stderr, "rank %d ended with wait status %#x\n", rank,
                    (unsigned)all.statuses[rank]);
            n_failed++;
        }
    return n_failed > 0;
}

static int parse_args(int argc, char **argv)
{
    static const struct option options[] = {
        {"node-size", required_argument, NULL, 'k'}, {"seed", required_argument, NULL, 's'},
        {"trials", required_argument, NULL, 't'},    {"light", no_argument, &args.light, 1},
        {"absent", no_argument, &args.absent, 1},    {NULL, 0, NULL, 0},
    };
    int key, err = 0;

    while (err >= 0 && (key = getopt_long(argc, argv, "n:", options, NULL)) != -1)
        err = key == 'n'   ? gwi_parse_int("-n", optarg, 1, MAX_RANKS, &args.n)
              : key == 'k' ? gwi_parse_int("--node-size", optarg, 1, MAX_RANKS, &args.node_size)
              : key == 's' ? gwi_parse_int("--seed", optarg, 0, 1000000000, &args.seed)
              : key == 't' ? gwi_parse_int("--trials", optarg, 0, 1000000, &args.trials)
              : key == 0   ? 0
                           : gwi_fail(GW_EINVAL, "see the head of collectives.c");
    return err < 0 || optind < argc ? GW_EINVAL : 0;
}

int main(int argc, char **argv)
{
    gw_world_options options = GW_WORLD_OPTIONS_INIT;

    if (parse_args(argc, argv) < 0) {
        fprintf(stderr,
                "usage: %s [-n ranks] [--node-size k] [--seed s] [--trials how-many] [--light] "
                "[--absent]\n%s\n",
                argv[0], gw_last_error());
        return 2;
    }
    if (args.n > 0)
        return run_here();
    run_world(&options);
    return 0;
}
