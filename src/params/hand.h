/* hand.h - which latches a worker holds, told to all, in case it dies.
 *
 * A worker notes the keys before it takes their latches and forgets them after it has
 * given them back.  Nobody reads that, but who finds a latch taken for long.
 *
 * If a process dies here: that is what hands are for.  Keys that were noted but not
 * latched yet do no harm: they are asked for only if their latch is taken.            */
#ifndef GWI_PARAMS_HAND_H
#define GWI_PARAMS_HAND_H

#include "base/platform.h"

#include <stdatomic.h>
#include <stdint.h>

#define GWI_HAND_KEYS 14

/* In shared memory.  Written by its worker. */
typedef struct gwi_hand {
    _Alignas(GWI_LINE) _Atomic uint32_t n; /* how many of `keys` count */
    _Atomic int64_t keys[GWI_HAND_KEYS];
} gwi_hand;

_Static_assert(sizeof(gwi_hand) == 2 * GWI_LINE, "hands are shared between processes");

/* Before the latch is tried: key number `i` of those in the hand. */
static inline void gwi_hand_note(gwi_hand *hand, uint32_t i, int64_t key)
{
    atomic_store_explicit(&hand->keys[i], key, memory_order_relaxed);
    atomic_store_explicit(&hand->n, i + 1, memory_order_release); /* pairs with holds() */
}

/* After the latches are back. */
static inline void gwi_hand_empty(gwi_hand *hand)
{
    atomic_store_explicit(&hand->n, 0, memory_order_release);
}

static inline int gwi_hand_holds(const gwi_hand *hand, int64_t key)
{
    uint32_t n = atomic_load_explicit(&hand->n, memory_order_acquire);

    for (uint32_t i = 0; i < n && i < GWI_HAND_KEYS; i++)
        if (atomic_load_explicit(&hand->keys[i], memory_order_relaxed) == key)
            return 1;
    return 0;
}

#endif
