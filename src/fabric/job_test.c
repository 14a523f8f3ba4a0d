/* job_test.c - which job a process finds itself in. */
#include "fabric/job.h"
#include "base/clock.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

static const char *const variables[] = {
    "GODWIT_JOB", "GODWIT_RANK", "GODWIT_SIZE", "GODWIT_NODE_SIZE", "GODWIT_TIMEOUT", "RANK", "WORLD_SIZE",
    "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
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

static void under_mpirun_it_refuses_to_be_many_worlds_of_one(void **state)
{
    (void)state;
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    assert_int_equal(find(&no_wishes).size, 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    refused(&no_wishes, GW_EUNSUP, "OMPI_COMM_WORLD_SIZE");
}

#define CASE(name) cmocka_unit_test_setup(name, clean)
GWI_TESTS(CASE(without_any_sign_it_is_a_world_of_one), CASE(godwit_runs_variables_are_followed),
          CASE(half_set_variables_are_refused), CASE(torchruns_variables_are_followed),
          CASE(torchruns_restarts_and_second_jobs_have_other_names),
          CASE(a_torchrun_job_over_several_machines_needs_mpi),
          CASE(godwit_run_goes_before_torchrun_and_the_caller_before_both),
          CASE(the_same_name_from_different_sources_is_not_the_same_job),
          CASE(wishes_that_make_no_sense_are_refused), CASE(nodes_larger_than_the_job_hold_the_whole_job),
          CASE(under_mpirun_it_refuses_to_be_many_worlds_of_one))
