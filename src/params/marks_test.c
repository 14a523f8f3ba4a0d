/* marks_test.c - every marked key is taken, once, at a cost that does not depend on the others. */
#include "params/marks.h"
#include "base/random.h"
#include "base/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct set {
    gwi_marks marks;
    void *memory;
    int64_t n_keys;
    unsigned char *taken;
    int64_t last, n;
};

static void make(struct set *s, int64_t n_keys)
{
    *s = (struct set){.n_keys = n_keys, .last = -1};
    s->memory = calloc(1, gwi_marks_bytes(n_keys));
    s->taken = calloc((size_t)n_keys, 1);
    assert_non_null(s->memory);
    assert_non_null(s->taken);
    gwi_marks_init(&s->marks, n_keys, s->memory);
}

static void end(struct set *s)
{
    free(s->memory);
    free(s->taken);
}

static void note(void *ctx, int64_t key)
{
    struct set *s = ctx;

    assert_in_range(key, 0, s->n_keys - 1);
    s->taken[key]++;
    s->last = key;
    s->n++;
}

static void marked_keys_are_taken_once_in_order(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 63, 64, 65, 4096, 4097, 262144, 300000};
    struct set s;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        make(&s, sizes[i]);
        assert_false(gwi_marks_any(&s.marks));
        gwi_marks_take(&s.marks, note, &s);
        assert_int_equal(s.n, 0);
        gwi_marks_add(&s.marks, 0);
        gwi_marks_add(&s.marks, sizes[i] - 1);
        gwi_marks_add(&s.marks, sizes[i] / 2);
        gwi_marks_add(&s.marks, 0); /* again */
        assert_true(gwi_marks_any(&s.marks));
        assert_true(gwi_marks_has(&s.marks, sizes[i] - 1));
        gwi_marks_take(&s.marks, note, &s);
        assert_int_equal(s.last, sizes[i] - 1);
        assert_int_equal(s.n, sizes[i] < 3 ? sizes[i] : 3);
        assert_int_equal(s.taken[sizes[i] / 2], 1);
        assert_false(gwi_marks_any(&s.marks));
        assert_false(gwi_marks_has(&s.marks, 0));
        end(&s);
    }
}

static void random_marks_are_those_that_are_taken(void **state)
{
    (void)state;
    enum { N = 70000 };
    static unsigned char expected[N];
    struct set s;
    gwi_random r;

    gwi_random_init(&r, 1, 0);
    make(&s, N);
    for (int round = 0; round < 200; round++) {
        memset(expected, 0, sizeof expected);
        memset(s.taken, 0, N);
        for (uint64_t i = gwi_random_below(&r, 300); i > 0; i--) {
            int64_t key = (int64_t)gwi_random_below(&r, N);
            expected[key] = 1;
            gwi_marks_add(&s.marks, key);
        }
        gwi_marks_take(&s.marks, note, &s);
        assert_memory_equal(s.taken, expected, N);
    }
    end(&s);
}

static void they_can_be_taken_in_parts_from_any_key_on(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 40, 64, 65, 5000, 300000};
    struct set s;
    gwi_random r;

    gwi_random_init(&r, 3, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t most = 1; most < 2000; most *= 3) {
            int64_t n = sizes[i], n_marked = 0, next;
            make(&s, n);
            for (int64_t key = 0; key < n; key++)
                if (gwi_random_below(&r, 1 + (uint64_t)n / 500) == 0) {
                    gwi_marks_add(&s.marks, key);
                    n_marked++;
                }
            /* From the middle to the end, and then the rest. */
            for (int64_t from = n / 2; from >= 0; from = next) {
                int64_t before = s.n;
                next = gwi_marks_take_some(&s.marks, from, most, note, &s);
                assert_true(s.n == before || s.last >= from);
                assert_true(next < 0 ? s.n - before <= (int64_t)most
                                     : s.n - before == (int64_t)most && next > s.last);
            }
            int64_t upper = s.n;
            gwi_marks_add(&s.marks, n - 1); /* above what is left */
            s.taken[n - 1] = 0;
            gwi_marks_take(&s.marks, note, &s);
            assert_int_equal(s.last, n - 1);
            assert_false(gwi_marks_any(&s.marks));
            for (int64_t key = 0; key < n; key++)
                assert_true(s.taken[key] <= 1);
            assert_in_range(s.n, n_marked, n_marked + 1);
            assert_true(upper <= n_marked);
            end(&s);
        }
}

static void mark_again(void *ctx, int64_t key)
{
    struct set *s = ctx;

    if (s->taken[key]++ == 0)
        gwi_marks_add(&s->marks, key);
}

static void a_key_marked_while_it_is_taken_is_not_forgotten(void **state)
{
    (void)state;
    struct set s;

    make(&s, 100000);
    for (int64_t key = 0; key < 100000; key += 777)
        gwi_marks_add(&s.marks, key);
    gwi_marks_take(&s.marks, mark_again, &s);
    gwi_marks_take(&s.marks, mark_again, &s);
    for (int64_t key = 0; key < 100000; key++)
        assert_int_equal(s.taken[key], key % 777 == 0 ? 2 : 0);
    assert_false(gwi_marks_any(&s.marks));
    end(&s);
}

/* Somebody has set the bits of a key up to some level, and goes on later, or never. */
static void who_is_stopped_in_marking_hides_no_key_that_others_mark(void **state)
{
    (void)state;
    /* These share with it a word of level 0, of level 1 and none below, of level 2. */
    static const int64_t half_marked = 4095, keys[] = {4094, 0, 5000};
    struct set s;

    for (int shared = 0; shared < 3; shared++)
        for (int n_set = 1; n_set <= 3; n_set++) {
            make(&s, 300000);
            assert_int_equal(s.marks.n_levels, 4);
            for (int l = 0; l < n_set; l++)
                s.marks.level[l][half_marked >> 6 * (l + 1)] |= UINT64_C(1)
                                                                << (half_marked >> 6 * l) % 64;
            gwi_marks_add(&s.marks, keys[shared]);
            assert_true(gwi_marks_any(&s.marks));
            gwi_marks_take(&s.marks, note, &s);
            assert_int_equal(s.taken[keys[shared]], 1);
            assert_int_equal(s.taken[half_marked], n_set > shared);
            end(&s);
        }
}

static void a_key_that_was_half_marked_is_found_when_it_is_marked_again(void **state)
{
    (void)state;
    struct set s;

    make(&s, 300000);
    s.marks.level[0][1] |= 1;
    gwi_marks_add(&s.marks, 64);
    gwi_marks_take(&s.marks, note, &s);
    assert_int_equal(s.taken[64], 1);
    end(&s);
}

/* A thread counts up keys and marks them; whoever takes must see all that was counted. */
enum { KEYS = 5000, TURNS = 200000 };

struct race {
    struct set set;
    _Atomic uint32_t counts[KEYS];
    uint32_t seen[KEYS];
    _Atomic int over;
};

static void *mark_many(void *ctx)
{
    struct race *race = ctx;
    gwi_random r;

    gwi_random_init(&r, 2, 0);
    for (int i = 0; i < TURNS; i++) {
        uint64_t key = gwi_random_below(&r, KEYS);
        atomic_fetch_add_explicit(&race->counts[key], 1, memory_order_relaxed);
        gwi_marks_add(&race->set.marks, (int64_t)key);
    }
    atomic_store_explicit(&race->over, 1, memory_order_release);
    return NULL;
}

static void see(void *ctx, int64_t key)
{
    struct race *race = ctx;

    race->seen[key] = atomic_load_explicit(&race->counts[key], memory_order_relaxed);
}

static void no_mark_of_another_thread_is_lost(void **state)
{
    (void)state;
    static struct race race;
    pthread_t thread;

    make(&race.set, KEYS);
    assert_int_equal(pthread_create(&thread, NULL, mark_many, &race), 0);
    for (int64_t next = 0; !atomic_load_explicit(&race.over, memory_order_acquire);)
        next = gwi_marks_take_some(&race.set.marks, next < 0 ? 0 : next, 100, see, &race);
    pthread_join(thread, NULL);
    gwi_marks_take(&race.set.marks, see, &race);
    for (int key = 0; key < KEYS; key++)
        assert_int_equal(race.seen[key], race.counts[key]);
    end(&race.set);
}

GWI_TESTS(cmocka_unit_test(marked_keys_are_taken_once_in_order),
          cmocka_unit_test(random_marks_are_those_that_are_taken),
          cmocka_unit_test(they_can_be_taken_in_parts_from_any_key_on),
          cmocka_unit_test(a_key_marked_while_it_is_taken_is_not_forgotten),
          cmocka_unit_test(who_is_stopped_in_marking_hides_no_key_that_others_mark),
          cmocka_unit_test(a_key_that_was_half_marked_is_found_when_it_is_marked_again),
          cmocka_unit_test(no_mark_of_another_thread_is_lost))
