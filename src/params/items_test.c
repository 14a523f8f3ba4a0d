/* items_test.c - what is remembered of keys, and that memory for it is used again. */
#include "params/engine.h"
#include "base/test.h"

#define N_KEYS 40000 /* more than are kept when none is needed */

static gwi_geometry geometry;
static gwi_node *node;

static int set_up(void **state)
{
    static const int64_t length = 2;
    gwi_node_options options = {.geometry = &geometry, .node = 0, .nodes = 2, .workers = 1};

    (void)state;
    assert_int_equal(gwi_geometry_init(&geometry, N_KEYS, &length, 1, GW_F32), 0);
    assert_int_equal(gwi_node_new(&options, &node), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gwi_node_free(node);
    gwi_geometry_fini(&geometry);
    return 0;
}

static void an_item_is_found_by_its_key_until_it_is_forgotten(void **state)
{
    (void)state;
    assert_null(gwi_item_find(node, 7));
    gwi_item *item = gwi_item_get(node, 7);
    assert_int_equal(item->key, 7);
    assert_ptr_equal(gwi_item_find(node, 7), item);
    assert_ptr_equal(gwi_item_get(node, 7), item);
    assert_null(gwi_item_find(node, 8));
    assert_true(gwi_node_valid(node));
    gwi_item_forget(node, item);
    assert_null(gwi_item_find(node, 7));
    assert_true(gwi_node_valid(node));
}

static void while_something_goes_on_it_is_not_forgotten(void **state)
{
    gwi_item *item = gwi_item_get(node, 7);

    (void)state;
    item->moving = 1;
    gwi_item_forget(node, item);
    assert_ptr_equal(gwi_item_find(node, 7), item);
    item->moving = 0;
    gwi_item_forget(node, item);
    assert_null(gwi_item_find(node, 7));
}

static void memory_is_used_again_and_nothing_of_the_last_key_is_left(void **state)
{
    gwi_item *item = gwi_item_get(node, 7);

    (void)state;
    item->term = 3;
    item->unwanted = 1;
    gwi_item_forget(node, item);
    assert_ptr_equal(gwi_item_get(node, 9), item);
    assert_int_equal(item->key, 9);
    assert_int_equal(item->term + item->unwanted, 0);
    assert_null(gwi_item_find(node, 7));
}

static void all_are_gone_through_once_each_and_those_forgotten_are_not(void **state)
{
    static uint8_t seen[N_KEYS];
    gwi_item *item;
    size_t n = 0;

    (void)state;
    for (int64_t key = 0; key < N_KEYS; key++)
        assert_non_null(gwi_item_get(node, key));
    for (int64_t key = 0; key < N_KEYS; key += 3)
        gwi_item_forget(node, gwi_item_find(node, key));
    for (uint32_t at = 0; (item = gwi_item_next(node, &at)) != NULL; n++)
        seen[item->key]++;
    for (int64_t key = 0; key < N_KEYS; key++)
        assert_int_equal(seen[key], key % 3 != 0);
    assert_int_equal(node->n_items, n);
    assert_true(gwi_node_valid(node));
}

static void memory_of_many_is_given_back_and_their_places_are_used_again(void **state)
{
    uint32_t n_places = 0;

    (void)state;
    for (int turn = 0; turn < 3; turn++) {
        for (int64_t key = 0; key < N_KEYS; key++)
            assert_non_null(gwi_item_get(node, key));
        assert_true(turn == 0 || node->n_item_places == n_places);
        n_places = node->n_item_places;
        for (int64_t key = 1; key < N_KEYS; key++) /* one stays */
            gwi_item_forget(node, gwi_item_find(node, key));
        assert_int_equal(node->n_items, 1);
        assert_in_range(node->kept_items.n, 1, N_KEYS / 2);
        assert_true(gwi_node_valid(node));
    }
}

static void keys_are_wanted_as_often_as_was_said(void **state)
{
    (void)state;
    for (int64_t key = 0; key < 4; key++) /* of which we own every second one */
        for (int64_t n = 0; n < key; n++)
            gwi_want(node, key);
    for (int64_t key = 0; key < 4; key++)
        for (int64_t n = 0; n <= key; n++) {
            assert_int_equal(gwi_is_wanted(node, key), n < key);
            if (n < key)
                gwi_unwant(node, key);
        }
}

GWI_TESTS(
    cmocka_unit_test_setup_teardown(an_item_is_found_by_its_key_until_it_is_forgotten, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(while_something_goes_on_it_is_not_forgotten, set_up, tear_down),
    cmocka_unit_test_setup_teardown(memory_is_used_again_and_nothing_of_the_last_key_is_left,
                                    set_up, tear_down),
    cmocka_unit_test_setup_teardown(all_are_gone_through_once_each_and_those_forgotten_are_not,
                                    set_up, tear_down),
    cmocka_unit_test_setup_teardown(memory_of_many_is_given_back_and_their_places_are_used_again,
                                    set_up, tear_down),
    cmocka_unit_test_setup_teardown(keys_are_wanted_as_often_as_was_said, set_up, tear_down))
