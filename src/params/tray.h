/* tray.h - how workers hand orders to the agents of their node.
 *
 * What a worker cannot do in place it writes as an order into its tray, a ring of memory
 * that the node's processes share, and drops the order's place into the slot of the agent
 * who serves the keys.  The agent reads and writes the order where it lies; when it is
 * done it says so in the order.  A worker takes its orders back in the order of posting.
 *
 *     order:   head | keys | vectors, in the order of the keys
 *
 * If a process dies here: a worker's orders stay undone or half done, and nobody waits for
 * them but itself; an agent's slot fills, and those who wait for it hear that it died.   */
#ifndef GWI_PARAMS_TRAY_H
#define GWI_PARAMS_TRAY_H

#include "base/platform.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef enum gwi_order_kind {
    GWI_ORDER_PULL,
    GWI_ORDER_PUSH,
    GWI_ORDER_SET,
    GWI_ORDER_LOCALIZE,
    GWI_ORDER_INTENT, /* nobody waits for it */
    GWI_ORDER_SYNC,
    GWI_ORDER_FINISH,
} gwi_order_kind;

/* Written by the worker before it is posted; `done` by the agent. */
typedef struct gwi_order {
    _Atomic uint32_t done; /* 1: with release, after everything else */
    uint32_t kind;
    uint32_t n_keys;
    uint32_t n_bytes;   /* head, keys and vectors, rounded up */
    int64_t start, end; /* of an intent */
    int64_t keys[];
} gwi_order;

static inline void *gwi_order_values(gwi_order *order)
{
    return order->keys + order->n_keys;
}

/* A worker's own view of its tray. */
typedef struct gwi_tray {
    unsigned char *base; /* in shared memory */
    size_t n_bytes;
    size_t head, tail; /* bytes ever used, and taken back */
} gwi_tray;

/* Room for an order of so many bytes, or NULL: take some back first.  At most half of the
 * tray can be asked for. */
gwi_order *gwi_tray_take(gwi_tray *tray, size_t n_bytes);

/* The oldest order is no longer needed. */
void gwi_tray_give_back_oldest(gwi_tray *tray);

/* An agent's slot, in shared memory, zero at the start: any number of workers drop, one agent
 * picks up.
 *
 * An agent looks at its node's clocks and changes every now and then.  When there were none for a
 * while it dozes: then who advances a clock or marks a key, and afterwards sees that it dozes,
 * wakes it.  If the agent's process dies there, somebody wakes nobody, once.  */
#define GWI_SLOT_PLACES 1024

typedef struct gwi_slot {
    _Alignas(GWI_LINE) _Atomic uint64_t dropped; /* by workers */
    /* set by the agent before it looks for the last time; cleared by it, and by who wakes it */
    _Alignas(GWI_LINE) _Atomic uint32_t dozes;
    _Alignas(GWI_LINE) uint64_t picked; /* by the agent */
    struct gwi_slot_place {
        _Atomic uint64_t turn; /* 1 + the number of what lies here, when it is there */
        uint32_t seat;
        uint32_t unused;
        uint64_t at; /* of the order, in bytes from the segment's beginning */
    } place[GWI_SLOT_PLACES];
} gwi_slot;

_Static_assert(offsetof(gwi_slot, dozes) == GWI_LINE && offsetof(gwi_slot, picked) == 2 * GWI_LINE,
               "slots are shared between processes");

/* Returns 0 if there is no room now. */
int gwi_slot_drop(gwi_slot *slot, uint32_t seat, uint64_t at);
int gwi_slot_pick(gwi_slot *slot, uint32_t *ret_seat, uint64_t *ret_at);

static inline int gwi_slot_dozes(const gwi_slot *slot)
{
    /* Stays behind what the caller has done, which is sequentially consistent, too; pairs with
     * the agent's store. */
    return atomic_load_explicit(&slot->dozes, memory_order_seq_cst) != 0;
}

/* Whether the agent dozes and the caller has to wake it, which nobody else does then. */
static inline int gwi_slot_rouse(gwi_slot *slot)
{
    return gwi_slot_dozes(slot) &&
           atomic_exchange_explicit(&slot->dozes, 0, memory_order_seq_cst) != 0;
}

#endif
