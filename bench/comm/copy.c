/* copy.c - the limit: how fast two cores together copy from memory to memory.
 *
 *     copy BYTES REPEATS
 *
 * Two threads, each kept on a core of its own, copy one half each by memcpy, from memory
 * that was touched beforehand into such memory.  They start together, and a repeat has taken
 * as long as the slower of them.  Prints the median over the repeats: BYTES divided by the
 * time.  So a byte that is copied counts once, though it is read and written.   */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_THREADS = 2, MOST_REPEATS = 1000, N_WARM_UP = 2 };

static struct {
    int n_repeats;
    size_t half_bytes;
    char *from, *to;
    pthread_barrier_t start;
    int cores[N_THREADS];
    double seconds[N_THREADS][MOST_REPEATS];
} run;

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *copy_half(void *which)
{
    const int number = *(int *)which;
    const size_t offset = (size_t)number * run.half_bytes;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(run.cores[number], &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) {
        fprintf(stderr, "cannot stay on core %d\n", run.cores[number]);
        exit(1);
    }
    memset(run.from + offset, 1, run.half_bytes);
    memset(run.to + offset, 2, run.half_bytes);
    for (int i = -N_WARM_UP; i < run.n_repeats; i++) {
        pthread_barrier_wait(&run.start);
        double start_s = now_s();
        memcpy(run.to + offset, run.from + offset, run.half_bytes);
        if (i >= 0)
            run.seconds[number][i] = now_s() - start_s;
    }
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int find_cores(void)
{
    cpu_set_t set;
    int n = 0;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    for (int core = 0; core < CPU_SETSIZE && n < N_THREADS; core++)
        if (CPU_ISSET(core, &set))
            run.cores[n++] = core;
    return n == N_THREADS;
}

int main(int argc, char **argv)
{
    int numbers[N_THREADS];
    pthread_t threads[N_THREADS];

    run.half_bytes = argc == 3 ? (size_t)atoll(argv[1]) / N_THREADS : 0;
    run.n_repeats = argc == 3 ? atoi(argv[2]) : 0;
    if (run.half_bytes == 0 || run.n_repeats < 1 || run.n_repeats > MOST_REPEATS) {
        fprintf(stderr, "usage: %s BYTES REPEATS\n", argv[0]);
        return 2;
    }
    run.from = malloc(N_THREADS * run.half_bytes);
    run.to = malloc(N_THREADS * run.half_bytes);
    if (run.from == NULL || run.to == NULL || !find_cores()) {
        fprintf(stderr, "needs two cores and %zu MB\n", (run.half_bytes * 2 * N_THREADS) >> 20);
        return 1;
    }
    pthread_barrier_init(&run.start, NULL, N_THREADS);
    for (int i = 0; i < N_THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, copy_half, &numbers[i]) != 0)
            return 1;
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);

    double *slower = run.seconds[0];
    for (int i = 0; i < run.n_repeats; i++)
        if (run.seconds[1][i] > slower[i])
            slower[i] = run.seconds[1][i];
    qsort(slower, (size_t)run.n_repeats, sizeof *slower, ascending);
    printf("{\"bytes\": %zu, \"gb_per_s\": %.3f}\n", N_THREADS * run.half_bytes,
           (double)(N_THREADS * run.half_bytes) / slower[run.n_repeats / 2] / 1e9);
    free(run.from);
    free(run.to);
    return 0;
}
