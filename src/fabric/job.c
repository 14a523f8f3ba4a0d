/* job.c - reading the caller's wishes and the launchers' variables. */
#include "fabric/job.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/option.h"
#include "fabric/host/process.h"

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
        return gwi_fail(GW_EINVAL, "rank is %d; in a job of size %d it must be from 0 to %d", opt->rank,
                        opt->size, opt->size - 1);
    job->rank = opt->rank;
    job->size = opt->size;
    if (opt->job != NULL) {
        if (strlen(opt->job) == 0 || strlen(opt->job) > 128)
            return gwi_fail(GW_EINVAL, "job is '%.40s' with %zu characters; it must have 1 to 128",
                            opt->job, strlen(opt->job));
        snprintf(job->name, sizeof job->name, "given:%s", opt->job);
        snprintf(job->reason, sizeof job->reason, "size %d and job '%s' were given", opt->size, opt->job);
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

    if ((has_name = gwi_option_text(GWI_OPTION_JOB, &name)) < 0
        || (has_rank = gwi_option_int(GWI_OPTION_RANK, &job->rank)) < 0
        || (has_size = gwi_option_int(GWI_OPTION_SIZE, &job->size)) < 0)
        return GW_EINVAL;
    if (!has_name && !has_rank && !has_size)
        return 0;
    if (!has_name || !has_size)
        return gwi_fail(GW_EINVAL, "%s is set but %s is not; set GODWIT_JOB, GODWIT_SIZE and "
                        "GODWIT_RANK, or none of them",
                        has_name ? "GODWIT_JOB" : has_size ? "GODWIT_SIZE" : "GODWIT_RANK",
                        has_name ? "GODWIT_SIZE" : "GODWIT_JOB");
    if (!has_rank)
        job->rank = -1;
    if (job->rank >= job->size)
        return gwi_fail(GW_EINVAL, "GODWIT_RANK is %d but GODWIT_SIZE is %d; ranks go from 0 to %d",
                        job->rank, job->size, job->size - 1);
    if (strlen(name) > 128)
        return gwi_fail(GW_EINVAL, "GODWIT_JOB has %zu characters; at most 128 are allowed", strlen(name));
    snprintf(job->name, sizeof job->name, "run:%s", name);
    snprintf(job->reason, sizeof job->reason, "GODWIT_JOB, GODWIT_RANK and GODWIT_SIZE are set, as godwit run does");
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
    if ((err = gwi_parse_int("torchrun's WORLD_SIZE", size, 1, GWI_MAX_SIZE, &job->size)) < 0
        || (err = gwi_parse_int("torchrun's RANK", rank, 0, job->size - 1, &job->rank)) < 0
        || (err = gwi_parse_int("torchrun's LOCAL_WORLD_SIZE", env_or("LOCAL_WORLD_SIZE", size), 1,
                                INT_MAX, &local_size)) < 0)
        return err;
    if (local_size != job->size)
        return gwi_fail(GW_EUNSUP, "torchrun started %d of %d processes on this machine; a job that "
                        "spans machines needs MPI: start it with mpirun", local_size, job->size);
    /* The run id alone may be the word 'none'.  The agent's port is its own while
     * it lives, and the restart count tells its attempts apart. */
    snprintf(job->name, sizeof job->name, "torchrun:%.60s:%.60s:%.10s:%.10s", run,
             env_or("MASTER_ADDR", "?"), env_or("MASTER_PORT", "?"),
             env_or("TORCHELASTIC_RESTART_COUNT", "0"));
    snprintf(job->reason, sizeof job->reason, "torchrun's variables are set (RANK, WORLD_SIZE)");
    job->launched = 1;
    return 1;
}

static int from_mpirun(gwi_job *job)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    int size, err;

    (void)job;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value == NULL)
            continue;
        if ((err = gwi_parse_int(variables[i], value, 1, INT_MAX, &size)) < 0)
            return err;
        if (size > 1)
            return gwi_fail(GW_EUNSUP, "%s is %d, so an MPI launcher started this process, but this "
                            "Godwit has no MPI fabric; on one machine use godwit run -n %d",
                            variables[i], size, size);
    }
    return 0;
}

static int alone(gwi_job *job)
{
    job->rank = 0;
    job->size = 1;
    snprintf(job->name, sizeof job->name, "alone:%d:%llu", (int)getpid(),
             (unsigned long long)gwi_process_start(getpid()));
    snprintf(job->reason, sizeof job->reason, "no launcher is there and no size was given: a world of one");
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
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; start from GW_WORLD_OPTIONS_INIT", opt->size_bytes);
    if ((err = from_caller(opt, &job)) == 0 && (err = from_godwit_run(&job)) == 0
        && (err = from_torchrun(&job)) == 0 && (err = from_mpirun(&job)) == 0)
        err = alone(&job);
    if (err < 0 || (err = find_node_size(opt, &job)) < 0 || (err = find_timeout(opt, &job)) < 0)
        return err;
    *ret_job = job;
    return 0;
}
