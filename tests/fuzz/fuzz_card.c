/* fuzz_card.c - what ranks say of their collective calls: true or refused, and plans that
 * stay within their arrays.
 *
 * The input is a card for each of three ranks, each made by the library from a made-up call
 * and then perhaps spoilt.  Whatever passes the check must give a plan whose streams lie
 * inside the arrays.                                                           */
#include "fuzz.h"

#include "comm/call.h"

enum { SIZE = 3 };

static const int world_ranks[SIZE] = {0, 1, 2};

static int64_t length(struct input *in)
{
    uint64_t n = next_number(in, 1);

    return n < 250 ? (int64_t)(n % 6) : (int64_t)(n << (8 * (n - 249)));
}

static void make_card(struct input *in, int rank, gwi_card *card)
{
    int64_t shape[4];
    static char memory[1];
    gw_call call = {.size_bytes = sizeof call,
                    .kind = (gw_collective)(next_number(in, 1) % (GW_N_COLLECTIVES + 1)),
                    .op = (gw_op)(next_number(in, 1) % (GW_N_OPS + 1)),
                    .root = (int)(next_number(in, 1) % 4),
                    .axis = (int)(next_number(in, 1) % 4),
                    .axis2 = (int)(next_number(in, 1) % 4),
                    .count = length(in)};

    for (int i = 0; i < 4; i++)
        shape[i] = length(in);
    call.input = (gw_array){memory, (gw_dtype)(next_number(in, 1) % (GW_N_DTYPES + 1)),
                            (int)(next_number(in, 1) % 5), shape};
    memset(card, 0, sizeof *card);
    if (gwi_card_make(&call, rank, SIZE, card) == 0)
        REQUIRE(gwi_card_valid(card, rank, SIZE));
}

static void spoil(struct input *in, gwi_card *card)
{
    size_t n = (size_t)next_number(in, 1) % 4;

    for (size_t i = 0; i < n; i++)
        ((uint8_t *)card)[next_number(in, 1) % (64 + 32)] ^= (uint8_t)next_number(in, 1);
}

/* Every byte of the stream lies in the array. */
static void check_strip(const gwi_strip *s, const unsigned char *base, size_t n_bytes)
{
    if (s->n_bytes == 0)
        return;
    size_t blocks = s->n_bytes / s->block, from = (size_t)(s->base - base);

    REQUIRE(s->n_bytes % s->block == 0 && s->n_bytes <= n_bytes);
    REQUIRE(from + (blocks - 1) * s->stride + s->block <= n_bytes);
}

static void check_plan(const gw_call *call, const gwi_card *const *cards, int rank, gwi_plan *plan)
{
    unsigned char *base = (unsigned char *)(uintptr_t)4096; /* nobody looks there */
    size_t total = 0;

    if (gwi_plan_make(plan, call, cards, rank, SIZE) < 0)
        return;
    gwi_plan_place(plan, cards, rank, SIZE, base);
    for (int r = 0; r < SIZE && !gwi_combines(plan->kind); r++) {
        gwi_strip from = gwi_stream_at(cards, plan, r, rank, base);
        check_strip(&from, base, cards[r]->n_bytes);
        check_strip(&plan->recv[r], base, plan->output_bytes);
        REQUIRE(plan->recv[r].n_bytes == 0 || from.n_bytes == plan->recv[r].n_bytes);
        REQUIRE(from.n_bytes <= plan->longest || plan->kind == GW_BCAST);
        total += plan->recv[r].n_bytes;
    }
    REQUIRE(gwi_combines(plan->kind) || total == plan->output_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input in = {bytes, n_bytes};
    gwi_card card[SIZE];
    const gwi_card *cards[SIZE];
    gwi_plan plan;

    for (int r = 0; r < SIZE; r++) {
        struct input again = in;
        make_card(r > 0 && next_number(&in, 1) % 2 ? &again : &in, r, &card[r]);
        spoil(&in, &card[r]);
        cards[r] = &card[r];
    }
    for (int r = 0; r < SIZE; r++)
        if (!gwi_card_valid(&card[r], r, SIZE))
            return 0;
    if (gwi_cards_agree(cards, SIZE, world_ranks) < 0)
        return 0;
    REQUIRE(gwi_plan_init(&plan, SIZE) == 0);
    for (int r = 0; r < SIZE; r++) {
        gw_call call = {.kind = card[r].kind,
                        .op = card[r].op,
                        .root = card[r].root,
                        .input = {.data = (void *)(uintptr_t)4096}};
        check_plan(&call, cards, r, &plan);
    }
    gwi_plan_fini(&plan);
    return 0;
}

static void plant_seeds(void)
{
    /* kind, op, root, axis, axis2, count, shape, dtype, dims, spoil; ranks 1 and 2 alike */
    for (char kind = 0; kind < GW_N_COLLECTIVES; kind++) {
        char seed[] = {kind, 2, 1, 0, 1, 1, 2, 3,    4, 5, 8, 3, 0, 0, kind, 2, 1, 0, 1, 1, 2,
                       3,    4, 5, 8, 3, 0, 0, kind, 2, 1, 0, 1, 1, 2, 3,    4, 5, 8, 3, 0};
        plant(seed, sizeof seed);
    }
}
