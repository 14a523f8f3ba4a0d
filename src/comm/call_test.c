/* call_test.c - cards, disagreements in words, and plans. */
#include "comm/call.h"
#include "base/error.h"
#include "base/test.h"

#include <string.h>

enum { SIZE = 3 };
static const int world_ranks[SIZE] = {4, 7, 9};
static char memory[1]; /* calls need an address; nobody looks there */

static gw_call call_of(gw_collective kind, const int64_t *shape, int n_dims)
{
    return (gw_call){.size_bytes = sizeof(gw_call),
                     .kind = kind,
                     .op = GW_SUM,
                     .input = {memory, GW_F32, n_dims, shape}};
}

/* The same call on all ranks, but for what the test changes. */
struct calls {
    gw_call call[SIZE];
    int64_t shape[SIZE][3];
    gwi_card card[SIZE];
    const gwi_card *cards[SIZE];
};

static void set_all(struct calls *c, gw_collective kind, int64_t n0, int64_t n1, int64_t n2)
{
    for (int r = 0; r < SIZE; r++) {
        memcpy(c->shape[r], (int64_t[]){n0, n1, n2}, sizeof c->shape[r]);
        c->call[r] = call_of(kind, c->shape[r], 3);
        c->cards[r] = &c->card[r];
    }
}

static int agree(struct calls *c)
{
    for (int r = 0; r < SIZE; r++)
        assert_int_equal(gwi_card_make(&c->call[r], r, SIZE, &c->card[r]), 0);
    for (int r = 0; r < SIZE; r++)
        assert_true(gwi_card_valid(&c->card[r], r, SIZE));
    return gwi_cards_agree(c->cards, SIZE, world_ranks);
}

static int said(const char *words)
{
    return strstr(gw_last_error(), words) != NULL;
}

static void the_same_call_agrees_and_a_different_one_is_named(void **state)
{
    (void)state;
    struct calls c;

    for (int kind = 0; kind < GW_N_COLLECTIVES; kind++) {
        set_all(&c, kind, 2, 3, 4);
        for (int r = 0; r < SIZE; r++) {
            c.call[r].axis = 1;
            c.call[r].count = kind == GW_ALLTOALL ? (r == 0 ? 2 : 0) : 1;
        }
        assert_int_equal(agree(&c), 0);
    }
    set_all(&c, GW_ALLREDUCE, 2, 3, 4);
    c.shape[1][2] = 5;
    assert_int_equal(agree(&c), GW_EDISAGREE);
    assert_true(said("rank 7 calls Allreduce"));
    assert_true(said("\n  rank 7: Allreduce float32[2, 3, 5], SUM"));
    assert_true(said("\n  rank 9: Allreduce float32[2, 3, 4], SUM"));
}

static void every_difference_that_matters_is_found(void **state)
{
    (void)state;
    struct calls c;

#define DIFFERS(kind, change)   \
    set_all(&c, kind, 2, 3, 4); \
    change;                     \
    assert_int_equal(agree(&c), GW_EDISAGREE)
    DIFFERS(GW_ALLREDUCE, c.call[2].op = GW_MAX);
    DIFFERS(GW_ALLREDUCE, c.call[2].input.dtype = GW_F64);
    DIFFERS(GW_ALLREDUCE, c.call[2].input.n_dims = 2);
    DIFFERS(GW_REDUCE, c.call[2].root = 1);
    DIFFERS(GW_BCAST, c.call[0].kind = GW_REDUCE);
    DIFFERS(GW_ALLGATHER, c.call[1].axis = 2);
    DIFFERS(GW_ALLGATHER, c.shape[1][1] = 7);
    DIFFERS(GW_SCATTER, c.call[1].root = 2);
    DIFFERS(GW_ALLTOALL, c.call[1].axis2 = 1);
#undef DIFFERS
}

static void lengths_along_the_axis_of_a_gather_may_differ(void **state)
{
    (void)state;
    struct calls c;
    gwi_plan plan;

    assert_int_equal(gwi_plan_init(&plan, SIZE), 0);
    set_all(&c, GW_ALLGATHER, 2, 3, 4);
    for (int r = 0; r < SIZE; r++) {
        c.call[r].axis = 1;
        c.shape[r][1] = r; /* 0, 1, 2 */
        c.call[r].flags = 1u << r;
    }
    assert_int_equal(agree(&c), 0);
    assert_int_equal(gwi_plan_make(&plan, &c.call[1], c.cards, 1, SIZE), 0);
    assert_int_equal(plan.shape[0], 2);
    assert_int_equal(plan.shape[1], 3);
    assert_int_equal(plan.shape[2], 4);
    assert_int_equal(plan.output_bytes, 2 * 3 * 4 * 4);
    assert_int_equal(plan.longest, 2 * 2 * 4 * 4);
    assert_int_equal(plan.flags, 7);
    assert_int_equal(plan.parts[2], 2);
    char output[96];
    gwi_plan_place(&plan, c.cards, 1, SIZE, output);
    assert_ptr_equal(plan.recv[2].base, output + 1 * 16);
    assert_int_equal(plan.recv[2].block, 2 * 16);
    assert_int_equal(plan.recv[2].stride, 3 * 16);
    assert_int_equal(plan.recv[0].n_bytes, 0);
    gwi_plan_fini(&plan);
}

static void counts_must_add_up(void **state)
{
    (void)state;
    struct calls c;

    set_all(&c, GW_SCATTER, 2, 3, 4);
    for (int r = 0; r < SIZE; r++) {
        c.call[r].axis = 2;
        c.call[r].count = r; /* 3 of 4 */
    }
    assert_int_equal(agree(&c), GW_EDISAGREE);
    assert_true(said("the ranks want 3 entries together") && said("there are 4 to cut"));
    c.call[2].count = 3;
    assert_int_equal(agree(&c), 0);
}

static void the_input_of_scatter_is_only_looked_at_on_the_root(void **state)
{
    (void)state;
    struct calls c;
    gwi_plan plan;

    assert_int_equal(gwi_plan_init(&plan, SIZE), 0);
    set_all(&c, GW_SCATTER, 3, 3, 4);
    for (int r = 0; r < SIZE; r++) {
        c.call[r].root = 1;
        c.call[r].count = 1;
        if (r != 1)
            c.call[r].input = (gw_array){NULL, 99, -5, NULL};
    }
    assert_int_equal(agree(&c), 0);
    assert_int_equal(gwi_plan_make(&plan, &c.call[2], c.cards, 2, SIZE), 0);
    assert_int_equal(plan.n_dims, 3);
    assert_int_equal(plan.shape[0], 1);
    assert_int_equal(plan.output_bytes, 48);
    assert_int_equal(plan.dtype, GW_F32);
    gwi_plan_fini(&plan);
}

static void an_alltoall_cuts_along_one_axis_and_joins_along_another(void **state)
{
    (void)state;
    struct calls c;
    gwi_plan plan;

    assert_int_equal(gwi_plan_init(&plan, SIZE), 0);
    set_all(&c, GW_ALLTOALL, 2, 6, 4);
    for (int r = 0; r < SIZE; r++) {
        c.call[r].axis = 0;
        c.call[r].axis2 = 1;
        c.call[r].count = r + 1; /* 6 in all */
        c.shape[r][0] = r;
    }
    assert_int_equal(agree(&c), 0);
    assert_int_equal(gwi_plan_make(&plan, &c.call[1], c.cards, 1, SIZE), 0);
    assert_int_equal(plan.shape[0], 3);
    assert_int_equal(plan.shape[1], 2);
    assert_int_equal(plan.shape[2], 4);
    assert_int_equal(plan.longest, 2 * 3 * 4 * 4); /* from rank 2 to itself */
    gwi_plan_fini(&plan);
}

static void what_one_rank_can_know_is_refused_at_once(void **state)
{
    (void)state;
    static const int64_t negative[] = {2, -1}, huge[] = {INT64_MAX / 2, 16}, fine[] = {2, 3};
    gwi_card card;

#define REFUSED(err, words, kind, shape, n_dims, change)             \
    do {                                                             \
        gw_call call = call_of(kind, shape, n_dims);                 \
        change;                                                      \
        assert_int_equal(gwi_card_make(&call, 0, SIZE, &card), err); \
        assert_true(said(words));                                    \
    } while (0)
    REFUSED(GW_EINVAL, "-1 entries along axis 1", GW_ALLREDUCE, negative, 2, (void)0);
    REFUSED(GW_EINVAL, "more bytes than can be counted", GW_ALLREDUCE, huge, 2, (void)0);
    REFUSED(GW_ERANGE, "root is 3", GW_BCAST, fine, 2, call.root = 3);
    REFUSED(GW_ERANGE, "axis is 2; the input has axes from 0 to 1", GW_GATHER, fine, 2,
            call.axis = 2);
    REFUSED(GW_ERANGE, "has no axes", GW_ALLGATHER, fine, 0, (void)0);
    REFUSED(GW_EINVAL, "-1, below 0", GW_SCATTER, fine, 2, call.count = -1);
    REFUSED(GW_ETYPE, "dtype is 77", GW_BCAST, fine, 2, call.input.dtype = 77);
    REFUSED(GW_EUNSUP, "BAND", GW_ALLREDUCE, fine, 2, call.op = GW_BAND);
    REFUSED(GW_EINVAL, "pairs", GW_ALLREDUCE, fine, 2, call.op = GW_MINLOC);
    REFUSED(GW_ERANGE, "kind is 99", GW_ALLREDUCE, fine, 2, call.kind = 99);
    REFUSED(GW_EINVAL, "no address", GW_ALLREDUCE, fine, 2, call.input.data = NULL);
    REFUSED(GW_EINVAL, "size_bytes is 3", GW_ALLREDUCE, fine, 2, call.size_bytes = 3);
#undef REFUSED
}

static void a_card_that_cannot_be_true_is_not_valid(void **state)
{
    (void)state;
    struct calls c;

    set_all(&c, GW_ALLGATHER, 2, 3, 4);
    assert_int_equal(agree(&c), 0);
#define SPOILT(change)                                \
    do {                                              \
        gwi_card card = c.card[0];                    \
        change;                                       \
        assert_false(gwi_card_valid(&card, 0, SIZE)); \
    } while (0)
    SPOILT(card.kind = GW_N_COLLECTIVES);
    SPOILT(card.n_dims = GW_MAX_DIMS + 1);
    SPOILT(card.dtype = GW_N_DTYPES);
    SPOILT(card.axis = 3);
    SPOILT(card.shape[1] = -3);
    SPOILT(card.n_bytes++);
    SPOILT(card.hash++);
#undef SPOILT
}

GWI_TESTS(cmocka_unit_test(the_same_call_agrees_and_a_different_one_is_named),
          cmocka_unit_test(every_difference_that_matters_is_found),
          cmocka_unit_test(lengths_along_the_axis_of_a_gather_may_differ),
          cmocka_unit_test(counts_must_add_up),
          cmocka_unit_test(the_input_of_scatter_is_only_looked_at_on_the_root),
          cmocka_unit_test(an_alltoall_cuts_along_one_axis_and_joins_along_another),
          cmocka_unit_test(what_one_rank_can_know_is_refused_at_once),
          cmocka_unit_test(a_card_that_cannot_be_true_is_not_valid))
