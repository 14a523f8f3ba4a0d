/* stats_test.c - nothing that is counted gets lost, whoever counts and resets. */
#include "base/stats.h"
#include "base/random.h"
#include "base/test.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEST_STATS(X)                 \
    X(CALLS, SUM, "calls")            \
    X(DEPTH, MAX, "largest depth")    \
    X(WAITS, TIMES, "time of a wait") \
    X(BYTES, SUM, "bytes")

enum { TEST_STATS(GWI_STATS_CELL) TEST_CELLS };
static const gwi_stats_row rows[] = {TEST_STATS(GWI_STATS_ROW)};
enum { N_ROWS = sizeof rows / sizeof rows[0] };
enum { ROW_CALLS, ROW_DEPTH, ROW_WAITS, ROW_BYTES };

static gwi_stats stats;

static int setup(void **state)
{
    (void)state;
    return gwi_stats_init(&stats, rows, N_ROWS);
}

static int teardown(void **state)
{
    (void)state;
    gwi_stats_fini(&stats);
    return 0;
}

static uint64_t value(int row)
{
    return gwi_stats_value(&stats, &rows[row]);
}

static gwi_stats_times waits(void)
{
    gwi_stats_times times;

    gwi_stats_read_times(&stats, WAITS, &times);
    return times;
}

/* Run `n` threads of `work`; the argument is their number. */
static void run_threads(int n, void *(*work)(void *))
{
    pthread_t *thread = calloc((size_t)n, sizeof *thread);

    assert_non_null(thread);
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    free(thread);
}

static void the_list_makes_cells_names_and_kinds(void **state)
{
    (void)state;
    assert_int_equal(CALLS, 0);
    assert_int_equal(DEPTH, 1);
    assert_int_equal(WAITS, 2);
    assert_int_equal(BYTES, 2 + GWI_STATS_BUCKETS + 2);
    assert_int_equal(TEST_CELLS, BYTES + 1);
    assert_string_equal(rows[ROW_WAITS].name, "WAITS");
    assert_string_equal(rows[ROW_WAITS].help, "time of a wait");
    assert_int_equal(rows[ROW_WAITS].kind, GWI_STATS_TIMES);
    assert_true(gwi_stats_valid(&stats));
    assert_int_equal(stats.n_cells, TEST_CELLS);
}

static void rows_that_do_not_fit_together_are_not_valid(void **state)
{
    (void)state;
    gwi_stats_row wrong[N_ROWS];
    gwi_stats other = stats;

    memcpy(wrong, rows, sizeof rows);
    other.rows = wrong;
    assert_true(gwi_stats_valid(&other));
    wrong[1].cell = 5;
    assert_false(gwi_stats_valid(&other));
    wrong[1].cell = DEPTH;
    other.n_cells++;
    assert_false(gwi_stats_valid(&other));
}

static void everything_starts_at_zero(void **state)
{
    (void)state;
    for (int i = 0; i < N_ROWS; i++)
        assert_int_equal(value(i), 0);
    gwi_stats_times times = waits();
    assert_int_equal(times.count + times.sum_ns + times.max_ns, 0);
    assert_true(gwi_stats_mean_ns(&times) == 0);
    assert_true(gwi_stats_quantile_ns(&times, 0.5) == 0);
}

static void one_threads_counts_add_up(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 1000; i++) {
        gwi_stats_add(&stats, CALLS, 1);
        gwi_stats_add(&stats, BYTES, i);
        gwi_stats_max(&stats, DEPTH, i <= 500 ? i : 1000 - i);
    }
    assert_int_equal(value(ROW_CALLS), 1000);
    assert_int_equal(value(ROW_BYTES), 500500);
    assert_int_equal(value(ROW_DEPTH), 500);
    assert_int_equal(value(ROW_WAITS), 0);
}

static void stripes_of_two_threads_share_no_pair_of_lines(void **state)
{
    (void)state;
    uintptr_t first = (uintptr_t)gwi_stats_cell(&stats, 0, 0);
    uintptr_t second = (uintptr_t)gwi_stats_cell(&stats, 1, 0);

    assert_int_equal(first % (2 * GWI_LINE), 0);
    assert_int_equal(second % (2 * GWI_LINE), 0);
    assert_true(second - first >= TEST_CELLS * sizeof(uint64_t));
}

static void each_time_is_counted_in_its_bucket(void **state)
{
    (void)state;
    static const struct {
        int64_t ns;
        unsigned bucket;
    } known[] = {{INT64_MIN, 0}, {-1, 0},    {0, 0},          {1, 0},
                 {2, 1},         {3, 1},     {4, 2},          {1023, 9},
                 {1024, 10},     {1025, 10}, {999999999, 29}, {INT64_MAX, 62}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        gwi_stats_reset(&stats);
        gwi_stats_time(&stats, WAITS, known[i].ns);
        gwi_stats_times times = waits();
        assert_int_equal(times.count, 1);
        assert_int_equal(times.bucket[known[i].bucket], 1);
        assert_int_equal(times.sum_ns, known[i].ns > 0 ? known[i].ns : 0);
        assert_int_equal(times.max_ns, times.sum_ns);
    }
}

static void mean_and_largest_time_are_exact(void **state)
{
    (void)state;
    for (int64_t ns = 1; ns <= 999; ns++)
        gwi_stats_time(&stats, WAITS, ns);
    gwi_stats_times times = waits();
    assert_int_equal(times.count, 999);
    assert_true(gwi_stats_mean_ns(&times) == 500);
    assert_int_equal(times.max_ns, 999);
    assert_true(gwi_stats_quantile_ns(&times, 1) == 999);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void quantiles_are_right_within_a_factor_of_two(void **state)
{
    (void)state;
    enum { N = 5000 };
    static int64_t ns[N];
    gwi_random random;

    gwi_random_init(&random, 1, 0);
    for (int i = 0; i < N; i++) {
        /* From 1 ns to seconds, as many in each magnitude. */
        ns[i] = 1 + (int64_t)(gwi_random_u64(&random) >> (32 + gwi_random_below(&random, 31)));
        gwi_stats_time(&stats, WAITS, ns[i]);
    }
    qsort(ns, N, sizeof ns[0], compare);
    gwi_stats_times times = waits();
    double last = 0;
    for (int percent = 1; percent <= 100; percent++) {
        double exact = (double)ns[N * percent / 100 - 1];
        double got = gwi_stats_quantile_ns(&times, percent / 100.0);
        assert_true(got <= exact * 2 && got >= exact / 2);
        assert_true(got >= last);
        last = got;
    }
    assert_true(last == (double)ns[N - 1]);
}

static void quantiles_fall_into_the_bucket_that_has_them(void **state)
{
    (void)state;
    for (int i = 0; i < 90; i++)
        gwi_stats_time(&stats, WAITS, 100);
    for (int i = 0; i < 10; i++)
        gwi_stats_time(&stats, WAITS, 1000000);
    gwi_stats_times times = waits();
    static const double low[] = {0, 0.01, 0.5, 0.9}, high[] = {0.91, 0.99, 1};
    for (size_t i = 0; i < sizeof low / sizeof low[0]; i++) {
        double got = gwi_stats_quantile_ns(&times, low[i]);
        assert_true(got >= 64 && got <= 128);
    }
    for (size_t i = 0; i < sizeof high / sizeof high[0]; i++) {
        double got = gwi_stats_quantile_ns(&times, high[i]);
        assert_true(got >= 524288 && got <= 1000000);
    }
}

static void a_reset_starts_again_at_zero(void **state)
{
    (void)state;
    gwi_stats_add(&stats, CALLS, 5);
    gwi_stats_max(&stats, DEPTH, 9);
    gwi_stats_time(&stats, WAITS, 100);
    gwi_stats_reset(&stats);
    everything_starts_at_zero(state);
    gwi_stats_add(&stats, CALLS, 2);
    gwi_stats_max(&stats, DEPTH, 3);
    gwi_stats_time(&stats, WAITS, 7);
    assert_int_equal(value(ROW_CALLS), 2);
    assert_int_equal(value(ROW_DEPTH), 3);
    assert_int_equal(waits().sum_ns, 7);
    assert_int_equal(waits().max_ns, 7);
}

/* --- Threads ---------------------------------------------------------------- */

enum { ADDS = 20000 };

static void *count_much(void *number)
{
    uint64_t me = (uintptr_t)number;

    for (uint64_t i = 0; i < ADDS; i++) {
        gwi_stats_add(&stats, CALLS, 1);
        gwi_stats_add(&stats, BYTES, me);
        gwi_stats_max(&stats, DEPTH, i * 10 + me);
        gwi_stats_time(&stats, WAITS, (int64_t)(i % 1000));
    }
    return NULL;
}

static void check_much(uint64_t n_threads)
{
    assert_int_equal(value(ROW_CALLS), n_threads * ADDS);
    assert_int_equal(value(ROW_BYTES), n_threads * (n_threads - 1) / 2 * ADDS);
    assert_int_equal(value(ROW_DEPTH), (ADDS - 1) * 10 + n_threads - 1);
    assert_int_equal(value(ROW_WAITS), n_threads * ADDS);
    assert_int_equal(waits().sum_ns, n_threads * ADDS / 1000 * 499500);
    assert_int_equal(waits().max_ns, 999);
}

static void threads_that_count_together_lose_nothing(void **state)
{
    (void)state;
    run_threads(4, count_much);
    check_much(4);
}

static pthread_barrier_t all_alive;
static _Atomic unsigned n_sharing;
static _Atomic uint64_t n_waits;

static void *count_while_all_are_alive(void *number)
{
    gwi_stats_add(&stats, CALLS, 1);
    bool sharing = gwi_stats_stripe == GWI_STATS_OWN;
    int n = sharing ? 20000 : 100; /* those that share do so long enough to collide */

    atomic_fetch_add(&n_sharing, sharing);
    atomic_fetch_add(&n_waits, (uint64_t)n);
    pthread_barrier_wait(&all_alive);
    for (int i = 0; i < n; i++) {
        gwi_stats_max(&stats, DEPTH, (uintptr_t)number);
        gwi_stats_time(&stats, WAITS, 1);
    }
    return NULL;
}

static void more_threads_than_stripes_lose_nothing(void **state)
{
    (void)state;
    enum { N = GWI_STATS_OWN + 20 };

    gwi_stats_add(&stats, CALLS, 0); /* this thread has one of the stripes too */
    assert_int_equal(pthread_barrier_init(&all_alive, NULL, N), 0);
    atomic_store(&n_sharing, 0);
    atomic_store(&n_waits, 0);
    run_threads(N, count_while_all_are_alive);
    pthread_barrier_destroy(&all_alive);
    assert_int_equal(atomic_load(&n_sharing), 21);
    assert_int_equal(value(ROW_CALLS), N);
    assert_int_equal(value(ROW_DEPTH), N - 1);
    assert_int_equal(value(ROW_WAITS), atomic_load(&n_waits));
    assert_int_equal(waits().sum_ns, atomic_load(&n_waits));
}

static void *count_once(void *unused)
{
    (void)unused;
    gwi_stats_add(&stats, CALLS, 1);
    if (gwi_stats_stripe >= GWI_STATS_OWN)
        atomic_fetch_add(&n_sharing, 1);
    return NULL;
}

static void a_thread_that_ends_gives_its_stripe_to_another(void **state)
{
    (void)state;
    enum { ROUNDS = GWI_STATS_OWN };

    atomic_store(&n_sharing, 0);
    for (int i = 0; i < ROUNDS; i++)
        run_threads(3, count_once);
    assert_int_equal(atomic_load(&n_sharing), 0);
    assert_int_equal(value(ROW_CALLS), 3 * ROUNDS);
}

static pthread_key_t counts_at_the_end;

/* As often as the C library lets a destructor come back; the thread sanitizer
 * leaves a thread before that. */
enum { LAST_ROUNDS = GWI_TSAN ? 1 : PTHREAD_DESTRUCTOR_ITERATIONS };

static void count_at_the_end(void *rounds_left)
{
    uintptr_t left = (uintptr_t)rounds_left;

    gwi_stats_add(&stats, CALLS, 1);
    if (left > 1)
        pthread_setspecific(counts_at_the_end, (void *)(left - 1));
}

static void *leave_work_for_the_end(void *unused)
{
    (void)unused;
    gwi_stats_add(&stats, CALLS, 1);
    pthread_setspecific(counts_at_the_end, (void *)(uintptr_t)LAST_ROUNDS);
    return NULL;
}

static void a_thread_may_count_until_its_very_end(void **state)
{
    (void)state;
    gwi_stats_add(&stats, CALLS, 0); /* our key is the older one: its destructor runs first */
    assert_int_equal(pthread_key_create(&counts_at_the_end, count_at_the_end), 0);
    for (int i = 0; i < 100; i++)
        run_threads(3, leave_work_for_the_end);
    pthread_key_delete(counts_at_the_end);
    assert_int_equal(value(ROW_CALLS), 100 * 3 * (1 + LAST_ROUNDS));
    /* No stripe was lost on the way. */
    gwi_stats_reset(&stats);
    a_thread_that_ends_gives_its_stripe_to_another(state);
}

static _Atomic int counting;

static void *count_then_sign_off(void *number)
{
    count_much(number);
    atomic_fetch_sub(&counting, 1);
    return NULL;
}

static void a_reader_never_sees_a_count_go_back(void **state)
{
    (void)state;
    enum { N = 2 };
    pthread_t thread[N];
    uint64_t last = 0;

    atomic_store(&counting, N);
    for (uintptr_t i = 0; i < N; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, count_then_sign_off, (void *)i), 0);
    int wrong = 0;
    while (atomic_load(&counting) > 0) {
        uint64_t now = value(ROW_CALLS);
        wrong += now < last || now > N * ADDS;
        last = now;
        sched_yield();
    }
    for (int i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(wrong, 0);
    check_much(N);
}

static void resets_while_others_count_never_go_below_zero(void **state)
{
    (void)state;
    enum { N = 2 };
    pthread_t thread[N];
    int wrong = 0;

    atomic_store(&counting, N);
    for (uintptr_t i = 0; i < N; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, count_then_sign_off, (void *)i), 0);
    while (atomic_load(&counting) > 0) {
        gwi_stats_reset(&stats);
        wrong += value(ROW_CALLS) > N * ADDS;
        wrong += value(ROW_WAITS) > N * ADDS;
        sched_yield();
    }
    for (int i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(wrong, 0);

    /* The reset holds for everyone, also for the stripes of threads that ended. */
    gwi_stats_reset(&stats);
    everything_starts_at_zero(state);
    run_threads(3, count_much);
    check_much(3);
}

static void two_sets_do_not_mix(void **state)
{
    (void)state;
    gwi_stats other;

    assert_int_equal(gwi_stats_init(&other, rows, N_ROWS), 0);
    gwi_stats_add(&other, CALLS, 3);
    gwi_stats_add(&stats, CALLS, 4);
    assert_int_equal(gwi_stats_value(&other, &rows[ROW_CALLS]), 3);
    assert_int_equal(value(ROW_CALLS), 4);
    gwi_stats_fini(&other);
    gwi_stats_fini(&other);
    gwi_stats_fini(NULL);
}

static void a_forked_child_counts_for_itself(void **state)
{
    (void)state;
    int status;

    gwi_stats_add(&stats, CALLS, 5);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        gwi_stats_add(&stats, CALLS, 2);
        _exit(value(ROW_CALLS) == 7 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(value(ROW_CALLS), 5);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

GWI_TESTS(TEST(the_list_makes_cells_names_and_kinds),
          TEST(rows_that_do_not_fit_together_are_not_valid), TEST(everything_starts_at_zero),
          TEST(one_threads_counts_add_up), TEST(stripes_of_two_threads_share_no_pair_of_lines),
          TEST(each_time_is_counted_in_its_bucket), TEST(mean_and_largest_time_are_exact),
          TEST(quantiles_are_right_within_a_factor_of_two),
          TEST(quantiles_fall_into_the_bucket_that_has_them), TEST(a_reset_starts_again_at_zero),
          TEST(threads_that_count_together_lose_nothing),
          TEST(more_threads_than_stripes_lose_nothing),
          TEST(a_thread_that_ends_gives_its_stripe_to_another),
          TEST(a_thread_may_count_until_its_very_end), TEST(a_reader_never_sees_a_count_go_back),
          TEST(resets_while_others_count_never_go_below_zero), TEST(two_sets_do_not_mix),
          TEST(a_forked_child_counts_for_itself))
