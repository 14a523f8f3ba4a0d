/* spread_test.c - every key has one place, and places have no gaps. */
#include "params/spread.h"
#include "base/test.h"

#include <string.h>

#define N_KEYS 1000

static void places_of_a_home_and_channel_are_counted_up(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 9; nodes++)
        for (int channels = 1; channels <= 5; channels++) {
            gwi_spread s = gwi_spread_of(0, nodes, channels);
            int64_t next[9][5] = {{0}};
            for (int64_t key = 0; key < N_KEYS; key++) {
                int home = gwi_spread_home(&s, key), channel = gwi_spread_channel(&s, key);
                assert_int_equal(home, key % nodes);
                assert_true(channel >= 0 && channel < channels);
                assert_int_equal(gwi_spread_place(&s, key), next[home][channel]++);
                assert_true((size_t)gwi_spread_place(&s, key) < gwi_spread_n_places(&s, N_KEYS));
            }
        }
}

static void an_index_in_a_channel_tells_the_key(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 9; nodes++)
        for (int channels = 1; channels <= 5; channels++) {
            gwi_spread s = gwi_spread_of(0, nodes, channels);
            for (int64_t key = 0; key < N_KEYS; key++) {
                int64_t index = gwi_spread_index(&s, key);
                assert_true(index >= 0 && index < gwi_spread_n_indices(&s, N_KEYS));
                assert_int_equal(gwi_spread_key(&s, gwi_spread_channel(&s, key), index), key);
            }
        }
}

static void the_keys_at_home_are_counted(void **state)
{
    (void)state;
    for (int64_t n_keys = 1; n_keys < 40; n_keys++)
        for (int nodes = 1; nodes <= 9; nodes++)
            for (int channels = 1; channels <= 5; channels++) {
                int64_t counted[9][5] = {{0}};
                gwi_spread s = gwi_spread_of(0, nodes, channels);
                for (int64_t key = 0; key < n_keys; key++)
                    counted[gwi_spread_home(&s, key)][gwi_spread_channel(&s, key)]++;
                for (int node = 0; node < nodes; node++)
                    for (int c = 0; c < channels; c++) {
                        s = gwi_spread_of(node, nodes, channels);
                        assert_int_equal(gwi_spread_n_home(&s, c, n_keys), counted[node][c]);
                    }
            }
}

GWI_TESTS(cmocka_unit_test(places_of_a_home_and_channel_are_counted_up),
          cmocka_unit_test(the_keys_at_home_are_counted),
          cmocka_unit_test(an_index_in_a_channel_tells_the_key))
