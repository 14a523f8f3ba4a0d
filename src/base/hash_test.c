/* hash_test.c - the hash functions mix well; the table keeps what it is given.
 *
 * The table is compiled into this file with a malloc that fails on demand.   */
#include <stdbool.h>
#include <stdlib.h>

static bool malloc_fails;

static void *malloc_or_fail(size_t bytes)
{
    return malloc_fails ? NULL : malloc(bytes);
}

#define malloc(bytes) malloc_or_fail(bytes)
#include "base/hash.c"
#undef malloc

#include "base/random.h"
#include "base/test.h"

static void numbers_mix_to_the_known_answers(void **state)
{
    (void)state;
    static const uint64_t known[][2] = {
        {0, 0xe220a8397b1dcdaf},
        {1, 0x910a2dec89025cc1},
        {UINT64_MAX, 0xe4d971771b652c20},
        {0x123456789abcdef, 0x157a3807a48faa9d},
        {1234567, UINT64_C(6457827717110365317)}, /* published for splitmix64 */
        {1234567 + GWI_HASH_STEP, UINT64_C(3203168211198807973)},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_true(gwi_hash_u64(known[i][0]) == known[i][1]);
}

static void bytes_hash_to_the_known_answers(void **state)
{
    (void)state;
    assert_true(gwi_hash_bytes(NULL, 0, 0) == UINT64_C(0xa706dd2f4d197e6f));
    assert_true(gwi_hash_bytes("a", 1, 0) == UINT64_C(0xaa2a39fe9bde47a0));
    assert_true(gwi_hash_bytes("a\0", 2, 0) == UINT64_C(0x45d079074a76f2c6));
    assert_true(gwi_hash_bytes("godwit", 6, 1) == UINT64_C(0x9c66cfc6975d0c03));
    assert_true(gwi_hash_bytes("godwit-1", 8, 1) == UINT64_C(0x412bab53829443f2));
    assert_true(gwi_hash_bytes("a job id of 27 bytes, indee", 27, 0xfeedfacecafebeef) ==
                UINT64_C(0x759806cf7fcda043));
}

static void bytes_hash_alike_at_any_address(void **state)
{
    (void)state;
    const char *text = "where the text lies makes no difference";
    size_t len = strlen(text);
    char room_for_it[64];

    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(room_for_it + shift, text, len);
        assert_true(gwi_hash_bytes(room_for_it + shift, len, 5) == gwi_hash_bytes(text, len, 5));
    }
}

/* Flip each of `n_in` bits of many inputs and see how often each of the 64 bits
 * of the hash changes: half of the time, within 5.5 standard deviations. */
#define TRIES 4000

static void check_flips(uint32_t flips[][64], int n_in)
{
    for (int in = 0; in < n_in; in++)
        for (int out = 0; out < 64; out++) {
            double off = flips[in][out] - TRIES / 2.0;
            assert_true(off * off < 5.5 * 5.5 * TRIES / 4.0);
        }
}

static void count_flips(uint32_t *flips, uint64_t changed)
{
    for (int out = 0; out < 64; out++)
        flips[out] += changed >> out & 1;
}

static void every_bit_of_a_number_reaches_every_bit_of_its_hash(void **state)
{
    (void)state;
    static uint32_t flips[64][64];
    gwi_random random;

    gwi_random_init(&random, 1, 0);
    for (int i = 0; i < TRIES; i++) {
        uint64_t x = gwi_random_u64(&random);
        for (int in = 0; in < 64; in++)
            count_flips(flips[in], gwi_hash_u64(x) ^ gwi_hash_u64(x ^ UINT64_C(1) << in));
    }
    check_flips(flips, 64);
}

static void every_bit_of_a_text_reaches_every_bit_of_its_hash(void **state)
{
    (void)state;
    enum { LEN = 19 }; /* two whole words and a part */
    static uint32_t flips[LEN * 8][64];
    gwi_random random;
    unsigned char text[LEN];

    gwi_random_init(&random, 2, 0);
    for (int i = 0; i < TRIES; i++) {
        gwi_random_fill(&random, text, LEN);
        uint64_t hash = gwi_hash_bytes(text, LEN, 9);
        for (int in = 0; in < LEN * 8; in++) {
            text[in / 8] ^= (unsigned char)(1 << in % 8);
            count_flips(flips[in], hash ^ gwi_hash_bytes(text, LEN, 9));
            text[in / 8] ^= (unsigned char)(1 << in % 8);
        }
    }
    check_flips(flips, LEN * 8);
}

static void an_empty_table_has_nothing_and_needs_no_memory(void **state)
{
    (void)state;
    gwi_hash hash;
    uint64_t key, value = 7;

    malloc_fails = true;
    gwi_hash_init(&hash);
    malloc_fails = false;
    assert_true(gwi_hash_valid(&hash));
    assert_false(gwi_hash_get(&hash, 1, &value));
    assert_false(gwi_hash_remove(&hash, 1, &value));
    assert_null(gwi_hash_find(&hash, 1));
    gwi_hash_cursor cursor = gwi_hash_start(&hash);
    assert_false(gwi_hash_next(&hash, &cursor, &key, &value));
    assert_int_equal(value, 7);
    gwi_hash_clear(&hash);
    gwi_hash_fini(&hash);
    gwi_hash_fini(&hash);
    gwi_hash_fini(NULL);
}

static void every_key_and_value_is_allowed(void **state)
{
    (void)state;
    static const uint64_t special[] = {
        0, 1, UINT64_MAX, UINT64_C(1) << 63, GWI_HASH_STEP, 0 - GWI_HASH_STEP};
    size_t n = sizeof special / sizeof special[0];
    gwi_hash hash = {0};
    uint64_t value;

    for (size_t i = 0; i < n; i++)
        assert_int_equal(gwi_hash_put(&hash, special[i], special[n - 1 - i]), 0);
    assert_int_equal(hash.count, n);
    for (size_t i = 0; i < n; i++) {
        assert_true(gwi_hash_get(&hash, special[i], &value));
        assert_true(value == special[n - 1 - i]);
    }
    gwi_hash_fini(&hash);
}

static void a_second_put_gives_a_new_value(void **state)
{
    (void)state;
    gwi_hash hash = {0};
    uint64_t value;

    assert_int_equal(gwi_hash_put(&hash, 5, 50), 0);
    assert_int_equal(gwi_hash_put(&hash, 5, 51), 0);
    assert_int_equal(hash.count, 1);
    *gwi_hash_find(&hash, 5) += 1;
    assert_true(gwi_hash_remove(&hash, 5, &value));
    assert_int_equal(value, 52);
    assert_false(gwi_hash_get(&hash, 5, NULL));
    gwi_hash_fini(&hash);
}

/* The table against a plain array, with few keys so that all cases occur. */
static void a_table_does_what_an_array_does(void **state)
{
    (void)state;
    enum { KEYS = 300, STEPS = 60000 };
    static bool here[KEYS];
    static uint64_t value_of[KEYS];
    gwi_hash hash = {0};
    gwi_random random;
    size_t count = 0;

    gwi_random_init(&random, 3, 0);
    for (int step = 0; step < STEPS; step++) {
        uint64_t k = gwi_random_below(&random, KEYS), value = 0;
        /* The table fills and empties in turn. */
        if (gwi_random_below(&random, 100) < (step / 5000 % 2 == 0 ? 70 : 30)) {
            value_of[k] = gwi_random_u64(&random);
            assert_int_equal(gwi_hash_put(&hash, k * 1000, value_of[k]), 0);
            count += !here[k];
            here[k] = true;
        } else {
            assert_int_equal(gwi_hash_remove(&hash, k * 1000, &value), here[k]);
            if (here[k])
                assert_true(value == value_of[k]);
            count -= here[k];
            here[k] = false;
        }
        assert_int_equal(hash.count, count);
        k = gwi_random_below(&random, KEYS);
        assert_int_equal(gwi_hash_get(&hash, k * 1000, &value), here[k]);
        if (here[k])
            assert_true(value == value_of[k]);
        if (step % 16 == 0)
            assert_true(gwi_hash_valid(&hash));
    }
    gwi_hash_fini(&hash);
}

/* Keys whose home is the same slot, or the last ones before the end of the
 * table, so that searches and removals go around it. */
static uint64_t key_with_home(const gwi_hash *hash, size_t home, uint64_t from)
{
    while (home_of(hash, gwi_hash_u64(from)) != home)
        from++;
    return from;
}

static void keys_that_collide_around_the_end_survive_removals(void **state)
{
    (void)state;
    enum { KEYS = 12 };
    gwi_hash hash = {0};
    uint64_t keys[KEYS], from = 0;

    assert_int_equal(gwi_hash_reserve(&hash, KEYS), 0);
    assert_int_equal(hash.n_slots, 16);
    for (int i = 0; i < KEYS; i++) {
        keys[i] = key_with_home(&hash, (size_t)(i % 3 == 2 ? 15 : 14), from);
        from = keys[i] + 1;
    }
    for (int first = 0; first < KEYS; first++) {
        for (int i = 0; i < KEYS; i++)
            assert_int_equal(gwi_hash_put(&hash, keys[i], (uint64_t)i), 0);
        for (int i = 0; i < KEYS; i++) {
            assert_true(gwi_hash_remove(&hash, keys[(first + i * 5) % KEYS], NULL));
            assert_true(gwi_hash_valid(&hash));
            for (int j = 0; j < KEYS; j++) {
                uint64_t value = (uint64_t)j;
                bool gone = false;
                for (int k = 0; k <= i; k++)
                    gone |= (first + k * 5) % KEYS == j;
                assert_int_equal(gwi_hash_get(&hash, keys[j], &value), !gone);
                assert_int_equal(value, j);
            }
        }
    }
    gwi_hash_fini(&hash);
}

static void a_large_table_grows_and_keeps_everything(void **state)
{
    (void)state;
    enum { N = 100000 };
    gwi_hash hash = {0};
    uint64_t value;

    for (uint64_t i = 0; i < N; i++)
        assert_int_equal(gwi_hash_put(&hash, i << 20, i), 0);
    assert_int_equal(hash.count, N);
    assert_true(gwi_hash_valid(&hash));
    for (uint64_t i = 0; i < N; i++) {
        assert_true(gwi_hash_get(&hash, i << 20, &value) && value == i);
        assert_false(gwi_hash_get(&hash, (i << 20) + 1, NULL));
    }
    gwi_hash_clear(&hash);
    assert_int_equal(hash.count, 0);
    assert_true(gwi_hash_valid(&hash));
    assert_false(gwi_hash_get(&hash, 0, NULL));
    gwi_hash_fini(&hash);
}

/* Distances tell how long searches take; marks of removed entries, or holes
 * that are not closed, would make them grow without end. */
static size_t total_distance(const gwi_hash *hash)
{
    size_t total = 0;

    for (size_t slot = 0; slot < hash->n_slots; slot++)
        if (hash->tag[slot] != 0)
            total += distance(hash, slot);
    return total;
}

static void a_table_that_lived_long_is_as_fast_as_a_new_one(void **state)
{
    (void)state;
    enum { N = 3000, STEPS = 300000 };
    gwi_hash old = {0}, fresh = {0};

    assert_int_equal(gwi_hash_reserve(&old, N), 0);
    size_t n_slots = old.n_slots;
    for (uint64_t i = 0; i < STEPS; i++) {
        assert_int_equal(gwi_hash_put(&old, i, i), 0);
        if (i >= N)
            assert_true(gwi_hash_remove(&old, i - N, NULL));
    }
    assert_true(gwi_hash_valid(&old));
    for (uint64_t i = STEPS - N; i < STEPS; i++)
        assert_int_equal(gwi_hash_put(&fresh, i, i), 0);
    assert_int_equal(old.n_slots, n_slots);
    assert_int_equal(fresh.n_slots, n_slots);
    /* The same keys in the same order of arrival fill the same slots, and the
     * sum of distances does not depend on the order at all. */
    assert_int_equal(total_distance(&old), total_distance(&fresh));
    gwi_hash_fini(&old);
    gwi_hash_fini(&fresh);
}

static void iterating_gives_every_entry_once_even_while_removing(void **state)
{
    (void)state;
    enum { N = 700 };

    for (uint64_t keep_one_of = 1; keep_one_of <= 8; keep_one_of++) {
        gwi_hash hash = {0};
        uint8_t seen[N] = {0};
        uint64_t key, value, kept = 0;

        for (uint64_t i = 0; i < N; i++)
            assert_int_equal(gwi_hash_put(&hash, i, i + 1), 0);
        gwi_hash_cursor cursor = gwi_hash_start(&hash);
        while (gwi_hash_next(&hash, &cursor, &key, &value)) {
            assert_true(key < N && value == key + 1);
            seen[key]++;
            if (key % keep_one_of == 0)
                kept++;
            else
                assert_true(gwi_hash_remove(&hash, key, NULL));
        }
        for (size_t i = 0; i < N; i++)
            assert_int_equal(seen[i], 1);
        assert_int_equal(hash.count, kept);
        assert_true(gwi_hash_valid(&hash));
        gwi_hash_fini(&hash);
    }
}

static void removing_everything_in_a_loop_empties_a_full_table(void **state)
{
    (void)state;
    gwi_hash hash = {0};
    uint64_t key, value, n = 0;

    assert_int_equal(gwi_hash_reserve(&hash, 12), 0);
    for (uint64_t k = 0; k < 12; k++)
        assert_int_equal(gwi_hash_put(&hash, key_with_home(&hash, 15, k * 100), k), 0);
    size_t count = hash.count;
    gwi_hash_cursor cursor = gwi_hash_start(&hash);
    while (gwi_hash_next(&hash, &cursor, &key, &value)) {
        assert_true(gwi_hash_remove(&hash, key, NULL));
        n++;
    }
    assert_int_equal(n, count);
    assert_int_equal(hash.count, 0);
    gwi_hash_fini(&hash);
}

static void a_put_within_the_reserve_needs_no_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 11, 12, 13, 24, 25, 1000};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        gwi_hash hash = {0};
        assert_int_equal(gwi_hash_reserve(&hash, sizes[i]), 0);
        malloc_fails = true;
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(gwi_hash_put(&hash, k, k), 0);
        for (size_t k = 0; k < 10 * sizes[i]; k++) {
            assert_true(gwi_hash_remove(&hash, k, NULL));
            assert_int_equal(gwi_hash_put(&hash, k + sizes[i], k), 0);
        }
        malloc_fails = false;
        assert_true(gwi_hash_valid(&hash));
        gwi_hash_fini(&hash);
    }
}

static void a_table_that_cannot_grow_is_as_it_was(void **state)
{
    (void)state;
    gwi_hash hash = {0};
    uint64_t value, k = 0;

    malloc_fails = true;
    assert_int_equal(gwi_hash_put(&hash, 0, 0), GW_ENOMEM);
    assert_int_equal(gwi_hash_reserve(&hash, 1), GW_ENOMEM);
    assert_true(gwi_hash_valid(&hash) && hash.count == 0);
    malloc_fails = false;
    assert_int_equal(gwi_hash_put(&hash, k, k), 0);

    malloc_fails = true;
    while (gwi_hash_put(&hash, k + 1, k + 1) == 0)
        k++;
    gwi_hash before_it = hash;
    assert_int_equal(gwi_hash_put(&hash, k + 1, 0), GW_ENOMEM);
    assert_non_null(strstr(gw_last_error(), "hash table"));
    assert_int_equal(gwi_hash_put(&hash, k, 99), 0); /* it is there: no memory needed */
    malloc_fails = false;

    assert_memory_equal(&before_it, &hash, sizeof hash);
    assert_true(gwi_hash_valid(&hash));
    for (uint64_t i = 0; i < k; i++)
        assert_true(gwi_hash_get(&hash, i, &value) && value == i);
    assert_true(gwi_hash_get(&hash, k, &value) && value == 99);
    assert_false(gwi_hash_get(&hash, k + 1, NULL));
    assert_int_equal(gwi_hash_put(&hash, k + 1, 0), 0);
    gwi_hash_fini(&hash);
}

static void a_reserve_beyond_all_memory_is_refused(void **state)
{
    (void)state;
    gwi_hash hash = {0};

    assert_int_equal(gwi_hash_reserve(&hash, SIZE_MAX), GW_ENOMEM);
    assert_int_equal(gwi_hash_reserve(&hash, SIZE_MAX / 64), GW_ENOMEM);
    assert_true(gwi_hash_valid(&hash) && hash.n_slots == 0);
}

static void a_broken_table_is_not_valid(void **state)
{
    (void)state;
    gwi_hash hash = {0};
    size_t slot = 0;

    for (uint64_t k = 0; k < 10; k++)
        assert_int_equal(gwi_hash_put(&hash, k, k), 0);
    assert_true(gwi_hash_valid(&hash));
    assert_true(has_key(&hash, 4, &slot));

    hash.count++;
    assert_false(gwi_hash_valid(&hash));
    hash.count--;
    hash.tag[slot] ^= 1;
    assert_false(gwi_hash_valid(&hash));
    hash.tag[slot] ^= 1;
    hash.n_slots = 15;
    assert_false(gwi_hash_valid(&hash));
    hash.n_slots = 16;

    /* A key far from its home, behind an empty slot. */
    size_t empty = slot;
    while (hash.tag[empty] != 0)
        empty = after(&hash, empty);
    size_t far = after(&hash, empty);
    while (hash.tag[far] != 0)
        far = after(&hash, far);
    gwi_hash_entry entry = hash.entry[slot];
    hash.tag[far] = hash.tag[slot];
    hash.entry[far] = entry;
    hash.tag[slot] = 0;
    assert_false(gwi_hash_valid(&hash));
    hash.tag[slot] = hash.tag[far];
    hash.tag[far] = 0;
    assert_true(gwi_hash_valid(&hash));
    gwi_hash_fini(&hash);
}

GWI_TESTS(cmocka_unit_test(numbers_mix_to_the_known_answers),
          cmocka_unit_test(bytes_hash_to_the_known_answers),
          cmocka_unit_test(bytes_hash_alike_at_any_address),
          cmocka_unit_test(every_bit_of_a_number_reaches_every_bit_of_its_hash),
          cmocka_unit_test(every_bit_of_a_text_reaches_every_bit_of_its_hash),
          cmocka_unit_test(an_empty_table_has_nothing_and_needs_no_memory),
          cmocka_unit_test(every_key_and_value_is_allowed),
          cmocka_unit_test(a_second_put_gives_a_new_value),
          cmocka_unit_test(a_table_does_what_an_array_does),
          cmocka_unit_test(keys_that_collide_around_the_end_survive_removals),
          cmocka_unit_test(a_large_table_grows_and_keeps_everything),
          cmocka_unit_test(a_table_that_lived_long_is_as_fast_as_a_new_one),
          cmocka_unit_test(iterating_gives_every_entry_once_even_while_removing),
          cmocka_unit_test(removing_everything_in_a_loop_empties_a_full_table),
          cmocka_unit_test(a_put_within_the_reserve_needs_no_memory),
          cmocka_unit_test(a_table_that_cannot_grow_is_as_it_was),
          cmocka_unit_test(a_reserve_beyond_all_memory_is_refused),
          cmocka_unit_test(a_broken_table_is_not_valid))
