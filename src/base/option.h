/* option.h - settings from the environment, all in one table.
 *
 * A setting is read when it is asked for, so a program may set it before it
 * joins a job.  A value that cannot be read is an error that names it, never a
 * silent default.                                                            */
#ifndef GWI_BASE_OPTION_H
#define GWI_BASE_OPTION_H

#include <godwit/base.h>

/* The whole table.  INT is a whole number in [low, high]; SECONDS a number of
 * seconds above 0; TEXT is any text.  An empty variable counts as not given.
 *
 *  id          type     low high     default  help                            */
/* clang-format off */
#define GWI_OPTIONS(X)                                                                                      \
    X(JOB,       TEXT,    0,  0,       NULL,   "name of the job; processes that give the same name meet")   \
    X(RANK,      INT,     0,  4095,    NULL,   "this process's number in the job")                          \
    X(SIZE,      INT,     1,  4096,    NULL,   "how many processes the job has")                            \
    X(NODE_SIZE, INT,     1,  4096,    NULL,   "cut the machine into virtual nodes of so many processes")   \
    X(TIMEOUT,   SECONDS, 0,  0,       "300",  "seconds that a wait may last before it fails with a reason")   \
    X(PLUGINS,   TEXT,    0,  0,       NULL,   "directory of the plugins for MPI; else beside the library") \
    X(TRACE,     TEXT,    0,  0,       NULL,   "file to write a trace of the job to, for Perfetto and godwit report")
/* clang-format on */

#define GWI_OPTION_ID(id, type, low, high, value, help) GWI_OPTION_##id,
typedef enum gwi_option { GWI_OPTIONS(GWI_OPTION_ID) GWI_N_OPTIONS } gwi_option;
#undef GWI_OPTION_ID

/* The name of the variable, such as "GODWIT_RANK". */
const char *gwi_option_name(gwi_option option);

/* Each returns 1 and the value if there is one (given or by default), 0 and
 * leaves `ret_value` alone if there is none, or an error if it cannot be read.
 * A text is borrowed from the environment. */
int gwi_option_int(gwi_option option, int *ret_value);
int gwi_option_seconds(gwi_option option, double *ret_value);
int gwi_option_text(gwi_option option, const char **ret_value);

/* Read `text` as a whole number in [low, high]; `what` names it in errors. */
int gwi_parse_int(const char *what, const char *text, int low, int high, int *ret_value);

#endif
