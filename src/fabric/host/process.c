/* process.c - start times from /proc, ends through pidfd. */
#include "fabric/host/process.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t gwi_process_start(pid_t pid)
{
    char path[64], text[1024];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';

    /* Field 22, counted behind the name, which may hold blanks and brackets. */
    char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

int gwi_process_open(pid_t pid, uint64_t start, int *ret_fd)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0 && errno == ESRCH)
        return 1;
    if (fd < 0)
        return gwi_fail_errno("watching process %d by pidfd (needs Linux 5.3)", (int)pid);
    /* Looked at after the open: if it matches, the descriptor is of that process. */
    if (gwi_process_start(pid) != start) {
        close(fd);
        return 1;
    }
    *ret_fd = fd;
    return 0;
}
