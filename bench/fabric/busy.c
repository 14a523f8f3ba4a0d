/* busy.c - a process that wants a core all the time and does nothing with it.
 *
 *     busy SECONDS
 *
 * It ends when it is told to, when the process that started it is gone, and
 * after SECONDS at the latest: it is never left behind.                      */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int seconds = argc == 2 ? atoi(argv[1]) : 0;

    if (seconds < 1) {
        fprintf(stderr, "usage: %s SECONDS\n", argv[0]);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm((unsigned)seconds);
    /* The driver reads this byte, and so knows that all the busy processes run
     * before it measures; if the driver is gone already, writing kills. */
    if (write(STDOUT_FILENO, "b", 1) != 1)
        return 1;
    for (volatile unsigned long turns = 0;; turns++)
        ;
}
