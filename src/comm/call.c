/* call.c - cards, whether they agree, and the plans that follow from them. */
#include "comm/call.h"
#include "base/error.h"
#include "base/hash.h"
#include "comm/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a collective uses and what must be equal, in one table. */
enum {
    OP = 1,     /* combines by an operation */
    ROOT = 2,   /* has a root */
    AXIS = 4,   /* has an axis */
    AXIS2 = 8,  /* has a second one */
    COUNT = 16, /* has a count, which may differ */
    SHAPE = 32, /* the same type and shape on all ranks */
    RAGGED = 64 /* ... but for the length along `axis` */
};

static const unsigned kinds[GW_N_COLLECTIVES] = {
    [GW_ALLREDUCE] = OP | SHAPE,
    [GW_REDUCE] = OP | ROOT | SHAPE,
    [GW_BCAST] = ROOT | SHAPE,
    [GW_GATHER] = ROOT | AXIS | SHAPE | RAGGED,
    [GW_ALLGATHER] = AXIS | SHAPE | RAGGED,
    [GW_SCATTER] = ROOT | AXIS | COUNT,
    [GW_ALLTOALL] = AXIS | AXIS2 | COUNT | SHAPE | RAGGED,
    [GW_REDUCE_SCATTER] = OP | AXIS | COUNT | SHAPE,
    [GW_SCAN] = OP | SHAPE,
    [GW_BARRIER] = 0,
};

static const char *const names[GW_N_COLLECTIVES] = {
#define NAME(id, name) [GW_##id] = (name),
    GW_COLLECTIVES(NAME)
#undef NAME
};

const char *gwi_collective_name(gw_collective kind)
{
    return names[kind];
}

/* checking one's own call */

static int check_axis(const gw_call *call, const char *name, int axis)
{
    if (axis >= 0 && axis < call->input.n_dims)
        return 0;
    if (call->input.n_dims == 0)
        return gwi_fail(GW_ERANGE, "%s: input has no axes, so there is no %s %d; give it one",
                        names[call->kind], name, axis);
    return gwi_fail(GW_ERANGE, "%s: %s is %d; the input has axes from 0 to %d", names[call->kind],
                    name, axis, call->input.n_dims - 1);
}

/* The bytes of a dense array; also of one without entries no product of lengths may be too
 * large.  Returns whether they can be counted. */
static int count_bytes(const int64_t *shape, int n_dims, gw_dtype dtype, uint64_t *ret_n_bytes)
{
    int64_t n = (int64_t)gwi_dtype_bytes(dtype);
    int empty = 0;

    for (int i = 0; i < n_dims; i++) {
        empty |= shape[i] == 0;
        if (shape[i] > 0 && __builtin_mul_overflow(n, shape[i], &n))
            return 0;
    }
    *ret_n_bytes = empty ? 0 : (uint64_t)n;
    return 1;
}

static int check_shape(const gw_call *call, uint64_t *ret_n_bytes)
{
    const gw_array *a = &call->input;
    const char *name = names[call->kind];

    if ((unsigned)a->dtype >= GW_N_DTYPES)
        return gwi_fail(GW_ETYPE, "%s: dtype is %d; types go from 0 to %d", name, (int)a->dtype,
                        GW_N_DTYPES - 1);
    if (a->n_dims < 0 || a->n_dims > GW_MAX_DIMS)
        return gwi_fail(GW_ERANGE, "%s: input has %d axes; at most %d are possible", name,
                        a->n_dims, GW_MAX_DIMS);
    for (int i = 0; i < a->n_dims; i++)
        if (a->shape[i] < 0)
            return gwi_fail(GW_EINVAL, "%s: input has %lld entries along axis %d", name,
                            (long long)a->shape[i], i);
    if (!count_bytes(a->shape, a->n_dims, a->dtype, ret_n_bytes))
        return gwi_fail(GW_EINVAL, "%s: input has more bytes than can be counted", name);
    if (*ret_n_bytes > 0 && a->data == NULL)
        return gwi_fail(GW_EINVAL, "%s: input has %llu bytes but no address", name,
                        (unsigned long long)*ret_n_bytes);
    return 0;
}

static int is_pairs(gw_op op)
{
    return op == GW_MINLOC || op == GW_MAXLOC;
}

static int check_op(const gw_call *call)
{
    const gw_array *a = &call->input;
    int err = gw_op_check(call->op, a->dtype);

    if (err < 0 || !is_pairs(call->op))
        return err;
    int last = a->n_dims - 1;
    if (last < 0 || a->shape[last] != 2 || (call->kind == GW_REDUCE_SCATTER && call->axis == last))
        return gwi_fail(GW_EINVAL,
                        "%s: %s combines pairs of a value and an index, which lie along a last "
                        "axis of length 2; the input has none such",
                        names[call->kind], gwi_op_name(call->op));
    return 0;
}

/* An input that nobody looks at: that of Scatter on ranks other than the root. */
static int is_ignored(const gw_call *call, int rank)
{
    return call->kind == GW_BARRIER || (call->kind == GW_SCATTER && rank != call->root);
}

static int check_call(const gw_call *call, int rank, int size, uint64_t *ret_n_bytes)
{
    unsigned traits = kinds[call->kind];
    const char *name = names[call->kind];
    int err = 0;

    *ret_n_bytes = 0;
    if ((traits & ROOT) && (call->root < 0 || call->root >= size))
        return gwi_fail(GW_ERANGE, "%s: root is %d; ranks go from 0 to %d", name, call->root,
                        size - 1);
    if ((traits & COUNT) && call->count < 0)
        return gwi_fail(GW_EINVAL, "%s: the number of entries to get is %lld, below 0", name,
                        (long long)call->count);
    if (is_ignored(call, rank))
        return 0;
    if ((err = check_shape(call, ret_n_bytes)) < 0)
        return err;
    if ((traits & AXIS) &&
        (err = check_axis(call, traits & AXIS2 ? "gather axis" : "axis", call->axis)) < 0)
        return err;
    if ((traits & AXIS2) && (err = check_axis(call, "scatter axis", call->axis2)) < 0)
        return err;
    return traits & OP ? check_op(call) : 0;
}

/* Everything that must be equal, one word after the other. */
static uint64_t hash_of(const gwi_card *card)
{
    unsigned traits = kinds[card->kind];
    uint64_t h = gwi_hash_u64(card->kind);

#define ADD(value) (h = gwi_hash_u64(h ^ (uint64_t)(value)))
    if (traits & OP)
        ADD(card->op);
    if (traits & ROOT)
        ADD(card->root);
    if (traits & AXIS)
        ADD(card->axis);
    if (traits & AXIS2)
        ADD(card->axis2);
    if (traits & SHAPE) {
        int ragged = (traits & RAGGED) && !((traits & AXIS2) && card->axis == card->axis2);
        ADD(card->dtype);
        ADD(card->n_dims);
        for (int i = 0; i < card->n_dims; i++)
            ADD(ragged && i == card->axis ? 0 : card->shape[i]);
    }
#undef ADD
    return h;
}

int gwi_card_make(const gw_call *call, int rank, int size, gwi_card *ret_card)
{
    uint64_t n_bytes;

    if (call->size_bytes < sizeof *call)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; set it to sizeof(gw_call)",
                        call->size_bytes);
    if ((unsigned)call->kind >= GW_N_COLLECTIVES)
        return gwi_fail(GW_ERANGE, "kind is %d; collectives go from 0 to %d", (int)call->kind,
                        GW_N_COLLECTIVES - 1);
    int err = check_call(call, rank, size, &n_bytes);
    if (err < 0)
        return err;

    int ignored = is_ignored(call, rank);
    *ret_card = (gwi_card){
        .n_bytes = n_bytes,
        .flags = call->flags,
        .kind = (uint8_t)call->kind,
        .op = (uint8_t)call->op,
        .dtype = ignored ? 0 : (uint8_t)call->input.dtype,
        .n_dims = ignored ? 0 : (uint8_t)call->input.n_dims,
        .root = call->root,
        .axis = call->axis,
        .axis2 = call->axis2,
        .count = call->count,
    };
    if (!ignored && call->input.n_dims > 0)
        memcpy(ret_card->shape, call->input.shape,
               (size_t)call->input.n_dims * sizeof ret_card->shape[0]);
    ret_card->hash = hash_of(ret_card);
    return 0;
}

int gwi_card_valid(const gwi_card *card, int rank, int size)
{
    uint64_t n_bytes;
    gw_call call = {
        .kind = card->kind,
        .op = card->op,
        .input = {.data = (void *)(uintptr_t)card,
                  .dtype = card->dtype,
                  .n_dims = card->n_dims,
                  .shape = card->shape},
        .root = card->root,
        .axis = card->axis,
        .axis2 = card->axis2,
        .count = card->count,
    };
    if (card->kind >= GW_N_COLLECTIVES || check_call(&call, rank, size, &n_bytes) < 0 ||
        (is_ignored(&call, rank) && (card->n_dims != 0 || card->dtype != 0)))
        return 0;
    return n_bytes == card->n_bytes && hash_of(card) == card->hash;
}

/* comparing */

static void print_shape(FILE *to, const gwi_card *card)
{
    fprintf(to, " %s[", gwi_dtype_name(card->dtype));
    for (int i = 0; i < card->n_dims; i++)
        fprintf(to, i > 0 ? ", %lld" : "%lld", (long long)card->shape[i]);
    fputc(']', to);
}

static void print_card(FILE *to, const gwi_card *card)
{
    unsigned traits = kinds[card->kind];

    fputs(names[card->kind], to);
    if (card->kind != GW_BARRIER && !(card->kind == GW_SCATTER && card->n_dims == 0))
        print_shape(to, card);
    if (traits & OP)
        fprintf(to, ", %s", gwi_op_name(card->op));
    if (traits & AXIS)
        fprintf(to, traits & AXIS2 ? ", gather axis %d" : ", axis %d", card->axis);
    if (traits & AXIS2)
        fprintf(to, ", scatter axis %d", card->axis2);
    if (traits & COUNT)
        fprintf(to, ", gets %lld", (long long)card->count);
    if (traits & ROOT)
        fprintf(to, ", root %d", card->root);
}

/* How many have the same hash. */
static int likes(const gwi_card *const *cards, int size, int rank)
{
    int n = 0;

    for (int r = 0; r < size; r++)
        n += cards[r]->hash == cards[rank]->hash;
    return n;
}

/* The first rank of those who are most. */
static int leader_of_most(const gwi_card *const *cards, int size)
{
    int best = 0;

    for (int r = 1; r < size; r++)
        if (likes(cards, size, r) > likes(cards, size, best))
            best = r;
    return best;
}

static void print_table(FILE *to, const gwi_card *const *cards, int size, const int *world_ranks)
{
    for (int r = 0; r < size; r++) {
        fprintf(to, "\n  rank %d: ", world_ranks[r]);
        print_card(to, cards[r]);
    }
}

static int disagree(const gwi_card *const *cards, int size, const int *world_ranks,
                    const char *sentence)
{
    char *table = NULL;
    size_t n_bytes;

    FILE *to = open_memstream(&table, &n_bytes);
    if (to != NULL) {
        print_table(to, cards, size, world_ranks);
        fclose(to);
    }
    int err = gwi_fail(GW_EDISAGREE, "%s%s", sentence, table != NULL ? table : "");
    free(table);
    return err;
}

/* Of a vote the smaller side is named; of two ranks the second. */
static int differ(const gwi_card *const *cards, int size, const int *world_ranks)
{
    char sentence[256];
    int most = leader_of_most(cards, size), odd = 0;

    while (cards[odd]->hash == cards[most]->hash)
        odd++;
    if (cards[odd]->kind == cards[most]->kind)
        snprintf(sentence, sizeof sentence,
                 "rank %d calls %s with arguments that do not fit those of rank %d; let all ranks "
                 "make the same call",
                 world_ranks[odd], names[cards[odd]->kind], world_ranks[most]);
    else
        snprintf(sentence, sizeof sentence,
                 "rank %d calls %s, but rank %d calls %s; let all ranks make the same call",
                 world_ranks[odd], names[cards[odd]->kind], world_ranks[most],
                 names[cards[most]->kind]);
    return disagree(cards, size, world_ranks, sentence);
}

/* Whose input is cut, and along which axis. */
static int64_t length_to_cut(const gwi_card *const *cards)
{
    const gwi_card *c = cards[cards[0]->kind == GW_SCATTER ? cards[0]->root : 0];

    return c->shape[c->kind == GW_ALLTOALL ? c->axis2 : c->axis];
}

static int check_counts(const gwi_card *const *cards, int size, const int *world_ranks)
{
    char sentence[256];
    int64_t sum = 0, length = length_to_cut(cards);

    for (int r = 0; r < size; r++)
        if (__builtin_add_overflow(sum, cards[r]->count, &sum))
            sum = INT64_MAX;
    if (sum == length)
        return 0;
    snprintf(
        sentence, sizeof sentence,
        "%s: the ranks want %lld entries together, from rank %d to rank %d, but there are %lld "
        "to cut; let their numbers add up",
        names[cards[0]->kind], (long long)sum, world_ranks[0], world_ranks[size - 1],
        (long long)length);
    return disagree(cards, size, world_ranks, sentence);
}

/* What is put together must be countable too. */
static int check_lengths(const gwi_card *const *cards, int size, const int *world_ranks)
{
    int64_t length = 0;

    for (int r = 0; r < size; r++)
        if (__builtin_add_overflow(length, cards[r]->shape[cards[r]->axis], &length))
            return disagree(cards, size, world_ranks,
                            "there are more entries along the axis than can be counted");
    return 0;
}

int gwi_cards_agree(const gwi_card *const *cards, int size, const int *world_ranks)
{
    unsigned traits = kinds[cards[0]->kind];
    int err = 0;

    for (int r = 1; r < size; r++)
        if (cards[r]->hash != cards[0]->hash)
            return differ(cards, size, world_ranks);
    if (traits & RAGGED)
        err = check_lengths(cards, size, world_ranks);
    return err == 0 && (traits & COUNT) ? check_counts(cards, size, world_ranks) : err;
}

/* plans */

int gwi_plan_init(gwi_plan *plan, int size)
{
    size_t n = (size_t)size;

    *plan = (gwi_plan){.send = calloc(n, sizeof *plan->send),
                       .recv = calloc(n, sizeof *plan->recv),
                       .parts = calloc(n, sizeof *plan->parts),
                       .parts2 = calloc(n, sizeof *plan->parts2)};
    if (plan->send != NULL && plan->recv != NULL && plan->parts != NULL && plan->parts2 != NULL)
        return 0;
    gwi_plan_fini(plan);
    return gwi_fail(GW_ENOMEM, "a communicator of %d ranks", size);
}

void gwi_plan_fini(gwi_plan *plan)
{
    free(plan->send);
    free(plan->recv);
    free(plan->parts);
    free(plan->parts2);
    *plan = (gwi_plan){0};
}

/* The bytes of one entry along an axis, and how many there are before it. */
static int64_t inner_bytes(const int64_t *shape, int n_dims, int axis, gw_dtype dtype)
{
    int64_t n = (int64_t)gwi_dtype_bytes(dtype);

    for (int i = axis + 1; i < n_dims; i++)
        n *= shape[i];
    return n;
}

static int64_t outer_count(const int64_t *shape, int axis)
{
    int64_t n = 1;

    for (int i = 0; i < axis; i++)
        n *= shape[i];
    return n;
}

/* Entries [from, from + n) of an array along an axis. */
static gwi_strip part_of(void *base, const int64_t *shape, int n_dims, int axis, gw_dtype dtype,
                         int64_t from, int64_t n)
{
    return gwi_strip_part(base, outer_count(shape, axis), shape[axis],
                          inner_bytes(shape, n_dims, axis, dtype), from, n);
}

static int64_t counts_before(const gwi_card *const *cards, int rank)
{
    int64_t sum = 0;

    for (int r = 0; r < rank; r++)
        sum += cards[r]->count;
    return sum;
}

gwi_strip gwi_stream_at(const gwi_card *const *cards, const gwi_plan *plan, int source, int dest,
                        void *base)
{
    const gwi_card *card = cards[source];

    if (!plan->each)
        return gwi_strip_whole(base, card->n_bytes);
    if (card->n_dims == 0) /* Scatter on ranks other than the root */
        return gwi_strip_whole(base, 0);
    return part_of(base, card->shape, card->n_dims,
                   plan->kind == GW_ALLTOALL ? card->axis2 : card->axis, card->dtype,
                   counts_before(cards, dest), cards[dest]->count);
}

/* The card that says what all inputs look like, but for lengths that may differ. */
static const gwi_card *model(const gwi_card *const *cards, int rank)
{
    return cards[cards[rank]->kind == GW_SCATTER ? cards[rank]->root : rank];
}

static void make_parts(gwi_plan *plan, const gwi_card *const *cards, int rank, int size)
{
    unsigned traits = kinds[plan->kind];
    int same_axis = (traits & AXIS2) && cards[rank]->axis == cards[rank]->axis2;

    plan->has_parts = (traits & AXIS) != 0;
    plan->has_parts2 = (traits & AXIS2) != 0;
    for (int r = 0; r < size && plan->has_parts; r++) {
        int gathers = (traits & RAGGED) != 0;
        plan->parts[r] = !gathers    ? cards[r]->count
                         : same_axis ? cards[rank]->count
                                     : cards[r]->shape[cards[r]->axis];
        plan->parts2[r] = cards[r]->count;
    }
}

static void make_shape(gwi_plan *plan, const gwi_card *const *cards, int rank, int size)
{
    const gwi_card *c = model(cards, rank);
    unsigned traits = kinds[plan->kind];
    int64_t sum = 0;

    plan->n_dims = c->n_dims;
    memcpy(plan->shape, c->shape, (size_t)c->n_dims * sizeof c->shape[0]);
    if (traits & AXIS2)
        plan->shape[c->axis2] = cards[rank]->count;
    if (traits & RAGGED) {
        for (int r = 0; r < size; r++)
            sum += plan->parts[r];
        plan->shape[c->axis] = plan->kind == GW_GATHER && rank != plan->root ? 0 : sum;
    } else if (traits & COUNT) {
        plan->shape[c->axis] = cards[rank]->count;
    }
}

/* The longest stream of all. */
static size_t longest(const gwi_plan *plan, const gwi_card *const *cards, int size)
{
    int64_t widest = 0;
    size_t most = 0;
    int dest = 0;

    for (int r = 0; r < size; r++)
        if (cards[r]->count > widest) {
            widest = cards[r]->count;
            dest = r;
        }
    for (int r = 0; r < size; r++) {
        if (plan->kind == GW_BCAST && r != plan->root)
            continue;
        size_t n = gwi_stream_at(cards, plan, r, dest, NULL).n_bytes;
        most = n > most ? n : most;
    }
    return most;
}

int gwi_plan_make(gwi_plan *plan, const gw_call *call, const gwi_card *const *cards, int rank,
                  int size)
{
    const gwi_card *c = model(cards, rank);

    plan->kind = call->kind;
    plan->op = call->op;
    plan->dtype = c->dtype;
    plan->root = call->root;
    plan->unit = gwi_dtype_bytes(c->dtype) *
                 (gwi_combines(call->kind) && is_pairs(call->op) ? 2 : 1);
    plan->input = call->input.data;
    plan->input_bytes = cards[rank]->n_bytes;
    plan->each = (kinds[call->kind] & COUNT) != 0;
    plan->flags = 0;
    plan->largest = 0;
    for (int r = 0; r < size; r++) {
        plan->flags |= cards[r]->flags;
        plan->largest = cards[r]->n_bytes > plan->largest ? cards[r]->n_bytes : plan->largest;
    }
    make_parts(plan, cards, rank, size);
    make_shape(plan, cards, rank, size);
    uint64_t n_bytes;
    if (!count_bytes(plan->shape, plan->n_dims, c->dtype, &n_bytes))
        return gwi_fail(GW_EINVAL, "%s: the output has more bytes than can be counted",
                        names[call->kind]);
    plan->output_bytes = call->kind == GW_BARRIER ? 0 : n_bytes;
    plan->longest = longest(plan, cards, size);
    return 0;
}

void gwi_plan_place(gwi_plan *plan, const gwi_card *const *cards, int rank, int size, void *output)
{
    const gwi_card *c = model(cards, rank);
    int64_t at = 0;
    int gets = plan->kind != GW_GATHER || rank == plan->root;

    plan->output = output;
    for (int r = 0; r < (plan->each ? size : 1); r++)
        plan->send[r] = gwi_stream_at(cards, plan, rank, r, plan->input);
    for (int r = 0; r < size; r++) {
        if (kinds[plan->kind] & RAGGED) {
            plan->recv[r] = !gets ? gwi_strip_whole(output, 0)
                                  : part_of(output, plan->shape, plan->n_dims, c->axis, plan->dtype,
                                            at, plan->parts[r]);
            at += plan->parts[r];
        } else {
            plan->recv[r] = gwi_strip_whole(output, r == plan->root ? plan->output_bytes : 0);
        }
    }
}
