/* pairs.c - the measuring loop, the same for Godwit and for MPI.
 *
 *     pairs closed|paced SECONDS REPEATS SIZE...
 *
 * Ranks r and r + n/2 are a pair: the lower one leads, the upper one answers
 * each message at once with one of the same size.  A time is that of a half
 * round trip.
 *
 *   closed  The answer is followed by the next message.  The time of a repeat
 *           is its length divided by its messages, so that the pauses of a
 *           process that does not get a core count as they should.
 *   paced   A message each millisecond, sent after a sleep.  Each round trip is
 *           timed; a repeat has a median, a 90th percentile and a mean.
 *
 * A repeat lasts SECONDS, but at least LEAST_TRIPS round trips.  All pairs
 * start it together.  Buffers are allocated and touched beforehand; the first
 * and the last byte of each message are checked, and differ from those of the
 * message before.
 *
 * Rank 0 prints for each size one line of JSON: times in microseconds, each the
 * median over pairs of the median over repeats; and the fastest and slowest
 * pair, since a fabric may serve some and starve others.                     */
#include "pairs.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    STOP = 0,        /* the stamp of the message that ends a repeat */
    LEAST_TRIPS = 3, /* 64 MB with four pairs takes longer than a repeat */
    MOST_REPEATS = 100,
    PACE_NS = 1000000,
    BATCH_NS = 50000, /* reading the clock so seldom costs below 0.1 % */
};

typedef struct pair {
    int rank, partner;
    bool leads;
    uint8_t stamp;
    uint8_t *out, *in; /* the greatest size each */
} pair;

/* What a leader found in one size.  Travels to rank 0 as it is. */
typedef struct result {
    double median_us, p90_us, mean_us;
    double trips;
} result;

typedef void measure(pair *p, size_t n_bytes, double seconds, result *ret_result);

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_until(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
        ;
}

static void *allocate(size_t n_bytes)
{
    void *memory = malloc(n_bytes);

    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", n_bytes);
        exit(1);
    }
    memset(memory, 1, n_bytes);
    return memory;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Between two values, the point in between.  Sorts `value`. */
static double percentile(double *value, size_t n, double share)
{
    double place = share * (double)(n - 1);
    size_t below = (size_t)place, above = below + 1 < n ? below + 1 : below;

    qsort(value, n, sizeof *value, ascending);
    return value[below] + (place - (double)below) * (value[above] - value[below]);
}

static double mean(const double *value, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += value[i];
    return sum / (double)n;
}

/* ------------------------------------------------------------- messages */

static void send_stamped(pair *p, size_t n_bytes, uint8_t stamp)
{
    p->out[0] = p->out[n_bytes - 1] = stamp;
    peer_send(p->partner, p->out, n_bytes);
}

static uint8_t recv_stamped(pair *p, size_t n_bytes)
{
    peer_recv(p->partner, p->in, n_bytes);
    if (p->in[0] != p->in[n_bytes - 1]) {
        fprintf(stderr, "rank %d: a message of %zu bytes begins with %d and ends with %d\n",
                p->rank, n_bytes, p->in[0], p->in[n_bytes - 1]);
        exit(1);
    }
    return p->in[0];
}

static void round_trip(pair *p, size_t n_bytes)
{
    p->stamp = p->stamp == UINT8_MAX ? STOP + 1 : p->stamp + 1;
    send_stamped(p, n_bytes, p->stamp);
    uint8_t answer = recv_stamped(p, n_bytes);
    if (answer != p->stamp) {
        fprintf(stderr, "rank %d: answer %d to message %d\n", p->rank, answer, p->stamp);
        exit(1);
    }
}

static void answer_until_stop(pair *p, size_t n_bytes)
{
    for (;;) {
        uint8_t stamp = recv_stamped(p, n_bytes);
        if (stamp == STOP)
            return;
        send_stamped(p, n_bytes, stamp);
    }
}

/* ------------------------------------------------------------ measuring */

/* The clock is read once a batch; batches grow while they are short and shrink
 * when they are long, so that neither 0.1 us nor 5 ms a message matters. */
static void measure_closed(pair *p, size_t n_bytes, double seconds, result *ret_result)
{
    const int64_t start_ns = now_ns();
    const int64_t end_ns = start_ns + (int64_t)(seconds * 1e9);
    int64_t n_trips = 0, batch = 1, last_ns = start_ns;

    while (last_ns < end_ns || n_trips < LEAST_TRIPS) {
        for (int64_t i = 0; i < batch; i++)
            round_trip(p, n_bytes);
        n_trips += batch;

        int64_t ns = now_ns(), took_ns = ns - last_ns;
        last_ns = ns;
        if (took_ns < BATCH_NS)
            batch *= 2;
        else if (took_ns > 4 * BATCH_NS && batch > 1)
            batch /= 2;
    }
    double half_us = (double)(last_ns - start_ns) / 2e3 / (double)n_trips;
    *ret_result = (result){half_us, half_us, half_us, (double)n_trips};
}

/* If a round trip outlasts its millisecond, the next message waits for the next
 * whole one: catching up would be a closed loop. */
static void measure_paced(pair *p, size_t n_bytes, double seconds, result *ret_result)
{
    const int64_t start_ns = now_ns();
    const int64_t end_ns = start_ns + (int64_t)(seconds * 1e9);
    const size_t most = (size_t)(end_ns - start_ns) / PACE_NS + LEAST_TRIPS + 1;
    double *half_us = allocate(most * sizeof *half_us);
    size_t n = 0;

    for (int64_t ns = now_ns(); ns < end_ns || n < LEAST_TRIPS; ns = now_ns()) {
        sleep_until(start_ns + ((ns - start_ns) / PACE_NS + 1) * PACE_NS);
        int64_t sent_ns = now_ns();
        round_trip(p, n_bytes);
        half_us[n++] = (double)(now_ns() - sent_ns) / 2e3;
    }
    *ret_result = (result){percentile(half_us, n, 0.5), percentile(half_us, n, 0.9),
                           mean(half_us, n), (double)n};
    free(half_us);
}

static void run_repeat(pair *p, measure *run, size_t n_bytes, double seconds, result *ret_result)
{
    peer_barrier();
    if (p->leads) {
        run(p, n_bytes, seconds, ret_result);
        send_stamped(p, n_bytes, STOP);
    } else {
        answer_until_stop(p, n_bytes);
    }
}

/* The median of one field over some results. */
static double median_of(const result *results, int n, size_t field_offset)
{
    double value[MOST_REPEATS];

    for (int i = 0; i < n; i++)
        memcpy(&value[i], (const char *)&results[i] + field_offset, sizeof value[i]);
    return percentile(value, (size_t)n, 0.5);
}

static result medians(const result *results, int n)
{
    return (result){median_of(results, n, offsetof(result, median_us)),
                    median_of(results, n, offsetof(result, p90_us)),
                    median_of(results, n, offsetof(result, mean_us)),
                    median_of(results, n, offsetof(result, trips))};
}

static void print_line(const char *mode, size_t n_bytes, const result *of_pair, int n_pairs)
{
    result r = medians(of_pair, n_pairs);
    double fastest = of_pair[0].median_us, slowest = fastest;

    for (int i = 1; i < n_pairs; i++) {
        fastest = of_pair[i].median_us < fastest ? of_pair[i].median_us : fastest;
        slowest = of_pair[i].median_us > slowest ? of_pair[i].median_us : slowest;
    }
    printf("{\"mode\": \"%s\", \"bytes\": %zu, \"pairs\": %d, \"median_us\": %.4f, "
           "\"p90_us\": %.4f, \"mean_us\": %.4f, \"fastest_pair_us\": %.4f, "
           "\"slowest_pair_us\": %.4f, \"trips\": %.0f}\n",
           mode, n_bytes, n_pairs, r.median_us, r.p90_us, r.mean_us, fastest, slowest, r.trips);
    fflush(stdout);
}

static void report(const pair *p, const char *mode, size_t n_bytes, result mine, int n_pairs)
{
    result of_pair[MOST_REPEATS];

    if (p->leads && p->rank > 0)
        peer_send(0, &mine, sizeof mine);
    if (p->rank > 0)
        return;
    of_pair[0] = mine;
    for (int i = 1; i < n_pairs; i++)
        peer_recv(i, &of_pair[i], sizeof of_pair[i]);
    print_line(mode, n_bytes, of_pair, n_pairs);
}

static void measure_size(pair *p, const char *mode, size_t n_bytes, double seconds, int n_repeats,
                         int n_pairs)
{
    measure *run = strcmp(mode, "paced") == 0 ? measure_paced : measure_closed;
    result of_repeat[MOST_REPEATS] = {{0}}, warm_up;

    run_repeat(p, run, n_bytes, seconds / 4, &warm_up);
    for (int i = 0; i < n_repeats; i++)
        run_repeat(p, run, n_bytes, seconds, &of_repeat[i]);
    report(p, mode, n_bytes, medians(of_repeat, n_repeats), n_pairs);
}

/* At least one byte, to carry the stamp; MPI counts with an int. */
static size_t size_argument(const char *text)
{
    long long n_bytes = atoll(text);

    if (n_bytes < 1 || n_bytes > INT_MAX) {
        fprintf(stderr, "a size must be from 1 to %d bytes, not '%s'\n", INT_MAX, text);
        exit(2);
    }
    return (size_t)n_bytes;
}

int main(int argc, char **argv)
{
    int rank, size;

    peer_join(&argc, &argv, &rank, &size);
    const char *mode = argc > 4 ? argv[1] : "";
    double seconds = argc > 4 ? atof(argv[2]) : 0;
    int n_repeats = argc > 4 ? atoi(argv[3]) : 0;
    int n_pairs = size / 2;
    if ((strcmp(mode, "closed") != 0 && strcmp(mode, "paced") != 0) || seconds <= 0 ||
        n_repeats < 1 || n_repeats > MOST_REPEATS || size % 2 != 0 || n_pairs > MOST_REPEATS) {
        fprintf(stderr,
                "usage: an even number of processes, each\n"
                "    %s closed|paced SECONDS REPEATS SIZE...\n",
                argv[0]);
        return 2;
    }

    size_t most_bytes = 1;
    for (int i = 4; i < argc; i++)
        most_bytes = size_argument(argv[i]) > most_bytes ? size_argument(argv[i]) : most_bytes;
    pair p = {
        .rank = rank,
        .partner = rank < n_pairs ? rank + n_pairs : rank - n_pairs,
        .leads = rank < n_pairs,
        .out = allocate(most_bytes),
        .in = allocate(most_bytes),
    };
    for (int i = 4; i < argc; i++)
        measure_size(&p, mode, size_argument(argv[i]), seconds, n_repeats, n_pairs);

    peer_barrier();
    free(p.out);
    free(p.in);
    peer_leave();
    return 0;
}
