/* job_test.c - which job a process finds itself in. */
#include "fabric/job.h"
#include "base/clock.h"
#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const variables[] = {
    "GODWIT_JOB",
    "GODWIT_RANK",
    "GODWIT_SIZE",
    "GODWIT_NODE_SIZE",
    "GODWIT_TIMEOUT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_PROCID",
    "GODWIT_PLUGINS",
};

static int clean(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    return 0;
}

static const gw_world_options no_wishes = GW_WORLD_OPTIONS_INIT;

static gwi_job find(const gw_world_options *opt)
{
    gwi_job job;

    assert_int_equal(gwi_job_find(opt, &job), 0);
    return job;
}

static void refused(const gw_world_options *opt, int err, const char *word)
{
    gwi_job job = {.rank = 42};

    assert_int_equal(gwi_job_find(opt, &job), err);
    assert_non_null(strstr(gw_last_error(), word));
    assert_int_equal(job.rank, 42);
}

static void set_torchrun(const char *rank, const char *size, const char *local_size)
{
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "29500", 1);
    setenv("RANK", rank, 1);
    setenv("WORLD_SIZE", size, 1);
    setenv("LOCAL_WORLD_SIZE", local_size, 1);
}

static void without_any_sign_it_is_a_world_of_one(void **state)
{
    (void)state;
    gwi_job job = find(&no_wishes);

    assert_int_equal(job.rank, 0);
    assert_int_equal(job.size, 1);
    assert_int_equal(job.node_size, 1);
    assert_true(job.timeout_ns == 300 * GWI_SECOND);
    assert_non_null(strstr(job.reason, "world of one"));
}

static void godwit_runs_variables_are_followed(void **state)
{
    (void)state;
    setenv("GODWIT_JOB", "abc", 1);
    setenv("GODWIT_RANK", "2", 1);
    setenv("GODWIT_SIZE", "4", 1);
    setenv("GODWIT_NODE_SIZE", "2", 1);
    gwi_job job = find(&no_wishes);
    assert_int_equal(job.rank, 2);
    assert_int_equal(job.size, 4);
    assert_int_equal(job.node_size, 2);
    assert_true(job.launched);
}

static void half_set_variables_are_refused(void **state)
{
    (void)state;
    setenv("GODWIT_RANK", "2", 1);
    refused(&no_wishes, GW_EINVAL, "GODWIT_JOB");
    setenv("GODWIT_JOB", "abc", 1);
    refused(&no_wishes, GW_EINVAL, "GODWIT_SIZE");
    setenv("GODWIT_SIZE", "2", 1);
    refused(&no_wishes, GW_EINVAL, "GODWIT_RANK is 2");
    setenv("GODWIT_SIZE", "two", 1);
    refused(&no_wishes, GW_EINVAL, "'two'");
}

static void torchruns_variables_are_followed(void **state)
{
    (void)state;
    set_torchrun("3", "4", "4");
    gwi_job job = find(&no_wishes);
    assert_int_equal(job.rank, 3);
    assert_int_equal(job.size, 4);
    assert_non_null(strstr(job.reason, "torchrun"));
}

static void torchruns_restarts_and_second_jobs_have_other_names(void **state)
{
    (void)state;
    set_torchrun("0", "2", "2");
    gwi_job first = find(&no_wishes);
    setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
    gwi_job restarted = find(&no_wishes);
    setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
    setenv("MASTER_PORT", "29501", 1);
    gwi_job second = find(&no_wishes);
    assert_string_not_equal(first.name, restarted.name);
    assert_string_not_equal(first.name, second.name);
    assert_string_not_equal(restarted.name, second.name);
}

static void a_torchrun_job_over_several_machines_needs_mpi(void **state)
{
    (void)state;
    set_torchrun("3", "8", "4");
    refused(&no_wishes, GW_EUNSUP, "mpirun");
}

static void godwit_run_goes_before_torchrun_and_the_caller_before_both(void **state)
{
    (void)state;
    set_torchrun("3", "4", "4");
    setenv("GODWIT_JOB", "abc", 1);
    setenv("GODWIT_RANK", "1", 1);
    setenv("GODWIT_SIZE", "2", 1);
    assert_int_equal(find(&no_wishes).size, 2);
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    opt.size = 3;
    opt.rank = 2;
    opt.job = "mine";
    gwi_job job = find(&opt);
    assert_int_equal(job.size, 3);
    assert_int_equal(job.rank, 2);
    assert_false(job.launched);
    opt.with_parent = 1;
    assert_int_equal(gwi_job_find(&opt, &job), 0);
    assert_true(job.launched);
}

static void the_same_name_from_different_sources_is_not_the_same_job(void **state)
{
    (void)state;
    setenv("GODWIT_JOB", "abc", 1);
    setenv("GODWIT_RANK", "0", 1);
    setenv("GODWIT_SIZE", "2", 1);
    gwi_job run = find(&no_wishes);
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    opt.size = 2;
    opt.job = "abc";
    assert_string_not_equal(run.name, find(&opt).name);
}

static void wishes_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;

    opt.rank = 1;
    refused(&opt, GW_EINVAL, "without size");
    opt.size = 1;
    refused(&opt, GW_EINVAL, "rank is 1");
    opt.size = -2;
    refused(&opt, GW_EINVAL, "size is -2");
    opt.size = 2;
    opt.job = "";
    refused(&opt, GW_EINVAL, "job is ''");
    opt.job = NULL;
    opt.node_size = -1;
    refused(&opt, GW_EINVAL, "node_size is -1");
    opt.node_size = 0;
    opt.timeout_s = -1;
    refused(&opt, GW_EINVAL, "timeout is -1");
}

static void nodes_larger_than_the_job_hold_the_whole_job(void **state)
{
    (void)state;
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;

    opt.size = 3;
    opt.node_size = 100;
    assert_int_equal(find(&opt).node_size, 3);
}

/* under an MPI launcher; no MPI is started here */

/* A directory with files of these names, for GODWIT_PLUGINS. */
static void set_plugins(const char *first, const char *second)
{
    static char dir[] = "/tmp/job-test-XXXXXX";
    static int made;
    char path[256];

    if (!made)
        assert_non_null(mkdtemp(dir));
    made = 1;
    const char *const all[] = {"godwit-openmpi.so", "godwit-mpich.so"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, all[i]);
        unlink(path);
        if (strcmp(first, all[i]) == 0 || strcmp(second, all[i]) == 0)
            fclose(fopen(path, "w"));
    }
    if (first[0] == '\0' && second[0] == '\0') {
        rmdir(dir);
        made = 0;
        memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
        return;
    }
    setenv("GODWIT_PLUGINS", dir, 1);
}

static int remove_plugins(void **state)
{
    (void)state;
    set_plugins("", "");
    return 0;
}

static void set_launcher(const char *size_name, const char *size, const char *rank_name,
                         const char *rank)
{
    setenv(size_name, size, 1);
    setenv(rank_name, rank, 1);
}

static void under_mpirun_the_job_runs_on_that_mpi(void **state)
{
    (void)state;
    set_plugins("godwit-openmpi.so", "godwit-mpich.so");
    set_launcher("OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_RANK", "3");
    gwi_job job = find(&no_wishes);
    assert_string_equal(job.fabric, "mpi");
    assert_int_equal(job.mpi, GWI_OPENMPI);
    assert_int_equal(job.size, 4);
    assert_int_equal(job.rank, 3);
    assert_non_null(strstr(job.reason, "OMPI_COMM_WORLD_SIZE is 4"));
    clean(NULL);
    set_plugins("godwit-openmpi.so", "godwit-mpich.so");
    set_launcher("PMI_SIZE", "2", "PMI_RANK", "0");
    job = find(&no_wishes);
    assert_int_equal(job.mpi, GWI_MPICH);
    assert_non_null(strstr(job.reason, "MPICH"));
}

static void an_mpi_without_its_plugin_is_refused_with_what_to_do(void **state)
{
    (void)state;
    set_plugins("godwit-openmpi.so", "");
    set_launcher("PMI_SIZE", "4", "PMI_RANK", "0");
    refused(&no_wishes, GW_EUNSUP, "godwit-mpich.so");
    refused(&no_wishes, GW_EUNSUP, "build Godwit where MPICH's mpicc is found");
}

static void mpirun_of_one_process_is_a_world_of_one_and_needs_no_mpi(void **state)
{
    (void)state;
    set_launcher("OMPI_COMM_WORLD_SIZE", "1", "OMPI_COMM_WORLD_RANK", "0");
    gwi_job job = find(&no_wishes);
    assert_int_equal(job.size, 1);
    assert_string_equal(job.fabric, "shm");
}

static void of_two_mpi_launchers_that_with_several_processes_counts(void **state)
{
    (void)state;
    set_plugins("godwit-openmpi.so", "godwit-mpich.so");
    set_launcher("OMPI_COMM_WORLD_SIZE", "1", "OMPI_COMM_WORLD_RANK", "0");
    set_launcher("PMI_SIZE", "4", "PMI_RANK", "2");
    gwi_job job = find(&no_wishes);
    assert_int_equal(job.mpi, GWI_MPICH);
    assert_int_equal(job.rank, 2);
}

static void godwit_run_inside_mpirun_counts(void **state)
{
    (void)state;
    set_launcher("OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_RANK", "3");
    setenv("GODWIT_JOB", "abc", 1);
    setenv("GODWIT_RANK", "1", 1);
    setenv("GODWIT_SIZE", "2", 1);
    gwi_job job = find(&no_wishes);
    assert_int_equal(job.size, 2);
    assert_string_equal(job.fabric, "shm");
}

static void tasks_of_srun_need_a_way_to_find_each_other(void **state)
{
    (void)state;
    set_plugins("godwit-mpich.so", "");
    set_launcher("SLURM_STEP_NUM_TASKS", "4", "SLURM_PROCID", "1");
    refused(&no_wishes, GW_EUNSUP, "srun --mpi=pmix");
    setenv("PMIX_RANK", "1", 1);
    gwi_job job = find(&no_wishes);
    assert_int_equal(job.size, 4);
    assert_int_equal(job.rank, 1);
    assert_int_equal(job.mpi, GWI_MPICH);
}

static void launchers_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    set_launcher("PMI_SIZE", "many", "PMI_RANK", "0");
    refused(&no_wishes, GW_EINVAL, "PMI_SIZE is 'many'");
    set_launcher("PMI_SIZE", "2", "PMI_RANK", "2");
    refused(&no_wishes, GW_EINVAL, "PMI_RANK is '2'");
}

#define CASE(name) cmocka_unit_test_setup(name, clean)
#define WITH_PLUGINS(name) cmocka_unit_test_setup_teardown(name, clean, remove_plugins)
GWI_TESTS(CASE(without_any_sign_it_is_a_world_of_one), CASE(godwit_runs_variables_are_followed),
          CASE(half_set_variables_are_refused), CASE(torchruns_variables_are_followed),
          CASE(torchruns_restarts_and_second_jobs_have_other_names),
          CASE(a_torchrun_job_over_several_machines_needs_mpi),
          CASE(godwit_run_goes_before_torchrun_and_the_caller_before_both),
          CASE(the_same_name_from_different_sources_is_not_the_same_job),
          CASE(wishes_that_make_no_sense_are_refused),
          CASE(nodes_larger_than_the_job_hold_the_whole_job),
          CASE(mpirun_of_one_process_is_a_world_of_one_and_needs_no_mpi),
          CASE(godwit_run_inside_mpirun_counts), CASE(launchers_that_make_no_sense_are_refused),
          WITH_PLUGINS(under_mpirun_the_job_runs_on_that_mpi),
          WITH_PLUGINS(an_mpi_without_its_plugin_is_refused_with_what_to_do),
          WITH_PLUGINS(of_two_mpi_launchers_that_with_several_processes_counts),
          WITH_PLUGINS(tasks_of_srun_need_a_way_to_find_each_other))
