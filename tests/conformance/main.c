/* main.c - runs the conformance suite on a fabric; speaks TAP.
 *
 *     conformance --fabric shm -n 4 [--node-size 2]      starts 4 processes
 *     conformance --fabric sim -n 4 [--seed 1] [--seeds 1000] [--trace]
 *     mpirun -n 4 conformance --fabric env               joins whatever started it
 *
 * With --case only one case runs; with --light there are fewer messages and none of
 * 64 MB, for builds that are slow.  Under shm and env the ranks run the cases one
 * after the other in one job and rank 0 prints; a rank that fails ends, and with
 * it the job.  Under sim each seed is a job of its own; a seed that fails is
 * printed with the command that replays it.                                  */
#include "base/clock.h"
#include "base/option.h"
#include "case.h"
#include "fabric/processes_test.h"

#include <getopt.h>
#include <limits.h>

#define LIMIT_NS (60 * GWI_SECOND) /* of one case, under load and sanitizers too */

static struct {
    const char *program;
    const char *fabric;
    const char *only; /* a case */
    int size, node_size;
    int seed, n_seeds;
    int trace, light;
} args = {.fabric = "", .size = 4, .seed = 1, .n_seeds = 1};

/* which cases */

static int runs(const struct conformance_case *c, int size)
{
    return size >= c->min_size && (args.only == NULL || strcmp(args.only, c->name) == 0);
}

static int count_cases(int size)
{
    int n = 0;

    for (int i = 0; all_cases[i] != NULL; i++)
        n += runs(all_cases[i], size);
    return n;
}

static int begin_state(const struct conformance_case *c, const struct run *run, gwi_fabric *f,
                       void **ret_state)
{
    struct actor *actor = calloc(1, c->state_bytes);

    if (actor == NULL)
        return gwi_fail(GW_ENOMEM, "the state of a case");
    actor->run = run;
    *ret_state = actor;
    return c->begin == NULL ? 0 : c->begin(actor, f);
}

static void end_state(const struct conformance_case *c, void *state)
{
    if (state != NULL && c->end != NULL)
        c->end(state);
    free(state);
}

/* in a process of its own */

struct wait {
    gwi_patience patience;
    int lane; /* -1: not waiting */
};

static void end_wait(struct wait *w)
{
    if (w->lane >= 0)
        gwi_patience_end(&w->patience);
    w->lane = -1;
}

static int pause_on(struct wait *w, gwi_fabric *f, int lane, int64_t deadline_ns)
{
    if (w->lane != lane) {
        end_wait(w);
        gwi_patience_begin(&w->patience, f, lane, deadline_ns);
        w->lane = lane;
    }
    int err = gwi_patience_pause(&w->patience);
    return err == GW_ETIMEOUT
               ? gwi_fail(err, "the case is not done within %d s", (int)(LIMIT_NS / GWI_SECOND))
           : err < 0 ? err
                     : 0;
}

/* Call the step until it is done.  A rank waits only where its step got nowhere. */
static int drive_steps(gwi_step *step, struct actor *actor, gwi_fabric *f)
{
    struct wait w = {.lane = -1};
    int64_t deadline_ns = gwi_deadline_ns(LIMIT_NS);
    int done, err = 0;

    do {
        actor->busy = 0;
        done = step(actor, f, gwi_now_ns());
        if (done != 0 || actor->busy)
            end_wait(&w);
        else
            err = pause_on(&w, f, actor->lane, deadline_ns);
    } while (done == 0 && err == 0);
    end_wait(&w);
    return done != 0 ? done : err;
}

static int barrier_step(void *state, gwi_fabric *f, int64_t now_ns)
{
    (void)now_ns;
    return pass_barrier(state, f);
}

static int drive(const struct conformance_case *c, const struct run *run, gwi_fabric *f)
{
    struct actor after = {.run = run};
    void *state = NULL;
    int err = begin_state(c, run, f, &state);

    if (err >= 0)
        err = drive_steps(c->step, state, f);
    end_state(c, state);
    return err >= 0 && !c->last ? drive_steps(barrier_step, &after, f) : err;
}

/* All cases on one fabric, which is left at the end.  Returns the exit code. */
static int drive_all(gwi_fabric *f)
{
    struct run run = {
        .seed = (uint64_t)args.seed, .node_size = args.node_size, .heavy = !args.light};
    int rank = f->place.rank, size = f->place.size, n = 0, has_left = 0;

    if (rank == 0)
        printf("1..%d\n", count_cases(size));
    for (int i = 0; all_cases[i] != NULL; i++) {
        const struct conformance_case *c = all_cases[i];
        if (!runs(c, size))
            continue;
        n++;
        int err = drive(c, &run, f);
        if (err < 0) {
            /* A rank that only noticed the end of another one leaves the word to it. */
            if (err != GW_EPEER)
                printf("not ok %d - %s\n# rank %d: %s: %s\n", n, c->name, rank, gw_errname(err),
                       gw_last_error());
            fflush(stdout);
            return 1;
        }
        has_left = c->last;
        if (rank == 0)
            printf("ok %d - %s\n", n, c->name);
        fflush(stdout);
    }
    if (!has_left)
        f->ops->leave(f);
    return 0;
}

static void one_process(const struct processes *all, int rank)
{
    gwi_job job = job_of(all, rank, args.node_size > 0 ? args.node_size : all->n);
    gwi_fabric *f;

    job.fabric = "shm";
    REQUIRE(gwi_fabric_open(&job, &f) == 0);
    int code = drive_all(f);
    fflush(NULL);
    _exit(code);
}

static int run_shm(void)
{
    struct processes all;
    int n_failed = 0;

    start_processes(&all, args.size, one_process);
    wait_for_processes(&all);
    for (int rank = 0; rank < args.size; rank++)
        if (all.statuses[rank] != 0) {
            printf("# rank %d ended with wait status %#x\n", rank, (unsigned)all.statuses[rank]);
            n_failed++;
        }
    return n_failed > 0;
}

static int run_env(void)
{
    gw_world_options options = GW_WORLD_OPTIONS_INIT;
    gwi_job job;
    gwi_fabric *f;

    options.node_size = args.node_size;
    if (gwi_job_find(&options, &job) < 0 || gwi_fabric_open(&job, &f) < 0) {
        printf("Bail out! %s\n", gw_last_error());
        return 1;
    }
    return drive_all(f);
}

/* in a simulation */

static int simulate(const struct conformance_case *c, const struct run *run, gwi_sim *sim)
{
    void *states[GWI_SIM_MAX] = {NULL};
    int err = 0;

    for (int rank = 0; err >= 0 && rank < args.size; rank++)
        err = begin_state(c, run, gwi_sim_fabric(sim, rank), &states[rank]);
    if (err >= 0)
        err = gwi_sim_run(sim, c->step, states, 0);
    for (int rank = 0; rank < args.size; rank++)
        end_state(c, states[rank]);
    return err;
}

static int simulate_seed(const struct conformance_case *c, int seed)
{
    /* What takes long is done for one seed. */
    struct run run = {
        .seed = (uint64_t)seed, .node_size = args.node_size, .heavy = seed == 1 && !args.light};
    gwi_sim_options options = {
        .seed = (uint64_t)seed, .size = args.size, .node_size = args.node_size};
    gwi_sim *sim;

    options.trace = args.trace ? stderr : NULL;
    int err = gwi_sim_new(&options, &sim);
    if (err < 0)
        return err;
    err = simulate(c, &run, sim);
    if (err >= 0 && !gwi_sim_valid(sim))
        err = gwi_fail(GW_ESTATE, "the simulation's books are wrong after seed %d", seed);
    gwi_sim_free(sim);
    return err;
}

static int simulate_seeds(const struct conformance_case *c, int number)
{
    for (int seed = args.seed; seed < args.seed + args.n_seeds; seed++)
        if (simulate_seed(c, seed) < 0) {
            printf("not ok %d - %s\n# %s\n", number, c->name, gw_last_error());
            printf("# replay: %s --fabric sim -n %d --node-size %d --case %s --seed %d --trace%s\n",
                   args.program, args.size, args.node_size > 0 ? args.node_size : args.size,
                   c->name, seed, args.light ? " --light" : "");
            return 1;
        }
    printf("ok %d - %s\n", number, c->name);
    return 0;
}

static int run_sim(void)
{
    int n = 0, n_failed = 0;

    printf("1..%d\n", count_cases(args.size));
    for (int i = 0; all_cases[i] != NULL; i++)
        if (runs(all_cases[i], args.size)) {
            n_failed += simulate_seeds(all_cases[i], ++n);
            fflush(stdout);
        }
    return n_failed > 0;
}

/* the command line */

static int usage(void)
{
    fprintf(stderr,
            "usage: %s --fabric shm|sim|env [-n ranks] [--node-size k] [--case name]\n"
            "       [--seed first] [--seeds how-many] [--trace] [--light]\n",
            args.program);
    return 2;
}

static int number(const char *what, int high, int *ret_value)
{
    return gwi_parse_int(what, optarg, 1, high, ret_value);
}

static int parse_args(int argc, char **argv)
{
    static const struct option options[] = {
        {"fabric", required_argument, NULL, 'f'}, {"node-size", required_argument, NULL, 'k'},
        {"case", required_argument, NULL, 'c'},   {"seed", required_argument, NULL, 's'},
        {"seeds", required_argument, NULL, 'S'},  {"trace", no_argument, NULL, 't'},
        {"light", no_argument, NULL, 'l'},        {NULL, 0, NULL, 0},
    };
    int key, err = 0;

    args.program = argv[0];
    while (err >= 0 && (key = getopt_long(argc, argv, "n:", options, NULL)) != -1)
        switch (key) {
        case 'f':
            args.fabric = optarg;
            break;
        case 'c':
            args.only = optarg;
            break;
        case 't':
            args.trace = 1;
            break;
        case 'l':
            args.light = 1;
            break;
        case 'n':
            err = number("-n", MAX_PROCESSES, &args.size);
            break;
        case 'k':
            err = number("--node-size", MAX_PROCESSES, &args.node_size);
            break;
        case 's':
            err = number("--seed", INT_MAX / 2, &args.seed);
            break;
        case 'S':
            err = number("--seeds", INT_MAX / 2, &args.n_seeds);
            break;
        default:
            return -1;
        }
    if (err >= 0 && count_cases(INT_MAX) == 0)
        err = gwi_fail(GW_EINVAL, "there is no case '%s'", args.only);
    if (err >= 0 && optind < argc)
        err = gwi_fail(GW_EINVAL, "'%s' is not understood", argv[optind]);
    if (err < 0)
        fprintf(stderr, "%s\n", gw_last_error());
    return err;
}

int main(int argc, char **argv)
{
    if (parse_args(argc, argv) < 0)
        return usage();
    if (strcmp(args.fabric, "shm") == 0)
        return run_shm();
    if (strcmp(args.fabric, "sim") == 0)
        return run_sim();
    return strcmp(args.fabric, "env") == 0 ? run_env() : usage();
}
