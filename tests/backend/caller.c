/* caller.c - programs whose calls of called.c are known, by mode:
 *
 *   threads N     4 threads and 2 forked children, each child with 1 more thread; N calls each, 8 N
 * in all time S        S seconds of processor time, 80 % in one function and 20 % in the other
 *   crash N       N calls, then a segmentation fault
 *   kill N        N calls, then kill -9 of itself
 *   exit N        N calls in a thread, which then calls exit
 *   exec N        N calls, then the same program again with `plain N`: 2 N in all
 *   plain N       N calls
 *   churn N       N threads one after the other, 1 call each
 *   dlopen N      opens, calls once and closes the library (LIBRARY in the environment) N times
 *   profhandler N a handler of its own for SIGPROF, then N calls */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

double called_tick(int unused, double x, double y);
void called_eighty(double seconds);
void called_twenty(double seconds);

static long n;

static void *call(void *unused)
{
    double sum = 0;

    for (long i = 0; i < n; i++)
        sum = called_tick(0, sum, 1.0);
    if (sum != (double)n)
        abort(); /* an argument or a result went astray */
    return unused;
}

static void *call_once(void *unused)
{
    if (called_tick(1, 1.0, 2.0) != 3.0)
        abort();
    return unused;
}

static void *call_and_exit(void *unused)
{
    call(unused);
    exit(7);
}

static void threads(void)
{
    pthread_t thread[4];

    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            call(NULL);
            pthread_create(&thread[0], NULL, call, NULL);
            pthread_join(thread[0], NULL);
            _exit(0);
        }
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, call, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    while (wait(NULL) > 0)
        ;
}

static void churn(void)
{
    pthread_t thread;

    for (long i = 0; i < n; i++) {
        pthread_create(&thread, NULL, call_once, NULL);
        pthread_join(thread, NULL);
    }
}

static void open_and_close(void)
{
    for (long i = 0; i < n; i++) {
        void *library = dlopen(getenv("LIBRARY"), RTLD_NOW | RTLD_LOCAL);
        double (*tick)(int, double, double) = NULL;
        if (library == NULL)
            abort();
        *(void **)&tick = dlsym(library, "called_tick");
        if (tick(0, 1.0, 1.0) != 2.0)
            abort();
        dlclose(library);
    }
}

static void ignore(int number)
{
    (void)number;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[1] : "";
    pthread_t thread;

    n = argc > 2 ? atol(argv[2]) : 0;
    if (strcmp(mode, "threads") == 0) {
        threads();
    } else if (strcmp(mode, "time") == 0) {
        called_eighty(atof(argv[2]));
        called_twenty(atof(argv[2]));
    } else if (strcmp(mode, "crash") == 0) {
        call(NULL);
        *(volatile int *)8 = 1;
    } else if (strcmp(mode, "kill") == 0) {
        call(NULL);
        kill(getpid(), SIGKILL);
    } else if (strcmp(mode, "exit") == 0) {
        pthread_create(&thread, NULL, call_and_exit, NULL);
        pause();
    } else if (strcmp(mode, "exec") == 0) {
        call(NULL);
        execl("/proc/self/exe", argv[0], "plain", argv[2], (char *)NULL);
    } else if (strcmp(mode, "plain") == 0) {
        call(NULL);
    } else if (strcmp(mode, "churn") == 0) {
        churn();
    } else if (strcmp(mode, "dlopen") == 0) {
        open_and_close();
    } else if (strcmp(mode, "profhandler") == 0) {
        signal(SIGPROF, ignore);
        pthread_create(&thread, NULL, call, NULL);
        pthread_join(thread, NULL);
    } else {
        return 2;
    }
    return 0;
}
