/* job.h - a job from the start of its ranks to the end of the last one. */
#ifndef GWI_LAUNCH_JOB_H
#define GWI_LAUNCH_JOB_H

#include "launch/launch.h"

/* As gwi_launch(), for options that have been checked, in a process that has
 * stdin, stdout and stderr. */
int gwi_job_run(const gw_launch_options *opt, const gwi_launch_times *times, int *ret_exit_code);

#endif
