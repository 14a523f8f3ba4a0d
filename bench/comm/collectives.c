/* collectives.c - the measuring loop, the same for Godwit and for MPI.
 *
 *     collectives SECONDS REPEATS KIND:BYTES...
 *
 * KIND is allreduce, bcast, allgather, alltoall, reduce_scatter, or fresh: an allreduce
 * whose output is allocated for the call and freed after it, as PyTorch does it.  All
 * others write into memory that was allocated and touched beforehand.  BYTES is the size
 * of the larger side of one rank: the output of allgather, the input of reduce_scatter,
 * either of the others.  What is cut into blocks has at least one double in each.
 *
 * First one call's result is checked, every entry on every rank.  Then come calls to warm
 * up, until they take a quarter of SECONDS; they also tell how many calls make a repeat of
 * SECONDS, at least LEAST_CALLS.  A repeat begins with a barrier, and its calls follow one
 * another; its time is that of the slowest rank, divided by the calls.
 *
 * Rank 0 prints a line of JSON for each argument: the median, least and greatest time over
 * the repeats in microseconds, and the memory that the job shares (shared.h) in bytes:
 * allocated before the call that was checked, most while it ran, and touched after all
 * repeats.                                                                     */
#include "collectives.h"
#include "shared.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LEAST_CALLS = 2, /* 80 MB on four ranks takes longer than a repeat */
    MOST_CALLS = 10000000,
    MOST_REPEATS = 100,
    PERIOD = 1000, /* of the values in an array */
};

typedef struct job {
    int rank, size;
    double *in, *out; /* as many as the greatest argument needs */
    double *fresh;    /* of the last call of that kind; NULL before */
    double *gathered; /* one of each rank */
} job;

/* `n` is the whole array's length, or that of a block if there are blocks. */
typedef struct kind {
    const char *name;
    bool in_blocks;
    double *(*call)(job *j, size_t n);                        /* returns where the result is */
    size_t (*n_out)(const job *j, size_t n);                  /* its length */
    double (*expected)(const job *j, size_t n, size_t index); /* its entries */
} kind;

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* PyTorch aligns so. */
static double *allocate(size_t n)
{
    void *memory;

    if (posix_memalign(&memory, 64, n * sizeof(double)) != 0) {
        fprintf(stderr, "no memory for %zu doubles\n", n);
        exit(1);
    }
    return memory;
}

/* What a rank has at a place.  Whole numbers, so that sums are exact in any order. */
static double value(int rank, size_t index)
{
    return (double)(rank + 1) * (double)(index % PERIOD + 1);
}

static double sum_of_values(const job *j, size_t index)
{
    return (double)(j->size * (j->size + 1) / 2) * value(0, index);
}

/* ---------------------------------------------------------------- kinds */

static double *call_allreduce(job *j, size_t n)
{
    peer_allreduce(j->in, j->out, n);
    return j->out;
}

static double *call_fresh(job *j, size_t n)
{
    free(j->fresh);
    j->fresh = allocate(n);
    peer_allreduce(j->in, j->fresh, n);
    return j->fresh;
}

static double *call_bcast(job *j, size_t n)
{
    double *data = j->rank == 0 ? j->in : j->out;

    peer_bcast(data, n);
    return data;
}

static double *call_allgather(job *j, size_t n)
{
    peer_allgather(j->in, j->out, n);
    return j->out;
}

static double *call_alltoall(job *j, size_t n)
{
    peer_alltoall(j->in, j->out, n);
    return j->out;
}

static double *call_reduce_scatter(job *j, size_t n)
{
    peer_reduce_scatter(j->in, j->out, n);
    return j->out;
}

static size_t one(const job *j, size_t n)
{
    (void)j;
    return n;
}

static size_t one_a_rank(const job *j, size_t n)
{
    return n * (size_t)j->size;
}

static double expect_sum(const job *j, size_t n, size_t index)
{
    (void)n;
    return sum_of_values(j, index);
}

static double expect_roots(const job *j, size_t n, size_t index)
{
    (void)j, (void)n;
    return value(0, index);
}

static double expect_block_of_each(const job *j, size_t n, size_t index)
{
    (void)j;
    return value((int)(index / n), index % n);
}

static double expect_our_block_of_each(const job *j, size_t n, size_t index)
{
    return value((int)(index / n), (size_t)j->rank * n + index % n);
}

static double expect_our_block_of_sum(const job *j, size_t n, size_t index)
{
    return sum_of_values(j, (size_t)j->rank * n + index);
}

static const kind kinds[] = {
    {"allreduce", false, call_allreduce, one, expect_sum},
    {"fresh", false, call_fresh, one, expect_sum},
    {"bcast", false, call_bcast, one, expect_roots},
    {"allgather", true, call_allgather, one_a_rank, expect_block_of_each},
    {"alltoall", true, call_alltoall, one_a_rank, expect_our_block_of_each},
    {"reduce_scatter", true, call_reduce_scatter, one, expect_our_block_of_sum},
};

/* ------------------------------------------------------------ measuring */

/* Of every rank's number the greatest, told to all. */
static double greatest(job *j, double mine)
{
    double most = mine;

    peer_allgather(&mine, j->gathered, 1);
    for (int r = 0; r < j->size; r++)
        most = fmax(most, j->gathered[r]);
    return most;
}

static double total(job *j, double mine)
{
    double sum = 0;

    peer_allgather(&mine, j->gathered, 1);
    for (int r = 0; r < j->size; r++)
        sum += j->gathered[r];
    return sum;
}

/* One call, and whether it gave what it should.  Returns the most shared memory that was
 * allocated during it. */
static double check_result(job *j, const kind *k, size_t n)
{
    const size_t n_out = k->n_out(j, n);
    double most_bytes = 0;

    memset(j->out, 0xff, n_out * sizeof *j->out); /* NaN, which is equal to nothing */
    peer_barrier();
    if (j->rank == 0)
        shared_watch_begin();
    const double *result = k->call(j, n);
    peer_barrier();
    if (j->rank == 0)
        most_bytes = (double)shared_watch_end();
    for (size_t i = 0; i < n_out; i++)
        if (!(result[i] == k->expected(j, n, i))) {
            fprintf(stderr, "rank %d: %s of %zu: entry %zu is %g, not %g\n", j->rank, k->name, n, i,
                    result[i], k->expected(j, n, i));
            exit(1);
        }
    return most_bytes;
}

/* So many calls; the seconds of the slowest rank, told to all. */
static double time_calls(job *j, const kind *k, size_t n, int64_t n_calls)
{
    peer_barrier();
    double start_s = now_s();
    for (int64_t i = 0; i < n_calls; i++)
        k->call(j, n);
    return greatest(j, now_s() - start_s);
}

/* Warm up, and tell how many calls take `seconds`.  All ranks see the same times and so
 * come to the same number.  A batch that seems long enough is run twice, for the first
 * may only have met a pause: then far too few calls would make a repeat. */
static int64_t calls_in(job *j, const kind *k, size_t n, double seconds)
{
    int64_t n_calls = 1;
    double took_s;

    for (;; n_calls *= 4) {
        took_s = time_calls(j, k, n, n_calls);
        if (took_s > seconds / 4 && took_s < seconds)
            took_s = fmin(took_s, time_calls(j, k, n, n_calls));
        if (took_s > seconds / 4 || n_calls > MOST_CALLS / 4)
            break;
    }
    double fitting = ceil(seconds / took_s * (double)n_calls);
    return (int64_t)fmin(fmax(fitting, LEAST_CALLS), MOST_CALLS);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Between two values, their middle.  Sorts `values`. */
static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

static void measure(job *j, const kind *k, size_t n_bytes, double seconds, int n_repeats)
{
    size_t n = n_bytes / sizeof(double) / (k->in_blocks ? (size_t)j->size : 1);
    double us[MOST_REPEATS];

    n = n > 0 ? n : 1;
    size_t before_bytes = shared_allocated_bytes();
    double most_bytes = check_result(j, k, n);
    int64_t n_calls = calls_in(j, k, n, seconds);
    for (int i = 0; i < n_repeats; i++)
        us[i] = time_calls(j, k, n, n_calls) * 1e6 / (double)n_calls;
    double touched_bytes = total(j, (double)shared_touched_bytes());
    if (j->rank > 0)
        return;
    double middle_us = median(us, n_repeats);
    printf("{\"kind\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"us\": %.4f, \"least_us\": %.4f, "
           "\"greatest_us\": %.4f, \"calls\": %lld, \"shared_before\": %zu, \"shared_most\": %.0f, "
           "\"shared_touched\": %.0f}\n",
           k->name, n_bytes, j->size, middle_us, us[0], us[n_repeats - 1], (long long)n_calls,
           before_bytes, most_bytes, touched_bytes);
    fflush(stdout);
}

/* KIND:BYTES.  MPI counts with an int, which the greatest size here is far from. */
static const kind *parse(const char *text, size_t *ret_n_bytes)
{
    const char *colon = strchr(text, ':');
    long long n_bytes = colon != NULL ? atoll(colon + 1) : 0;

    for (size_t i = 0; n_bytes > 0 && n_bytes <= INT_MAX && i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].name) == (size_t)(colon - text) &&
            strncmp(kinds[i].name, text, (size_t)(colon - text)) == 0) {
            *ret_n_bytes = (size_t)n_bytes;
            return &kinds[i];
        }
    fprintf(stderr, "'%s' is not KIND:BYTES\n", text);
    exit(2);
}

int main(int argc, char **argv)
{
    job j = {0};

    peer_join(&argc, &argv, &j.rank, &j.size);
    double seconds = argc > 3 ? atof(argv[1]) : 0;
    int n_repeats = argc > 3 ? atoi(argv[2]) : 0;
    if (seconds <= 0 || n_repeats < 1 || n_repeats > MOST_REPEATS) {
        fprintf(stderr, "usage: %s SECONDS REPEATS KIND:BYTES...\n", argv[0]);
        return 2;
    }

    size_t n_most = (size_t)j.size, n_bytes; /* one of each rank at least */
    for (int i = 3; i < argc; i++) {
        parse(argv[i], &n_bytes);
        n_most = n_bytes / sizeof(double) > n_most ? n_bytes / sizeof(double) : n_most;
    }
    j.in = allocate(n_most);
    j.out = allocate(n_most);
    j.gathered = allocate((size_t)j.size);
    for (size_t i = 0; i < n_most; i++)
        j.in[i] = value(j.rank, i);
    for (int i = 3; i < argc; i++) {
        const kind *k = parse(argv[i], &n_bytes);
        measure(&j, k, n_bytes, seconds, n_repeats);
    }

    peer_barrier();
    free(j.in);
    free(j.out);
    free(j.fresh);
    free(j.gathered);
    peer_leave();
    return 0;
}
