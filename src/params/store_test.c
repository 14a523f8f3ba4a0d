/* store_test.c - layout and rules of a store, and walks over it, alone and among others. */
#include "params/store.h"
#include "base/random.h"
#include "base/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* A store in memory that ends exactly where the store does, and a walker. */
static gwi_geometry geometry;
static void *memory;
static size_t memory_bytes;
static gwi_store store;
static gwi_hand hand;
static gwi_walker walker;

static int drop(void **state)
{
    (void)state;
    gwi_store_fini(&store);
    gwi_geometry_fini(&geometry);
    free(memory);
    memory = NULL;
    return 0;
}

static int never_stuck(void *ctx, int64_t key)
{
    (void)ctx;
    fail_msg("stuck at key %lld", (long long)key);
    return -1;
}

static const gwi_spread alone = {0, 1, 1, 0, 0};

static void make_share(int64_t n_keys, const int64_t *lengths, size_t n_lengths, gw_dtype dtype,
                       gwi_spread spread)
{
    drop(NULL);
    assert_int_equal(gwi_geometry_init(&geometry, n_keys, lengths, n_lengths, dtype), 0);
    memory_bytes = gwi_store_bytes(&geometry);
    assert_int_equal(posix_memalign(&memory, GWI_STORE_ALIGN, memory_bytes), 0);
    memset(memory, 0, memory_bytes);
    assert_int_equal(gwi_store_init(&store, &geometry, &spread, memory, memory_bytes), 0);
    hand = (gwi_hand){0};
    walker = (gwi_walker){.hand = &hand, .stuck = never_stuck};
}

static void make(int64_t n_keys, const int64_t *lengths, size_t n_lengths, gw_dtype dtype)
{
    make_share(n_keys, lengths, n_lengths, dtype, gwi_spread_of(0, 1, 1));
}

/* 100 keys of lengths 1 to 7. */
static void make_mixed(gw_dtype dtype)
{
    int64_t lengths[100];

    for (int key = 0; key < 100; key++)
        lengths[key] = 1 + key * 5 % 7;
    make(100, lengths, 100, dtype);
}

/* layout */

static void a_new_store_is_valid_and_all_zero(void **state)
{
    (void)state;
    double values[700];
    int64_t keys[100];

    make_mixed(GW_F64);
    assert_true(gwi_store_valid(&store));
    for (int64_t key = 0; key < 100; key++) {
        keys[key] = key;
        assert_true(gwi_store_has(&store, key));
        assert_false(gwi_store_latched(&store, key));
    }
    memset(values, 1, sizeof values);
    assert_int_equal(gwi_store_pull(&store, &walker, keys, 100, values), 0);
    for (uint64_t i = 0; i < gwi_geometry_entries(&geometry, keys, 100); i++)
        assert_true(values[i] == 0);
}

static void keys_beside_each_other_lie_beside_each_other(void **state)
{
    (void)state;
    uint32_t seen[7] = {0};

    make_mixed(GW_F32);
    for (int64_t key = 0; key < 100; key++) {
        uint32_t class = geometry.class_of[key];
        assert_int_equal(gwi_word_slot(gwi_word_look(&store.words[key])), seen[class]++);
        assert_int_equal(store.class_of[key], class);
    }
}

static void a_store_has_the_keys_of_its_share_only(void **state)
{
    (void)state;
    const int64_t length = 3;

    for (int node = 0; node < 3; node++) {
        make_share(100, &length, 1, GW_F32, gwi_spread_of(node, 3, 1));
        assert_true(gwi_store_valid(&store));
        assert_int_equal(gwi_slab_in_use(&store.slabs[0]), node == 0 ? 34 : 33);
        for (int64_t key = 0; key < 100; key++)
            assert_int_equal(gwi_store_has(&store, key), key % 3 == node);
    }
}

static void parts_do_not_overlap(void **state)
{
    (void)state;
    const int64_t shapes[][2] = {{1, 1}, {1, 70}, {9, 3}, {8191, 1}, {8192, 2}, {40000, 5}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t n = shapes[i][0], *lengths = malloc((size_t)n * sizeof *lengths);
        for (int64_t key = 0; key < n; key++)
            lengths[key] = 1 + key % shapes[i][1];
        make(n, lengths, (size_t)n, GW_F32);
        uintptr_t end = (uintptr_t)(store.words + n), base = (uintptr_t)memory;
        assert_true((uintptr_t)store.words >= base + sizeof(gwi_store_header));
        if (store.class_of != NULL) {
            assert_true((uintptr_t)store.class_of >= end);
            end = (uintptr_t)(store.class_of + n);
        }
        for (uint32_t c = 0; c < geometry.n_classes; c++) {
            const gwi_slab *slab = &store.slabs[c];
            assert_true((uintptr_t)slab->header >= end);
            assert_int_equal((uintptr_t)slab->blocks % GWI_LINE, 0);
            end = (uintptr_t)slab->blocks + slab->block_bytes * slab->n_blocks;
        }
        assert_true(end <= base + memory_bytes);
        free(lengths);
    }
}

static void more_than_there_are_addresses_is_refused(void **state)
{
    (void)state;
    const int64_t length = GWI_MAX_LENGTH;
    gwi_geometry g = {0};
    gwi_store s = {0};

    assert_int_equal(gwi_geometry_init(&g, (int64_t)UINT32_MAX - 2, &length, 1, GW_F64), 0);
    assert_int_equal(gwi_store_bytes(&g), 0);
    assert_int_equal(gwi_store_init(&s, &g, &alone, NULL, 0), GW_EINVAL);
    gwi_store_fini(&s);
    gwi_geometry_fini(&g);
}

static void too_little_memory_is_refused(void **state)
{
    (void)state;
    gwi_store other = {0};

    make_mixed(GW_F32);
    assert_int_equal(gwi_store_init(&other, &geometry, &alone, memory, memory_bytes - 1),
                     GW_EINVAL);
    assert_int_equal(gwi_store_init(&other, &geometry, &alone, memory, 0), GW_EINVAL);
    assert_non_null(strstr(gw_last_error(), "too few for 100 keys"));
    assert_true(gwi_store_valid(&store)); /* nothing has changed */
}

/* attaching */

static void another_view_sees_the_same_vectors(void **state)
{
    (void)state;
    const int64_t keys[] = {3, 99, 3};
    float values[21], back[21] = {0};
    gwi_store other;

    make_mixed(GW_F32);
    assert_int_equal(gwi_store_attach(&other, &geometry, memory, memory_bytes), 0);
    for (int i = 0; i < 21; i++)
        values[i] = (float)(i + 1);
    size_t n = gwi_geometry_entries(&geometry, keys + 1, 2);
    assert_int_equal(gwi_store_set(&store, &walker, keys + 1, 2, values), 0);
    assert_int_equal(gwi_store_pull(&other, &walker, keys + 1, 2, back), 0);
    assert_memory_equal(back, values, n * sizeof *values);
    assert_true(gwi_store_valid(&other));
    gwi_store_fini(&other);
    gwi_store_fini(&other);
}

static void refuse(int err, const char *words, const gwi_geometry *g, size_t n_bytes)
{
    gwi_store other = {0}, zeros = {0};

    assert_int_equal(gwi_store_attach(&other, g, memory, n_bytes), err);
    if (strstr(gw_last_error(), words) == NULL)
        fail_msg("'%s' does not say '%s'", gw_last_error(), words);
    assert_memory_equal(&other, &zeros, sizeof other);
}

static void whoever_expects_something_else_is_refused(void **state)
{
    (void)state;
    const int64_t seven = 7, six = 6;
    gwi_geometry more = {0}, longer = {0}, wider = {0};

    make(100, &six, 1, GW_F64);
    assert_int_equal(gwi_geometry_init(&more, 99, &six, 1, GW_F64), 0);
    assert_int_equal(gwi_geometry_init(&longer, 100, &seven, 1, GW_F64), 0);
    assert_int_equal(gwi_geometry_init(&wider, 100, &six, 1, GW_F32), 0);
    refuse(GW_EDISAGREE, "other numbers of keys or other lengths", &more, memory_bytes);
    refuse(GW_EDISAGREE, "other numbers of keys or other lengths", &longer, memory_bytes);
    refuse(GW_EDISAGREE, "other", &wider, memory_bytes);
    gwi_geometry_fini(&more);
    gwi_geometry_fini(&longer);
    gwi_geometry_fini(&wider);
}

static void memory_without_a_whole_store_is_refused(void **state)
{
    (void)state;
    make_mixed(GW_F32);
    refuse(GW_ESTATE, "there is none", &geometry, 0);
    refuse(GW_ESTATE, "there is none", &geometry, sizeof(gwi_store_header) - 1);
    refuse(GW_EINVAL, "too few", &geometry, memory_bytes - 1);
    store.header->magic++;
    refuse(GW_ESTATE, "there is none in this memory, or not yet", &geometry, memory_bytes);
    store.header->magic--;
    store.header->fingerprint++;
    refuse(GW_EDISAGREE, "another version", &geometry, memory_bytes);
    store.header->fingerprint--;
    store.slabs[2].header->magic++;
    refuse(GW_ESTATE, "slab", &geometry, memory_bytes);
}

static void a_store_is_not_there_before_it_is_whole(void **state)
{
    (void)state;
    make_mixed(GW_F32);
    gwi_store_fini(&store);
    memset(memory, 0, memory_bytes);
    refuse(GW_ESTATE, "not yet", &geometry, memory_bytes);
}

/* checking */

typedef void damage(void);

static void leave_a_latch(void)
{
    store.words[42] |= GWI_WORD_LATCH;
}

static void give_a_state_that_is_none(void)
{
    store.words[42] |= GWI_WORD_STATE;
}

static void lead_out_of_the_slab(void)
{
    store.words[42] = gwi_word_make(store.slabs[geometry.class_of[42]].n_blocks, GWI_OWNED);
}

static void put_two_keys_into_one_row(void)
{
    store.words[42] = store.words[42 + 7]; /* of the same length */
}

static void forget_a_key(void)
{
    store.words[42] = 0;
}

static void lose_a_row(void)
{
    store.words[42] = gwi_word_make(7, GWI_ABSENT);
}

static void damage_a_slab(void)
{
    store.slabs[3].header->fresh++;
}

static void free_a_row_that_is_used(void)
{
    gwi_slab_free(&store.slabs[geometry.class_of[42]],
                  gwi_word_slot(gwi_word_look(&store.words[42])));
}

static void move_a_key_to_another_class(void)
{
    ((uint16_t *)(uintptr_t)store.class_of)[42] ^= 1;
}

static void move_a_key_to_no_class(void)
{
    ((uint16_t *)(uintptr_t)store.class_of)[42] = UINT16_MAX;
}

static void damage_the_header(void)
{
    store.header->magic = 0;
}

static void every_kind_of_damage_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        damage *run;
    } kinds[] = {
        {"a latch that stays", leave_a_latch},
        {"a state that is none", give_a_state_that_is_none},
        {"a row out of the slab", lead_out_of_the_slab},
        {"two keys in one row", put_two_keys_into_one_row},
        {"a forgotten key", forget_a_key},
        {"a lost row", lose_a_row},
        {"a damaged slab", damage_a_slab},
        {"a row that is used and free", free_a_row_that_is_used},
        {"a key of another class", move_a_key_to_another_class},
        {"a key of no class", move_a_key_to_no_class},
        {"a header that is none", damage_the_header},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        make_mixed(GW_F32);
        assert_true(gwi_store_valid(&store));
        kinds[i].run();
        if (gwi_store_valid(&store))
            fail_msg("not found: %s", kinds[i].name);
    }
}

/* Half of the rows are free here, so the numbers alone do not tell. */
static void a_key_in_a_row_that_nobody_gave_it_is_found(void **state)
{
    (void)state;
    const int64_t length = 3;
    uint32_t rows[3];

    make_share(100, &length, 1, GW_F32, gwi_spread_of(0, 2, 1));
    uint64_t word = store.words[42];
    assert_int_equal(gwi_word_slot(word), 21);
    store.words[42] = gwi_word_make(77, GWI_OWNED); /* never given out */
    assert_false(gwi_store_valid(&store));
    store.words[42] = word;
    assert_true(gwi_store_valid(&store));

    for (int i = 0; i < 3; i++)
        assert_int_equal(gwi_slab_alloc(&store.slabs[0], &rows[i]), 0);
    for (int i = 0; i < 3; i++)
        gwi_slab_free(&store.slabs[0], rows[i]);
    assert_true(gwi_store_valid(&store));
    store.words[42] = gwi_word_make(rows[1], GWI_OWNED); /* given back */
    assert_false(gwi_store_valid(&store));
}

/* walking alone: against a plain array */

#define N_KEYS 150
#define MOST 300 /* keys in a batch */
#define MAX_LENGTH 70
#define BATCHES (GWI_TSAN ? 5 : 25) /* of each length; ThreadSanitizer sees every entry */

struct model {
    gw_dtype dtype;
    double entries[N_KEYS][MAX_LENGTH];
    int64_t keys[MOST];
    size_t n;
    unsigned char *values; /* of the batch */
    gwi_random random;
};

static double get(const struct model *m, size_t i)
{
    return m->dtype == GW_F32 ? (double)((float *)(void *)m->values)[i]
                              : ((double *)(void *)m->values)[i];
}

static void put(struct model *m, size_t i, double value)
{
    if (m->dtype == GW_F32)
        ((float *)(void *)m->values)[i] = (float)value;
    else
        ((double *)(void *)m->values)[i] = value;
}

static size_t length_of(int64_t key)
{
    return gwi_geometry_class(&geometry, key)->length;
}

/* Some keys, on a few of which many batches meet; memory for just their values. */
static void draw_batch(struct model *m)
{
    uint64_t among = gwi_random_below(&m->random, 2) ? (uint64_t)geometry.n_keys
                                                     : 1 + gwi_random_below(&m->random, 9);

    if (among > (uint64_t)geometry.n_keys)
        among = (uint64_t)geometry.n_keys;
    m->n = gwi_random_below(&m->random, MOST + 1);
    for (size_t i = 0; i < m->n; i++)
        m->keys[i] = (int64_t)gwi_random_below(&m->random, among);
    size_t n_values = gwi_geometry_entries(&geometry, m->keys, m->n);
    m->values = malloc(n_values * geometry.item_bytes + 1);
    for (size_t i = 0; i < n_values; i++)
        put(m, i, (double)gwi_random_below(&m->random, 100) - 50);
}

static void do_batch(struct model *m)
{
    uint64_t what = gwi_random_below(&m->random, 3);
    size_t at = 0;

    draw_batch(m);
    assert_int_equal(what == 0   ? gwi_store_pull(&store, &walker, m->keys, m->n, m->values)
                     : what == 1 ? gwi_store_push(&store, &walker, m->keys, m->n, m->values)
                                 : gwi_store_set(&store, &walker, m->keys, m->n, m->values),
                     0);
    assert_int_equal(atomic_load(&hand.n), 0);
    for (size_t i = 0; i < m->n; i++)
        for (size_t j = 0; j < length_of(m->keys[i]); j++, at++) {
            double *entry = &m->entries[m->keys[i]][j];
            if (what == 0)
                assert_true(get(m, at) == *entry);
            else
                *entry = get(m, at) + (what == 1 ? *entry : 0);
        }
    free(m->values);
}

static void compare_all(struct model *m)
{
    for (int64_t key = 0; key < geometry.n_keys; key++) {
        double values[MAX_LENGTH];
        m->values = (unsigned char *)values;
        assert_int_equal(gwi_store_pull(&store, &walker, &key, 1, values), 0);
        for (size_t j = 0; j < length_of(key); j++)
            assert_true(get(m, j) == m->entries[key][j]);
    }
    assert_true(gwi_store_valid(&store));
}

static void check_batches(gw_dtype dtype, int n_batches, unsigned grip)
{
    struct model *m = calloc(1, sizeof *m);

    assert_non_null(m);
    m->dtype = dtype;
    gwi_random_init(&m->random, 1, (uint64_t)geometry.n_keys + geometry.classes[0].length);
    for (int i = 0; i < n_batches; i++) {
        if (grip != 0)
            walker.grip = grip;
        do_batch(m);
    }
    compare_all(m);
    free(m);
}

static void batches_of_vectors_of_any_length_do_what_an_array_does(void **state)
{
    (void)state;
    for (int64_t length = 1; length <= MAX_LENGTH; length++) {
        make(N_KEYS, &length, 1, GW_F32);
        check_batches(GW_F32, BATCHES, 0);
        make(N_KEYS, &length, 1, GW_F64);
        check_batches(GW_F64, BATCHES, 0);
    }
}

static void batches_of_mixed_lengths_do_what_an_array_does(void **state)
{
    (void)state;
    for (int n_lengths = 2; n_lengths <= MAX_LENGTH; n_lengths += 17) {
        int64_t lengths[N_KEYS];
        for (int key = 0; key < N_KEYS; key++)
            lengths[key] = 1 + key * 11 % n_lengths;
        make(N_KEYS, lengths, N_KEYS, GW_F32);
        check_batches(GW_F32, 8 * BATCHES, 0);
        make(N_KEYS, lengths, N_KEYS, GW_F64);
        check_batches(GW_F64, 8 * BATCHES, 0);
    }
}

static void a_store_of_one_key_does_what_an_array_does(void **state)
{
    (void)state;
    const int64_t length = 13;

    make(1, &length, 1, GW_F32);
    check_batches(GW_F32, 100, 0);
}

static void any_grip_does_the_same(void **state)
{
    (void)state;
    for (unsigned grip = 1; grip <= GWI_HAND_KEYS; grip++) {
        make_mixed(GW_F32);
        check_batches(GW_F32, 50, grip);
    }
}

static void of_equal_keys_each_is_read_each_is_added_and_the_last_assignment_stays(void **state)
{
    (void)state;
    const int64_t length = 2, keys[] = {5, 5, 6, 5, 5};
    float values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, back[10];

    make(10, &length, 1, GW_F32);
    assert_int_equal(gwi_store_push(&store, &walker, keys, 5, values), 0);
    assert_int_equal(gwi_store_pull(&store, &walker, keys, 5, back), 0);
    const float sums[] = {20, 24, 20, 24, 5, 6, 20, 24, 20, 24};
    assert_memory_equal(back, sums, sizeof sums);
    assert_int_equal(gwi_store_set(&store, &walker, keys, 5, values), 0);
    assert_int_equal(gwi_store_pull(&store, &walker, keys, 5, back), 0);
    const float last[] = {9, 10, 9, 10, 5, 6, 9, 10, 9, 10};
    assert_memory_equal(back, last, sizeof last);
}

static void an_empty_batch_does_nothing(void **state)
{
    (void)state;
    make_mixed(GW_F32);
    assert_int_equal(gwi_store_pull(&store, &walker, NULL, 0, NULL), 0);
    assert_int_equal(gwi_store_push(&store, &walker, NULL, 0, NULL), 0);
    assert_int_equal(gwi_store_set(&store, &walker, NULL, 0, NULL), 0);
    assert_true(gwi_store_valid(&store));
}

static void a_walker_without_a_hand_walks_too(void **state)
{
    (void)state;
    const int64_t length = 2, key = 5;
    float values[] = {1, 2}, back[2];

    make(10, &length, 1, GW_F32);
    walker = (gwi_walker){0};
    assert_int_equal(gwi_store_push(&store, &walker, &key, 1, values), 0);
    assert_int_equal(gwi_store_pull(&store, &walker, &key, 1, back), 0);
    assert_memory_equal(back, values, sizeof back);
}

static void a_version_that_wraps_does_no_harm(void **state)
{
    (void)state;
    const int64_t length = 2, key = 5;
    float one[] = {1, 2}, back[2], three[] = {3, 6};

    make(10, &length, 1, GW_F32);
    store.words[key] |= GWI_WORD_VERSION;
    for (int i = 0; i < 3; i++)
        assert_int_equal(gwi_store_push(&store, &walker, &key, 1, one), 0);
    assert_int_equal(gwi_store_pull(&store, &walker, &key, 1, back), 0);
    assert_memory_equal(back, three, sizeof back);
    assert_true(gwi_store_valid(&store));
}

/* a latch that somebody has */

struct stuck {
    int64_t key; /* where it was asked */
    int calls;
    int patience; /* how often 0 is returned before the latch is given back; -1: an error */
};

static int on_stuck(void *ctx, int64_t key)
{
    struct stuck *s = ctx;

    assert_int_equal(atomic_load(&hand.n), 0); /* who waits holds nothing */
    s->key = key;
    s->calls++;
    if (s->patience < 0)
        return GW_ETIMEOUT;
    if (s->calls > s->patience)
        gwi_word_release(&store.words[key], store.words[key] & ~GWI_WORD_LATCH);
    return 0;
}

/* Somebody has the latch of key 50 of 100, whose vectors are of two entries. */
static void take_50(struct stuck *s, int patience)
{
    const int64_t length = 2;
    uint64_t word;

    make(100, &length, 1, GW_F32);
    *s = (struct stuck){.patience = patience};
    walker = (gwi_walker){.hand = &hand, .stuck = on_stuck, .ctx = s};
    assert_true(gwi_word_try_latch(&store.words[50], &word));
    assert_true(gwi_store_latched(&store, 50));
}

typedef int change(const gwi_store *store, gwi_walker *walker, const int64_t *keys, size_t n,
                   const void *values);

static void check_stuck_change(change *run)
{
    struct stuck s;
    int64_t keys[100];
    float values[200], back[200];

    take_50(&s, -1);
    for (int64_t key = 0; key < 100; key++) {
        keys[key] = key;
        values[2 * key] = values[2 * key + 1] = (float)(key + 1);
    }
    assert_int_equal(run(&store, &walker, keys, 100, values), GW_ETIMEOUT);
    assert_int_equal(s.key, 50);
    assert_int_equal(s.calls, 1);
    assert_int_equal(atomic_load(&hand.n), 0);
    gwi_word_release(&store.words[50], store.words[50] & ~GWI_WORD_LATCH);
    assert_true(gwi_store_valid(&store)); /* it left no latch behind */
    assert_int_equal(gwi_store_pull(&store, &walker, keys, 100, back), 0);
    for (int i = 0; i < 200; i++)
        assert_true(back[i] == (i < 100 ? values[i] : 0));
}

static void a_change_that_is_stuck_has_done_what_came_before_and_nothing_after(void **state)
{
    (void)state;
    check_stuck_change(gwi_store_push);
    check_stuck_change(gwi_store_set);
}

static void a_pull_that_is_stuck_ends_with_the_error(void **state)
{
    (void)state;
    struct stuck s;
    int64_t keys[] = {49, 50, 51};
    float back[6] = {9, 9, 9, 9, 9, 9};

    take_50(&s, -1);
    assert_int_equal(gwi_store_pull(&store, &walker, keys, 3, back), GW_ETIMEOUT);
    assert_int_equal(s.key, 50);
    assert_int_equal(atomic_load(&hand.n), 0);
    assert_true(back[0] == 0 && back[1] == 0);
}

static void other_keys_are_free_meanwhile(void **state)
{
    (void)state;
    struct stuck s;
    float values[] = {1, 1};

    take_50(&s, -1);
    for (int64_t key = 0; key < 100; key++)
        if (key != 50) {
            assert_int_equal(gwi_store_push(&store, &walker, &key, 1, values), 0);
            assert_int_equal(gwi_store_set(&store, &walker, &key, 1, values), 0);
            assert_int_equal(gwi_store_pull(&store, &walker, &key, 1, values), 0);
        }
    assert_int_equal(s.calls, 0);
}

static void a_walk_goes_on_when_the_latch_comes_free(void **state)
{
    (void)state;
    const int64_t keys[] = {50, 49, 50, 50};
    float values[] = {1, 2, 3, 4, 5, 6, 7, 8}, back[8];
    struct stuck s;

    for (int patience = 0; patience < 3; patience++) {
        take_50(&s, patience);
        assert_int_equal(gwi_store_push(&store, &walker, keys, 4, values), 0);
        assert_int_equal(s.calls, patience + 1);
        assert_int_equal(atomic_load(&walker.waits) > 0, 1);
        assert_int_equal(gwi_store_pull(&store, &walker, keys, 4, back), 0);
        const float sums[] = {13, 16, 3, 4, 13, 16, 13, 16};
        assert_memory_equal(back, sums, sizeof sums);
        assert_true(gwi_store_valid(&store));

        take_50(&s, patience);
        assert_int_equal(gwi_store_pull(&store, &walker, keys, 4, back), 0);
        assert_int_equal(s.calls, patience + 1);
        assert_true(atomic_load(&walker.retries) > 0);
        assert_true(gwi_store_valid(&store));
    }
}

/* The hand of who takes a latch tells it, so that the others know if it dies. */
static int look_into_hand(void *ctx, int64_t key)
{
    (void)ctx;
    assert_false(gwi_hand_holds(&hand, key));
    return GW_EPEER;
}

static void a_walker_that_gives_up_holds_nothing(void **state)
{
    (void)state;
    const int64_t keys[] = {48, 49, 50, 51};
    float values[8] = {0};
    struct stuck s;

    take_50(&s, -1);
    walker.stuck = look_into_hand;
    for (unsigned grip = 1; grip <= 4; grip++) {
        walker.grip = grip;
        assert_int_equal(gwi_store_push(&store, &walker, keys, 4, values), GW_EPEER);
        for (int64_t key = 0; key < 100; key++)
            assert_int_equal(gwi_store_latched(&store, key), key == 50);
        assert_int_equal(atomic_load(&hand.n), 0);
    }
}

/* among others */

#define THREADS 4
#define ROUNDS 600
#define HOT 8

static _Atomic int n_torn;

/* The next one may need the processor that we wait on. */
static int yield_when_stuck(void *ctx, int64_t key)
{
    (void)ctx;
    (void)key;
    sched_yield();
    return 0;
}

static int whole(const float *row, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (row[i] != row[0])
            return 0;
    return 1;
}

/* Keys 0 to HOT-1 are pushed to, the others set; every row has equal entries. */
static void *work(void *arg)
{
    gwi_hand *mine = calloc(1, sizeof *mine + GWI_LINE);
    gwi_hand *aligned = (gwi_hand *)(((uintptr_t)mine + GWI_LINE - 1) & ~(uintptr_t)(GWI_LINE - 1));
    gwi_walker w = {.hand = aligned, .stuck = yield_when_stuck};
    float *values = malloc(2 * HOT * 64 * sizeof *values);
    int64_t keys[2 * HOT];
    gwi_random random;

    gwi_random_init(&random, 3, (uint64_t)(uintptr_t)arg);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2 * HOT * 64; i++)
            values[i] = 1;
        for (int i = 0; i < HOT; i++)
            keys[i] = i; /* once each, in an order of its own */
        for (int i = HOT - 1; i > 0; i--) {
            uint64_t j = gwi_random_below(&random, (uint64_t)i + 1);
            int64_t key = keys[i];
            keys[i] = keys[j];
            keys[j] = key;
        }
        gwi_store_push(&store, &w, keys, HOT, values);
        for (int i = 0; i < HOT; i++) {
            keys[i] = HOT + (int64_t)gwi_random_below(&random, HOT);
            for (int j = 0; j < 64; j++)
                values[64 * i + j] = (float)(round * THREADS) + (float)(uintptr_t)arg;
        }
        gwi_store_set(&store, &w, keys, HOT, values);
        for (int i = 0; i < 2 * HOT; i++)
            keys[i] = (int64_t)gwi_random_below(&random, 2 * HOT);
        gwi_store_pull(&store, &w, keys, 2 * HOT, values);
        for (int i = 0; i < 2 * HOT; i++)
            n_torn += !whole(values + (ptrdiff_t)64 * i, 64);
    }
    free(mine);
    free(values);
    return NULL;
}

static void check_hot_keys(int n_workers)
{
    for (int64_t key = 0; key < HOT; key++) {
        float row[64];
        assert_int_equal(gwi_store_pull(&store, &walker, &key, 1, row), 0);
        assert_true(whole(row, 64) && row[0] == (float)(n_workers * ROUNDS));
    }
    assert_true(gwi_store_valid(&store));
}

static void threads_lose_no_update_and_see_no_part_of_one(void **state)
{
    (void)state;
    const int64_t length = 64;
    pthread_t threads[THREADS];

    make(2 * HOT, &length, 1, GW_F32);
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, work, (void *)(uintptr_t)t), 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    assert_int_equal(n_torn, 0);
    check_hot_keys(THREADS);
}

static void processes_lose_no_update_and_see_no_part_of_one(void **state)
{
    (void)state;
    const int64_t length = 64;
    pid_t pids[3];
    int status;

    make(2 * HOT, &length, 1, GW_F32);
    gwi_store_fini(&store);
    void *shared = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                        0);
    assert_true(shared != MAP_FAILED);
    assert_int_equal(gwi_store_init(&store, &geometry, &alone, shared, memory_bytes), 0);
    for (int p = 0; p < 3; p++)
        if ((pids[p] = fork()) == 0) {
            alarm(120);
            work((void *)(uintptr_t)p);
            _exit(n_torn > 0);
        }
    for (int p = 0; p < 3; p++) {
        waitpid(pids[p], &status, 0);
        assert_int_equal(status, 0);
    }
    check_hot_keys(3);
    munmap(shared, memory_bytes);
}

GWI_TESTS(cmocka_unit_test_teardown(a_new_store_is_valid_and_all_zero, drop),
          cmocka_unit_test_teardown(keys_beside_each_other_lie_beside_each_other, drop),
          cmocka_unit_test_teardown(a_store_has_the_keys_of_its_share_only, drop),
          cmocka_unit_test_teardown(parts_do_not_overlap, drop),
          cmocka_unit_test_teardown(more_than_there_are_addresses_is_refused, drop),
          cmocka_unit_test_teardown(too_little_memory_is_refused, drop),
          cmocka_unit_test_teardown(another_view_sees_the_same_vectors, drop),
          cmocka_unit_test_teardown(whoever_expects_something_else_is_refused, drop),
          cmocka_unit_test_teardown(memory_without_a_whole_store_is_refused, drop),
          cmocka_unit_test_teardown(a_store_is_not_there_before_it_is_whole, drop),
          cmocka_unit_test_teardown(every_kind_of_damage_is_found, drop),
          cmocka_unit_test_teardown(a_key_in_a_row_that_nobody_gave_it_is_found, drop),
          cmocka_unit_test_teardown(batches_of_vectors_of_any_length_do_what_an_array_does, drop),
          cmocka_unit_test_teardown(batches_of_mixed_lengths_do_what_an_array_does, drop),
          cmocka_unit_test_teardown(a_store_of_one_key_does_what_an_array_does, drop),
          cmocka_unit_test_teardown(any_grip_does_the_same, drop),
          cmocka_unit_test_teardown(
              of_equal_keys_each_is_read_each_is_added_and_the_last_assignment_stays, drop),
          cmocka_unit_test_teardown(an_empty_batch_does_nothing, drop),
          cmocka_unit_test_teardown(a_walker_without_a_hand_walks_too, drop),
          cmocka_unit_test_teardown(a_version_that_wraps_does_no_harm, drop),
          cmocka_unit_test_teardown(
              a_change_that_is_stuck_has_done_what_came_before_and_nothing_after, drop),
          cmocka_unit_test_teardown(a_pull_that_is_stuck_ends_with_the_error, drop),
          cmocka_unit_test_teardown(other_keys_are_free_meanwhile, drop),
          cmocka_unit_test_teardown(a_walk_goes_on_when_the_latch_comes_free, drop),
          cmocka_unit_test_teardown(a_walker_that_gives_up_holds_nothing, drop),
          cmocka_unit_test_teardown(threads_lose_no_update_and_see_no_part_of_one, drop),
          cmocka_unit_test_teardown(processes_lose_no_update_and_see_no_part_of_one, drop))
