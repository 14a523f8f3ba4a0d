/* process.h - a process of this machine, told apart from a later one with the
 * same number by the time when it started.                                   */
#ifndef GWI_FABRIC_HOST_PROCESS_H
#define GWI_FABRIC_HOST_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

/* When `pid` started, in the kernel's ticks since boot; 0 if there is none. */
uint64_t gwi_process_start(pid_t pid);

/* A descriptor that becomes readable when the process ends.  Returns 0, 1 if it
 * has ended already (and no descriptor), or an error. */
int gwi_process_open(pid_t pid, uint64_t start, int *ret_fd);

#endif
