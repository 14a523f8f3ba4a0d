/* hand_test.c - a hand tells which keys its worker may hold the latches of. */
#include "params/hand.h"
#include "base/test.h"

static void an_empty_hand_holds_nothing(void **state)
{
    (void)state;
    gwi_hand hand = {0};

    assert_false(gwi_hand_holds(&hand, 0)); /* though its keys are zeros */
    gwi_hand_note(&hand, 0, 5);
    gwi_hand_empty(&hand);
    assert_false(gwi_hand_holds(&hand, 5));
    assert_false(gwi_hand_holds(&hand, 0));
}

static void a_hand_holds_what_was_noted_since_it_was_empty(void **state)
{
    (void)state;
    gwi_hand hand = {0};

    for (uint32_t i = 0; i < GWI_HAND_KEYS; i++) {
        gwi_hand_note(&hand, i, 100 + i);
        for (uint32_t j = 0; j < GWI_HAND_KEYS; j++)
            assert_int_equal(gwi_hand_holds(&hand, 100 + j), j <= i);
    }
    gwi_hand_note(&hand, 0, 7); /* begins anew */
    assert_true(gwi_hand_holds(&hand, 7));
    assert_false(gwi_hand_holds(&hand, 101));
}

static void a_damaged_count_does_not_lead_out_of_the_hand(void **state)
{
    (void)state;
    struct {
        gwi_hand hand;
        _Alignas(GWI_LINE) int64_t behind;
    } both = {.behind = 42};

    gwi_hand_note(&both.hand, 0, 5);
    atomic_store(&both.hand.n, UINT32_MAX);
    assert_false(gwi_hand_holds(&both.hand, 42));
    assert_true(gwi_hand_holds(&both.hand, 5));
}

GWI_TESTS(cmocka_unit_test(an_empty_hand_holds_nothing),
          cmocka_unit_test(a_hand_holds_what_was_noted_since_it_was_empty),
          cmocka_unit_test(a_damaged_count_does_not_lead_out_of_the_hand))
