/* agenda_test.c - items come out by their time, whatever was changed before. */
#include "fabric/sim/agenda.h"
#include "base/random.h"
#include "base/test.h"

#define N 200

static void items_come_out_by_time(void **state)
{
    (void)state;
    gwi_agenda a;
    gwi_agenda_entry e = {0};
    gwi_random r;
    int64_t last = -1;
    int n = 0;

    gwi_random_init(&r, 1, 0);
    assert_int_equal(gwi_agenda_init(&a, N), 0);
    assert_int_equal(gwi_agenda_take(&a, &e), 0);
    for (uint32_t item = 0; item < N; item++)
        gwi_agenda_put(&a, item, (int64_t)gwi_random_below(&r, 50));
    for (; gwi_agenda_take(&a, &e); n++) {
        assert_true(e.at_ns >= last);
        last = e.at_ns;
    }
    assert_int_equal(n, N);
    gwi_agenda_fini(&a);
}

/* The same operations on an agenda and on a plain array of times. */
static void changed_and_dropped_items_keep_the_order(void **state)
{
    (void)state;
    gwi_agenda a;
    gwi_agenda_entry e;
    gwi_random r;
    int64_t times[N], earliest;

    gwi_random_init(&r, 2, 0);
    assert_int_equal(gwi_agenda_init(&a, N), 0);
    for (int i = 0; i < N; i++)
        times[i] = INT64_MAX;
    for (int round = 0; round < 20000; round++) {
        uint32_t item = (uint32_t)gwi_random_below(&r, N);
        switch (gwi_random_below(&r, 4)) {
        case 0:
            gwi_agenda_drop(&a, item);
            times[item] = INT64_MAX;
            break;
        case 1:
            earliest = INT64_MAX;
            for (int i = 0; i < N; i++)
                earliest = times[i] < earliest ? times[i] : earliest;
            if (gwi_agenda_take(&a, &e)) {
                assert_true(e.at_ns == earliest && times[e.item] == earliest);
                times[e.item] = INT64_MAX;
            } else {
                assert_true(earliest == INT64_MAX);
            }
            break;
        default:
            times[item] = (int64_t)gwi_random_below(&r, 1000);
            gwi_agenda_put(&a, item, times[item]);
        }
        assert_true(gwi_agenda_valid(&a));
    }
    gwi_agenda_fini(&a);
}

GWI_TESTS(cmocka_unit_test(items_come_out_by_time),
          cmocka_unit_test(changed_and_dropped_items_keep_the_order))
