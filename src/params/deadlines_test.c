/* deadlines_test.c - those whose time has come are taken, once, and all others stay. */
#include "params/deadlines.h"
#include "base/test.h"

#define N_KEYS 200 /* so that the list grows */

struct taker {
    int n_taken[N_KEYS];
    int n, most; /* taken, and how many it has room for */
};

static int take(void *ctx, int64_t key)
{
    struct taker *t = ctx;

    if (t->n == t->most)
        return 0;
    t->n++;
    t->n_taken[key]++;
    return 1;
}

/* Key k's time is 10 k, and they come from the last one on. */
static void add_all(gwi_deadlines *list)
{
    for (int64_t key = N_KEYS - 1; key >= 0; key--) {
        assert_int_equal(gwi_deadlines_add(list, 10 * key, key), 0);
        assert_int_equal(list->first_ns, 10 * key);
    }
}

static void keys_whose_time_has_come_are_taken_and_others_stay(void **state)
{
    gwi_deadlines list = {0};
    struct taker t = {.most = N_KEYS};

    (void)state;
    add_all(&list);
    gwi_deadlines_take(&list, -1, take, &t);
    assert_int_equal(t.n, 0);
    gwi_deadlines_take(&list, 995, take, &t);
    for (int key = 0; key < N_KEYS; key++)
        assert_int_equal(t.n_taken[key], key < 100);
    assert_int_equal(list.n, N_KEYS - 100);
    assert_int_equal(list.first_ns, 1000);
    gwi_deadlines_take(&list, INT64_MAX, take, &t);
    for (int key = 0; key < N_KEYS; key++)
        assert_int_equal(t.n_taken[key], 1);
    assert_int_equal(list.n, 0);
    gwi_deadlines_fini(&list);
}

static void a_key_for_which_there_is_no_room_stays(void **state)
{
    gwi_deadlines list = {0};
    struct taker t = {.most = 3};

    (void)state;
    add_all(&list);
    gwi_deadlines_take(&list, INT64_MAX, take, &t);
    assert_int_equal(list.n, N_KEYS - 3);
    assert_int_equal(list.first_ns, 0); /* the last one to come was the first in time */
    t.most = N_KEYS;
    gwi_deadlines_take(&list, INT64_MAX, take, &t);
    for (int key = 0; key < N_KEYS; key++)
        assert_int_equal(t.n_taken[key], 1);
    gwi_deadlines_fini(&list);
}

static void an_empty_list_begins_anew(void **state)
{
    gwi_deadlines list = {0};
    struct taker t = {.most = N_KEYS};

    (void)state;
    assert_int_equal(gwi_deadlines_add(&list, 5, 1), 0);
    gwi_deadlines_take(&list, 5, take, &t);
    assert_int_equal(gwi_deadlines_add(&list, 70, 2), 0);
    assert_int_equal(list.first_ns, 70);
    gwi_deadlines_fini(&list);
    gwi_deadlines_fini(&list);
}

GWI_TESTS(cmocka_unit_test(keys_whose_time_has_come_are_taken_and_others_stay),
          cmocka_unit_test(a_key_for_which_there_is_no_room_stays),
          cmocka_unit_test(an_empty_list_begins_anew))
