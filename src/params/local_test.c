/* local_test.c - walks over keys of which some are owned here, some are copies, and some are
 * elsewhere. */
#include "params/local.h"
#include "base/test.h"

#include <stdlib.h>

static gwi_geometry geometry;
static void *memory;
static gwi_local local;
static gwi_hand hand;
static _Atomic uint64_t arrivals;

static int never_stuck(void *ctx, int64_t key)
{
    (void)ctx;
    fail_msg("stuck at key %lld", (long long)key);
    return -1;
}

/* What was passed on, and a key that comes while the first of it is. */
static struct passed_on {
    int64_t keys[8];
    float values[8];
    int n;
} passed;

static int take_note(void *ctx, int64_t key, void *values)
{
    (void)ctx;
    passed.keys[passed.n] = key;
    passed.values[passed.n++] = *(float *)values;
    return 0;
}

/* The same, and the first of them comes here meanwhile. */
static int pass_on(void *ctx, int64_t key, void *values)
{
    take_note(ctx, key, values);
    if (passed.n == 1)
        gwi_local_own(&local, key, &(float){100}, 0);
    return 0;
}

static int was_passed_on(void *ctx, int64_t key)
{
    (void)ctx;
    for (int i = 0; i < passed.n; i++)
        if (passed.keys[i] == key)
            return 1;
    return 0;
}

/* The vectors of the first of two nodes, one entry each: those with even keys. */
static void make_half(int64_t n_keys)
{
    const int64_t length = 1;
    gwi_spread spread = gwi_spread_of(0, 2, 1);

    assert_int_equal(gwi_geometry_init(&geometry, n_keys, &length, 1, GW_F32), 0);
    size_t n_bytes = gwi_local_bytes(&geometry, &spread);
    assert_int_equal(posix_memalign(&memory, GWI_STORE_ALIGN, n_bytes), 0);
    memset(memory, 0, n_bytes);
    assert_int_equal(gwi_local_init(&local, &geometry, &spread, memory, n_bytes), 0);
    arrivals = 7;
    local.arrivals = &arrivals;
    passed = (struct passed_on){.n = 0};
}

static int drop(void **state)
{
    (void)state;
    gwi_local_fini(&local);
    gwi_geometry_fini(&geometry);
    free(memory);
    return 0;
}

/* Of a worker whose call begins now; `other` sees to keys that are elsewhere. */
static gwi_walker worker_with(gwi_other *other)
{
    return (gwi_walker){.hand = &hand,
                        .stuck = never_stuck,
                        .other = other,
                        .special = gwi_local_change_latched,
                        .special_soon = gwi_local_fetch_mark,
                        .special_ctx = &local,
                        .arrivals = &arrivals,
                        .arrivals_before = arrivals,
                        .behind = was_passed_on};
}

static void a_key_that_is_elsewhere_is_passed_on_without_its_latch(void **state)
{
    (void)state;
    const int64_t keys[] = {1, 3, 0, 5, 1};
    const float updates[] = {1, 2, 4, 8, 16};
    make_half(6);
    gwi_walker w = worker_with(take_note);
    float found[5] = {-1, -1, -1, -1, -1};

    for (int64_t key = 1; key < 6; key += 2)
        assert_int_equal(gwi_word_look(&local.store.words[key]), 0);
    assert_int_equal(gwi_store_push(&local.store, &w, keys, 5, updates), 0);
    assert_int_equal(passed.n, 4); /* in their order */
    assert_true(passed.keys[0] == 1 && passed.keys[1] == 3 && passed.keys[2] == 5 &&
                passed.keys[3] == 1);
    assert_true(passed.values[0] == 1 && passed.values[1] == 2 && passed.values[2] == 8 &&
                passed.values[3] == 16);
    /* Nobody has had that of key 3; the others are in a handful that begins with key 0. */
    assert_int_equal(gwi_word_look(&local.store.words[3]), 0);
    passed.n = 0;
    assert_int_equal(gwi_store_pull(&local.store, &w, keys, 5, found), 0);
    assert_int_equal(passed.n, 4);
    assert_true(found[0] == -1 && found[2] == 4 && found[4] == -1);
}

static void several_vectors_are_added_to_together_also_one_of_them_twice(void **state)
{
    (void)state;
    enum { N = 3 * GWI_HAND_KEYS };
    int64_t keys[N];
    float updates[N], found[8], expected[8] = {0};
    make_half(16);
    gwi_walker w = {.hand = &hand, .stuck = never_stuck};
    gwi_hand agents = {0};

    local.hand = &agents;
    for (int i = 0; i < N; i++) {
        keys[i] = 2 * (i < 8 ? i : i % 3); /* all of them, and then some again and again */
        updates[i] = (float)(i + 1);
        expected[keys[i] / 2] += updates[i];
    }
    assert_int_equal(gwi_local_add_to_owned(&local, keys, N, updates, GWI_WORD_WATCHED), N);
    assert_int_equal(gwi_local_add_to_owned(&local, keys, 0, updates, GWI_WORD_WATCHED), 0);
    assert_true(gwi_local_valid(&local)); /* all latches are back */
    assert_int_equal(agents.n, 0);
    assert_int_equal(
        gwi_store_pull(&local.store, &w, (int64_t[]){0, 2, 4, 6, 8, 10, 12, 14}, 8, found), 0);
    assert_memory_equal(found, expected, sizeof found);
}

/* Keys 0 and 2 are owned, 4 is watched, 1 is a copy, 3 is elsewhere. */
static void an_owners_walk_ends_before_the_first_vector_that_is_not_its_own(void **state)
{
    (void)state;
    const int64_t copy[] = {0, 2, 1, 0}, away[] = {2, 3, 0}, watched[] = {0, 2, 4, 0};
    const float ones[] = {1, 1, 1, 1};
    float found[4] = {-1, -1, -1, -1};
    make_half(6);

    gwi_local_copy(&local, 1, &(float){100});
    gwi_local_flag(&local, 4, GWI_WORD_WATCHED, 1);
    assert_int_equal(gwi_local_add_to_owned(&local, copy, 4, ones, GWI_WORD_WATCHED), 2);
    assert_int_equal(gwi_local_add_to_owned(&local, away, 3, ones, GWI_WORD_WATCHED), 1);
    assert_int_equal(gwi_local_add_to_owned(&local, watched, 4, ones, GWI_WORD_WATCHED), 2);
    assert_int_equal(gwi_local_add_to_owned(&local, copy + 2, 2, ones, GWI_WORD_WATCHED), 0);
    assert_int_equal(gwi_local_read_owned(&local, copy, 4, found), 2);
    assert_true(found[0] == 2 && found[1] == 3 && found[2] == -1 && found[3] == -1);
    assert_int_equal(gwi_local_read_owned(&local, away, 3, found), 1);
    assert_int_equal(gwi_local_read_owned(&local, watched, 4, found), 4);
    assert_true(found[2] == 0 && found[3] == 2);
    assert_true(gwi_local_valid(&local)); /* all latches are back */
}

static void what_comes_during_a_push_does_not_overtake_what_was_passed_on(void **state)
{
    (void)state;
    const int64_t keys[] = {2, 1, 0, 1, 2, 1};
    const float updates[] = {1, 2, 4, 8, 16, 32};
    float found[3];
    make_half(3);

    assert_false(gwi_store_has(&local.store, 1));
    assert_true(gwi_store_has(&local.store, 0) && gwi_store_has(&local.store, 2));
    gwi_walker w = worker_with(pass_on);

    assert_int_equal(gwi_store_push(&local.store, &w, keys, 6, updates), 0);
    assert_true(gwi_store_has(&local.store, 1));
    assert_int_equal(passed.n, 3); /* of key 1 all, in their order; it came after the first */
    assert_true(passed.values[0] == 2 && passed.values[1] == 8 && passed.values[2] == 32);
    w.arrivals_before = arrivals; /* in the next call it is here */
    assert_int_equal(gwi_store_push(&local.store, &w, keys, 6, updates), 0);
    assert_int_equal(passed.n, 3);
    assert_int_equal(gwi_store_pull(&local.store, &w, (int64_t[]){0, 1, 2}, 3, found), 0);
    assert_true(found[0] == 8 && found[1] == 142 && found[2] == 34);
}

/* A call of several walks: the first one has passed on key 1, which has come since. */
static void a_later_walk_of_a_call_does_not_overtake_an_earlier_one(void **state)
{
    (void)state;
    const int64_t keys[] = {0, 1};
    float found[2];
    make_half(3);

    gwi_walker w = worker_with(pass_on);

    assert_int_equal(gwi_store_set(&local.store, &w, &keys[1], 1, &(float){1}), 0);
    assert_true(gwi_store_has(&local.store, 1));
    w.wary = 1;
    assert_int_equal(gwi_store_set(&local.store, &w, keys, 2, (float[]){2, 3}), 0);
    assert_int_equal(gwi_store_push(&local.store, &w, keys, 2, (float[]){4, 5}), 0);
    assert_int_equal(passed.n, 3);
    assert_true(passed.values[0] == 1 && passed.values[1] == 3 && passed.values[2] == 5);
    assert_int_equal(gwi_store_pull(&local.store, &w, keys, 2, found), 0);
    assert_true(found[0] == 6 && found[1] == 100);
}

/* Key 0 is owned, 4 is watched, 1 is a copy with something untold. */
static void a_set_replaces_what_is_untold_of_a_copy_and_marks_what_others_must_hear_of(void **state)
{
    (void)state;
    const int64_t keys[] = {0, 1, 4};
    float found[3], untold = 0;
    make_half(6);
    gwi_walker w = worker_with(take_note);

    gwi_local_copy(&local, 1, &(float){100});
    gwi_local_flag(&local, 4, GWI_WORD_WATCHED, 1);
    assert_int_equal(gwi_store_push(&local.store, &w, &keys[1], 1, &(float){1}), 0);
    assert_int_equal(gwi_store_set(&local.store, &w, keys, 3, (float[]){5, 6, 7}), 0);
    assert_int_equal(passed.n, 0);
    assert_int_equal(gwi_store_pull(&local.store, &w, keys, 3, found), 0);
    assert_true(found[0] == 5 && found[1] == 6 && found[2] == 7);
    assert_false(gwi_local_is_marked(&local, 0));
    assert_true(gwi_local_is_marked(&local, 1) && gwi_local_is_marked(&local, 4));
    assert_int_equal(gwi_local_take_untold(&local, 1, &untold), GWI_ASSIGN);
    assert_true(untold == 6 && gwi_local_valid(&local));
}

GWI_TESTS(cmocka_unit_test_teardown(a_key_that_is_elsewhere_is_passed_on_without_its_latch, drop),
          cmocka_unit_test_teardown(several_vectors_are_added_to_together_also_one_of_them_twice,
                                    drop),
          cmocka_unit_test_teardown(an_owners_walk_ends_before_the_first_vector_that_is_not_its_own,
                                    drop),
          cmocka_unit_test_teardown(what_comes_during_a_push_does_not_overtake_what_was_passed_on,
                                    drop),
          cmocka_unit_test_teardown(a_later_walk_of_a_call_does_not_overtake_an_earlier_one, drop),
          cmocka_unit_test_teardown(
              a_set_replaces_what_is_untold_of_a_copy_and_marks_what_others_must_hear_of, drop))
