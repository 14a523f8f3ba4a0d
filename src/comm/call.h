/* call.h - a collective call: what a rank is about to do, whether all agree, and
 * what must move where.
 *
 *   gw_call   what the caller said
 *   gwi_card  the same, checked, in a form that others can read; with a hash of all
 *             that must be equal on all ranks
 *   gwi_plan  what follows from the cards of all ranks                          */
#ifndef GWI_COMM_CALL_H
#define GWI_COMM_CALL_H

#include "comm/strip.h"

#include <godwit/comm.h>

#include <stdint.h>

/* Shared between processes, and sent as it is between machines of one kind. */
typedef struct gwi_card {
    uint64_t hash;
    uint64_t n_bytes; /* of the input */
    uint32_t flags;
    uint8_t kind, op, dtype, n_dims;
    int32_t root, axis, axis2;
    uint32_t unused[3]; /* 0 */
    int64_t count;
    uint64_t number;            /* of the call; window.c's, 0 elsewhere */
    int64_t shape[GW_MAX_DIMS]; /* of the input; the first n_dims are set */
} gwi_card;

_Static_assert(sizeof(gwi_card) == 64 + 8 * GW_MAX_DIMS, "cards are shared between processes");

/* What moves.  A stream goes from a source to a destination, or one and the same from a
 * source to all.  What it is at its source, and where it goes, are strips. */
typedef struct gwi_plan {
    gw_collective kind;
    gw_op op;
    gw_dtype dtype;
    int root;
    size_t unit;          /* bytes of what is combined: an entry, or a pair of them */
    void *input, *output; /* of this rank */
    size_t input_bytes, output_bytes;
    int each;        /* streams differ by destination */
    size_t longest;  /* stream of all, the same on all ranks */
    size_t largest;  /* input of all */
    gwi_strip *send; /* by destination; [0] for all unless `each` */
    gwi_strip *recv; /* by source, into the output; not when combining */
    int64_t *parts, *parts2;
    int has_parts, has_parts2;
    int n_dims;
    int64_t shape[GW_MAX_DIMS]; /* of the output */
    uint32_t flags;
} gwi_plan;

/* Check a call as far as one rank can, and write its card, of which the first
 * gwi_card_bytes() matter.  Nothing is written if it fails. */
int gwi_card_make(const gw_call *call, int rank, int size, gwi_card *ret_card);

static inline size_t gwi_card_bytes(const gwi_card *card)
{
    return offsetof(gwi_card, shape) + card->n_dims * sizeof card->shape[0];
}

/* Whether a card that came from `rank` of a group of `size` can be true. */
int gwi_card_valid(const gwi_card *card, int rank, int size);

/* Compare all cards, by rank in the communicator.  GW_EDISAGREE on every rank alike if
 * they do not fit together, with a table of who called what; `world_ranks` gives the
 * names. */
int gwi_cards_agree(const gwi_card *const *cards, int size, const int *world_ranks);

/* Room for a plan of a group of `size`. */
int gwi_plan_init(gwi_plan *plan, int size);
void gwi_plan_fini(gwi_plan *plan);

/* Work out what rank `rank` has to do; cards that agree.  The output's place comes
 * later, with gwi_plan_place(). */
int gwi_plan_make(gwi_plan *plan, const gw_call *call, const gwi_card *const *cards, int rank,
                  int size);
void gwi_plan_place(gwi_plan *plan, const gwi_card *const *cards, int rank, int size, void *output);

/* The stream from `source` to `dest`, as it lies in the source's input at `base`. */
gwi_strip gwi_stream_at(const gwi_card *const *cards, const gwi_plan *plan, int source, int dest,
                        void *base);

const char *gwi_collective_name(gw_collective kind);

/* Whether entries are combined. */
static inline int gwi_combines(gw_collective kind)
{
    return kind == GW_ALLREDUCE || kind == GW_REDUCE || kind == GW_REDUCE_SCATTER ||
           kind == GW_SCAN;
}

#endif
