/* launch.h - a launch with times that tests can shorten. */
#ifndef GWI_LAUNCH_LAUNCH_H
#define GWI_LAUNCH_LAUNCH_H

#include <godwit/launch.h>

#include <stdint.h>

typedef struct gwi_launch_times {
    int64_t grace_ns; /* from the first failure to SIGTERM for the others */
    int64_t term_ns;  /* from SIGTERM to SIGKILL */
    int64_t drain_ns; /* from the last rank's end until its helpers' output no longer counts */
    /* One Ctrl-C can arrive twice: from the terminal, and passed on by a program
     * that has started this one.  A second within this time is the same one. */
    int64_t press_ns;
} gwi_launch_times;

int gwi_launch(const gw_launch_options *opt, const gwi_launch_times *times, int *ret_exit_code);

#endif
