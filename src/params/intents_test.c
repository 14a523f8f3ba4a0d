/* intents_test.c - intents begin by their start and end by their end, whatever order they came in.
 */
#include "params/intents.h"
#include "base/random.h"
#include "base/test.h"

#include <stdlib.h>

static void add(gwi_intents *intents, int64_t key, int64_t start, int64_t end)
{
    assert_int_equal(gwi_intents_add(intents, &key, 1, start, end), 0);
}

static const gwi_intent *begin(gwi_intents *intents, int64_t clock)
{
    const gwi_intent *intent;

    assert_int_equal(gwi_intents_begin(intents, clock, &intent), 0);
    return intent;
}

static void an_intent_begins_before_its_clock_and_ends_at_its_end(void **state)
{
    (void)state;
    gwi_intents intents = {0};
    gwi_intent ended;

    add(&intents, 7, 3, 5);
    assert_null(begin(&intents, 3));
    const gwi_intent *begun = begin(&intents, 4);
    assert_non_null(begun);
    assert_int_equal(begun->n, 1);
    assert_int_equal(begun->keys[0], 7);
    assert_null(begin(&intents, 100));
    assert_false(gwi_intents_end(&intents, 4, &ended));
    assert_true(gwi_intents_end(&intents, 5, &ended));
    assert_int_equal(ended.keys[0], 7);
    free(ended.keys);
    assert_false(gwi_intents_end(&intents, 100, &ended));
    gwi_intents_fini(&intents);
}

static void what_has_not_begun_does_not_end(void **state)
{
    (void)state;
    gwi_intents intents = {0};
    gwi_intent ended;

    add(&intents, 1, 10, 11);
    assert_false(gwi_intents_end(&intents, 1000, &ended));
    gwi_intents_fini(&intents);
}

static void the_keys_are_copied_and_may_be_none(void **state)
{
    (void)state;
    gwi_intents intents = {0};
    int64_t keys[3] = {5, 6, 5};

    assert_int_equal(gwi_intents_add(&intents, keys, 3, 0, 1), 0);
    keys[0] = 99;
    const gwi_intent *begun = begin(&intents, 1);
    assert_int_equal(begun->n, 3);
    assert_int_equal(begun->keys[0], 5);
    assert_int_equal(begun->keys[2], 5);
    assert_int_equal(gwi_intents_add(&intents, keys, 0, 0, 1), 0);
    assert_int_equal(begin(&intents, 1)->n, 0);
    gwi_intents_fini(&intents);
    gwi_intents_fini(&intents); /* a second time is fine */
}

/* Against two plain arrays of what must begin and end when. */
static void random_intents_begin_and_end_in_the_order_of_time(void **state)
{
    (void)state;
    enum { N = 2000, CLOCKS = 300 };
    static int64_t starts[N], ends[N];
    static int has_begun[N], has_ended[N];
    gwi_intents intents = {0};
    gwi_random r;

    gwi_random_init(&r, 1, 0);
    for (int i = 0; i < N; i++) {
        starts[i] = (int64_t)gwi_random_below(&r, CLOCKS);
        ends[i] = starts[i] + 1 + (int64_t)gwi_random_below(&r, 20);
        add(&intents, i, starts[i], ends[i]);
    }
    for (int64_t clock = 0; clock < CLOCKS + 30; clock++) {
        const gwi_intent *begun;
        gwi_intent ended;
        while ((begun = begin(&intents, clock)) != NULL) {
            assert_false(has_begun[begun->keys[0]]++);
            assert_int_equal(begun->start, starts[begun->keys[0]]);
            assert_int_equal(begun->end, ends[begun->keys[0]]);
        }
        while (gwi_intents_end(&intents, clock, &ended)) {
            assert_true(has_begun[ended.keys[0]]);
            assert_false(has_ended[ended.keys[0]]++);
            free(ended.keys);
        }
        for (int i = 0; i < N; i++) {
            assert_int_equal(has_begun[i], starts[i] < clock);
            assert_int_equal(has_ended[i], ends[i] <= clock);
        }
    }
    gwi_intents_fini(&intents);
}

GWI_TESTS(cmocka_unit_test(an_intent_begins_before_its_clock_and_ends_at_its_end),
          cmocka_unit_test(what_has_not_begun_does_not_end),
          cmocka_unit_test(the_keys_are_copied_and_may_be_none),
          cmocka_unit_test(random_intents_begin_and_end_in_the_order_of_time))
