/* word_test.c - a word keeps its parts apart, and its latch has one holder. */
#include "params/word.h"
#include "base/test.h"

#include <pthread.h>

static void a_word_gives_back_slot_and_state(void **state)
{
    (void)state;
    const uint32_t slots[] = {0, 1, 77, UINT32_MAX - 2, UINT32_MAX};

    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        uint64_t word = gwi_word_make(slots[i], GWI_OWNED);
        assert_int_equal(gwi_word_slot(word), slots[i]);
        assert_int_equal(gwi_word_state(word), GWI_OWNED);
        assert_int_equal(word & (GWI_WORD_LATCH | GWI_WORD_VERSION), 0);
        assert_int_equal(gwi_word_state(gwi_word_make(slots[i], GWI_ABSENT)), GWI_ABSENT);
    }
}

static void the_parts_of_a_word_do_not_overlap(void **state)
{
    (void)state;
    const uint64_t slot = UINT64_C(0xffffffff) << 32;

    assert_int_equal(GWI_WORD_LATCH & GWI_WORD_STATE, 0);
    assert_int_equal((GWI_WORD_LATCH | GWI_WORD_STATE) & GWI_WORD_VERSION, 0);
    assert_int_equal((GWI_WORD_LATCH | GWI_WORD_STATE | GWI_WORD_VERSION) & slot, 0);
    assert_int_equal(GWI_WORD_VERSION & -GWI_WORD_VERSION, GWI_WORD_VERSION_ONE);
}

static void versions_wrap_without_touching_the_rest(void **state)
{
    (void)state;
    uint64_t first = gwi_word_make(UINT32_MAX, GWI_OWNED), word = first;

    for (int i = 0; i < 1000; i++) {
        uint64_t next = gwi_word_next_version(word);
        assert_int_not_equal(next, word);
        assert_int_equal(next & ~GWI_WORD_VERSION, first);
        word = next;
    }
    word = first | GWI_WORD_VERSION; /* the last one */
    assert_int_equal(gwi_word_next_version(word), first);
}

static void a_latch_is_given_to_one_at_a_time(void **state)
{
    (void)state;
    uint64_t first = gwi_word_make(5, GWI_OWNED), word = 0;
    gwi_word at = first;

    assert_true(gwi_word_try_latch(&at, &word));
    assert_int_equal(word, first);
    word = 99;
    assert_false(gwi_word_try_latch(&at, &word));
    assert_int_equal(word, 99);
    assert_int_equal(gwi_word_look(&at), first | GWI_WORD_LATCH);
    gwi_word_release(&at, gwi_word_next_version(first));
    assert_true(gwi_word_try_latch(&at, &word));
    assert_int_equal(word, gwi_word_next_version(first));
}

static void a_reader_notices_a_latch_and_a_change(void **state)
{
    (void)state;
    uint64_t word = 0;
    gwi_word at = gwi_word_make(5, GWI_OWNED);
    uint64_t seen = gwi_word_look(&at);

    assert_true(gwi_word_unchanged(&at, seen));
    assert_true(gwi_word_try_latch(&at, &word));
    assert_false(gwi_word_unchanged(&at, seen));
    gwi_word_release(&at, gwi_word_next_version(word));
    assert_false(gwi_word_unchanged(&at, seen));
    assert_true(gwi_word_unchanged(&at, gwi_word_look(&at)));
}

#define THREADS 4
#define TURNS 20000

static gwi_word contended;
static uint64_t plain; /* under the latch of `contended` */

static void *count_up(void *arg)
{
    uint64_t word = 0;

    (void)arg;
    for (int i = 0; i < TURNS; i++) {
        while (!gwi_word_try_latch(&contended, &word))
            gwi_cpu_relax();
        plain++;
        gwi_word_release(&contended, gwi_word_next_version(word));
    }
    return NULL;
}

static void what_a_latch_guards_is_changed_by_one_thread_at_a_time(void **state)
{
    (void)state;
    pthread_t threads[THREADS];

    contended = gwi_word_make(7, GWI_OWNED);
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, count_up, NULL), 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    assert_int_equal(plain, THREADS * TURNS);
    assert_int_equal(gwi_word_look(&contended),
                     gwi_word_make(7, GWI_OWNED) + THREADS * TURNS * GWI_WORD_VERSION_ONE);
}

GWI_TESTS(cmocka_unit_test(a_word_gives_back_slot_and_state),
          cmocka_unit_test(the_parts_of_a_word_do_not_overlap),
          cmocka_unit_test(versions_wrap_without_touching_the_rest),
          cmocka_unit_test(a_latch_is_given_to_one_at_a_time),
          cmocka_unit_test(a_reader_notices_a_latch_and_a_change),
          cmocka_unit_test(what_a_latch_guards_is_changed_by_one_thread_at_a_time))
