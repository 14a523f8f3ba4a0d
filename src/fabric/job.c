/* job.c - reading the caller's wishes and the launchers' variables. */
#include "fabric/job.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/option.h"
#include "fabric/host/process.h"
#include "fabric/mpi/plugin.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Each source returns 1 if it describes the job, 0 if it is silent. */

static int from_caller(const gw_world_options *opt, gwi_job *job)
{
    if (opt->size == 0 && opt->rank < 0 && opt->job == NULL)
        return 0;
    if (opt->size == 0)
        return gwi_fail(GW_EINVAL, "%s was given without size; give the number of processes too",
                        opt->rank >= 0 ? "rank" : "job");
    if (opt->size < 0 || opt->size > GWI_MAX_SIZE)
        return gwi_fail(GW_EINVAL, "size is %d; it must be from 1 to %d", opt->size, GWI_MAX_SIZE);
    if (opt->rank >= opt->size || opt->rank < -1)
        return gwi_fail(GW_EINVAL, "rank is %d; in a job of size %d it must be from 0 to %d",
                        opt->rank, opt->size, opt->size - 1);
    job->rank = opt->rank;
    job->size = opt->size;
    if (opt->job != NULL) {
        if (strlen(opt->job) == 0 || strlen(opt->job) > 128)
            return gwi_fail(GW_EINVAL, "job is '%.40s' with %zu characters; it must have 1 to 128",
                            opt->job, strlen(opt->job));
        snprintf(job->name, sizeof job->name, "given:%s", opt->job);
        snprintf(job->reason, sizeof job->reason, "size %d and job '%s' were given", opt->size,
                 opt->job);
    } else {
        /* Processes that one parent started with the same size belong together. */
        pid_t parent = getppid();
        snprintf(job->name, sizeof job->name, "parent:%d:%llu:%d", (int)parent,
                 (unsigned long long)gwi_process_start(parent), opt->size);
        snprintf(job->reason, sizeof job->reason,
                 "size %d was given; the job is what process %d started", opt->size, (int)parent);
    }
    return 1;
}

static int from_godwit_run(gwi_job *job)
{
    const char *name;
    int has_rank, has_size, has_name;

    if ((has_name = gwi_option_text(GWI_OPTION_JOB, &name)) < 0 ||
        (has_rank = gwi_option_int(GWI_OPTION_RANK, &job->rank)) < 0 ||
        (has_size = gwi_option_int(GWI_OPTION_SIZE, &job->size)) < 0)
        return GW_EINVAL;
    if (!has_name && !has_rank && !has_size)
        return 0;
    if (!has_name || !has_size)
        return gwi_fail(GW_EINVAL,
                        "%s is set but %s is not; set GODWIT_JOB, GODWIT_SIZE and "
                        "GODWIT_RANK, or none of them",
                        has_name   ? "GODWIT_JOB"
                        : has_size ? "GODWIT_SIZE"
                                   : "GODWIT_RANK",
                        has_name ? "GODWIT_SIZE" : "GODWIT_JOB");
    if (!has_rank)
        job->rank = -1;
    if (job->rank >= job->size)
        return gwi_fail(GW_EINVAL, "GODWIT_RANK is %d but GODWIT_SIZE is %d; ranks go from 0 to %d",
                        job->rank, job->size, job->size - 1);
    if (strlen(name) > 128)
        return gwi_fail(GW_EINVAL, "GODWIT_JOB has %zu characters; at most 128 are allowed",
                        strlen(name));
    snprintf(job->name, sizeof job->name, GWI_RUN_NAME, name);
    snprintf(job->reason, sizeof job->reason,
             "GODWIT_JOB, GODWIT_RANK and GODWIT_SIZE are set, as godwit run does");
    job->launched = 1;
    return 1;
}

static const char *env_or(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : otherwise;
}

static int from_torchrun(gwi_job *job)
{
    const char *run = getenv("TORCHELASTIC_RUN_ID");
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    int local_size, err;

    if (run == NULL || rank == NULL || size == NULL)
        return 0;
    if ((err = gwi_parse_int("torchrun's WORLD_SIZE", size, 1, GWI_MAX_SIZE, &job->size)) < 0 ||
        (err = gwi_parse_int("torchrun's RANK", rank, 0, job->size - 1, &job->rank)) < 0 ||
        (err = gwi_parse_int("torchrun's LOCAL_WORLD_SIZE", env_or("LOCAL_WORLD_SIZE", size), 1,
                             INT_MAX, &local_size)) < 0)
        return err;
    if (local_size != job->size)
        return gwi_fail(GW_EUNSUP,
                        "torchrun started %d of %d processes on this machine; a job that "
                        "spans machines needs MPI: start it with mpirun",
                        local_size, job->size);
    /* The run id alone may be the word 'none'.  The agent's port is its own while
     * it lives, and the restart count tells its attempts apart. */
    snprintf(job->name, sizeof job->name, "torchrun:%.60s:%.60s:%.10s:%.10s", run,
             env_or("MASTER_ADDR", "?"), env_or("MASTER_PORT", "?"),
             env_or("TORCHELASTIC_RESTART_COUNT", "0"));
    snprintf(job->reason, sizeof job->reason, "torchrun's variables are set (RANK, WORLD_SIZE)");
    job->launched = 1;
    return 1;
}

/* What an MPI launcher says about the job. */
struct claim {
    gwi_mpi_kind mpi; /* whose launcher; GWI_NO_MPI: one that serves all of them */
    const char *variable;
    int size, rank; /* size 0: it says nothing; rank -1: unknown */
};

static int read_claim(struct claim *claim, const char *rank_variable)
{
    const char *size = getenv(claim->variable), *rank = getenv(rank_variable);
    int err = 0;

    claim->rank = -1;
    if (size == NULL)
        return 0;
    err = gwi_parse_int(claim->variable, size, 1, GWI_MAX_SIZE, &claim->size);
    if (err == 0 && rank != NULL)
        err = gwi_parse_int(rank_variable, rank, 0, claim->size - 1, &claim->rank);
    return err;
}

/* Slurm's srun starts tasks for any MPI, if it was told to. */
static int read_slurm(struct claim *claim)
{
    int err = read_claim(claim, "SLURM_PROCID");

    if (err < 0 || claim->size <= 1 || getenv("PMIX_RANK") != NULL || getenv("PMI_RANK") != NULL)
        return err;
    return gwi_fail(
        GW_EUNSUP,
        "srun started %d tasks (SLURM_STEP_NUM_TASKS) but gave them no way to find each other; "
        "use srun --mpi=pmix or mpirun",
        claim->size);
}

static gwi_mpi_kind launcher_of(const char *program)
{
    static const char *const openmpi[] = {"orte", "prte", "mpirun", "mpiexec"};

    if (strncmp(program, "hydra_", 6) == 0)
        return GWI_MPICH;
    for (size_t i = 0; i < sizeof openmpi / sizeof openmpi[0]; i++)
        if (strncmp(program, openmpi[i], strlen(openmpi[i])) == 0)
            return GWI_OPENMPI;
    return GWI_NO_MPI;
}

/* Whose launcher is the nearest among the processes that we descend from.  MPICH's
 * ranks are children of its hydra_pmi_proxy, Open MPI's of its mpirun or daemon. */
static gwi_mpi_kind nearest_launcher(void)
{
    char path[64], text[512], program[64];
    gwi_mpi_kind found = GWI_NO_MPI;
    int pid = (int)getppid();

    while (pid > 1 && found == GWI_NO_MPI) {
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
        if (fd >= 0)
            close(fd);
        text[n > 0 ? n : 0] = '\0';
        if (sscanf(text, "%*d (%63[^)]) %*c %d", program, &pid) != 2)
            break;
        found = launcher_of(program);
    }
    return found;
}

/* Which of several launchers counts, if one started the other: that whose MPI is
 * loaded, else the inner one. */
static const struct claim *choose_claim(const struct claim *claims, int n,
                                        const gwi_mpi_loaded *loaded, int *ret_several)
{
    const struct claim *chosen = NULL;
    int several = 0;

    for (int i = 0; i < n; i++)
        if (claims[i].size > 1) {
            several += claims[i].mpi != GWI_NO_MPI;
            chosen = chosen == NULL ? &claims[i] : chosen;
        }
    if (several > 1) {
        gwi_mpi_kind wanted = loaded->kind != GWI_NO_MPI ? loaded->kind : nearest_launcher();
        for (int i = 0; i < n; i++)
            if (claims[i].size > 1 && claims[i].mpi == wanted)
                chosen = &claims[i];
    }
    *ret_several = several > 1;
    return chosen;
}

static int two_mpis(const struct claim *claim, const gwi_mpi_loaded *loaded)
{
    const char *launcher = gwi_mpi_name(claim->mpi), *library = gwi_mpi_name(loaded->kind);

    return gwi_fail(
        GW_EUNSUP,
        "%s's launcher started this process (%s is %d), but %s is loaded in it already (%s, "
        "perhaps by mpi4py), and two MPIs in one process crash; start the job with the mpirun of "
        "%s, or "
        "use an mpi4py built for %s",
        launcher, claim->variable, claim->size, library, loaded->path, library, launcher);
}

/* An MPI that runs in this process knows best. */
static int from_running_mpi(const struct claim *claim, const gwi_mpi_loaded *loaded, gwi_job *job)
{
    const struct gwi_mpi_shim *shim;
    int err, code;

    if ((err = gwi_plugin_load(loaded->kind, &shim)) < 0)
        return err;
    if ((code = shim->world(&job->rank, &job->size)) != 0)
        return gwi_mpi_failed(shim, code, "asking for the rank");
    if (job->size > 1) {
        job->mpi = loaded->kind;
        snprintf(job->reason, sizeof job->reason, "%s runs in this process",
                 gwi_mpi_name(loaded->kind));
        return 1;
    }
    if (claim != NULL)
        return gwi_fail(
            GW_EUNSUP,
            "%s is %d, but %s, which runs in this process, knows of 1 process only: it does "
            "not belong to that launcher; start the job with the mpirun of %s",
            claim->variable, claim->size, gwi_mpi_name(loaded->kind), gwi_mpi_name(loaded->kind));
    return 0; /* started without a launcher: a world of one */
}

static int from_claim(const struct claim *claim, int several, const gwi_mpi_loaded *loaded,
                      gwi_job *job)
{
    job->mpi = claim->mpi != GWI_NO_MPI ? claim->mpi : loaded->kind;
    /* Slurm does not say which MPI; ours is the one that there is a plugin for. */
    if (job->mpi == GWI_NO_MPI)
        job->mpi = gwi_plugin_find(GWI_OPENMPI) == 0 ? GWI_OPENMPI : GWI_MPICH;
    int err = gwi_plugin_find(job->mpi);
    if (err < 0)
        return gwi_fail(err, "%s, or on one machine use godwit run -n %d", gw_last_error(),
                        claim->size);
    job->rank = claim->rank;
    job->size = claim->size;
    snprintf(job->reason, sizeof job->reason, "%s is %d, so %s's launcher started this process%s",
             claim->variable, claim->size, gwi_mpi_name(job->mpi),
             several ? "; another one's variables are set too, but this one is nearer" : "");
    return 1;
}

static int from_mpirun(gwi_job *job)
{
    struct claim claims[] = {
        {.mpi = GWI_OPENMPI, .variable = "OMPI_COMM_WORLD_SIZE"},
        {.mpi = GWI_MPICH, .variable = "PMI_SIZE"},
        {.mpi = GWI_NO_MPI, .variable = "SLURM_STEP_NUM_TASKS"},
    };
    int err, several;

    if ((err = read_claim(&claims[0], "OMPI_COMM_WORLD_RANK")) < 0 ||
        (err = read_claim(&claims[1], "PMI_RANK")) < 0)
        return err;
    /* mpirun inside a Slurm job: its own variables say more. */
    if (claims[0].size == 0 && claims[1].size == 0 && (err = read_slurm(&claims[2])) < 0)
        return err;

    gwi_mpi_loaded loaded = gwi_mpi_find_loaded();
    const struct claim *claim = choose_claim(claims, 3, &loaded, &several);
    if (claim != NULL && loaded.kind != GWI_NO_MPI && claim->mpi != GWI_NO_MPI &&
        claim->mpi != loaded.kind)
        return two_mpis(claim, &loaded);
    if (loaded.running)
        err = from_running_mpi(claim, &loaded, job);
    else
        err = claim != NULL ? from_claim(claim, several, &loaded, job) : 0;
    if (err == 1) {
        job->fabric = "mpi";
        job->launched = 1;
    }
    return err;
}

static int alone(gwi_job *job)
{
    job->rank = 0;
    job->size = 1;
    snprintf(job->name, sizeof job->name, "alone:%d:%llu", (int)getpid(),
             (unsigned long long)gwi_process_start(getpid()));
    snprintf(job->reason, sizeof job->reason,
             "no launcher is there and no size was given: a world of one");
    return 1;
}

static int find_node_size(const gw_world_options *opt, gwi_job *job)
{
    int node_size = opt->node_size, err = 0;

    if (node_size < 0)
        return gwi_fail(GW_EINVAL, "node_size is %d; it must be at least 1", node_size);
    if (node_size == 0 && (err = gwi_option_int(GWI_OPTION_NODE_SIZE, &node_size)) < 0)
        return err;
    job->node_size = node_size == 0 || node_size > job->size ? job->size : node_size;
    return 0;
}

static int find_timeout(const gw_world_options *opt, gwi_job *job)
{
    double seconds = opt->timeout_s;
    int err;

    if (!(seconds >= 0))
        return gwi_fail(GW_EINVAL, "timeout is %g s; it must be above 0", seconds);
    if (seconds == 0 && (err = gwi_option_seconds(GWI_OPTION_TIMEOUT, &seconds)) < 0)
        return err;
    job->timeout_ns = gwi_seconds_to_ns(seconds);
    return 0;
}

int gwi_job_find(const gw_world_options *opt, gwi_job *ret_job)
{
    gwi_job job = {.rank = -1, .fabric = "shm"};
    int err;

    if (opt->size_bytes < sizeof *opt)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; start from GW_WORLD_OPTIONS_INIT",
                        opt->size_bytes);
    if ((err = from_caller(opt, &job)) == 0 && (err = from_godwit_run(&job)) == 0 &&
        (err = from_torchrun(&job)) == 0 && (err = from_mpirun(&job)) == 0)
        err = alone(&job);
    if (err < 0 || (err = find_node_size(opt, &job)) < 0 || (err = find_timeout(opt, &job)) < 0)
        return err;
    job.launched |= opt->with_parent != 0;
    *ret_job = job;
    return 0;
}
