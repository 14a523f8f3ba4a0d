/* word.h - what a node knows of a key, in 8 bytes.
 *
 *     63          32 31        6     5        4         3      2     1    0
 *     | slot        | version   | marked | setting | watched |  state   | latch |
 *
 * slot     which row of its length holds the vector, if it is here
 * version  counts the changes of the vector, so that a reader can tell that there was
 *          one while it read; it wraps after 2^26, so a reader would have to be away
 *          for seconds, and for just so many changes, to be fooled
 * setting  of a replica: what its owner has not been told yet is the whole value (local.h)
 * watched  of an owned key: other nodes have replicas, so changes are marked (marks.h)
 * marked   the vector has changed and the node has not looked since; a key that is marked need not
 *          be marked again
 * state    whether the vector is here
 * latch    somebody is changing the vector or the word
 *
 * Anybody may read a word at any time.  The rules for those who write:
 *
 *   W1  The latch is taken by setting its bit in one step, and only by who finds it clear.
 *   W2  Only the holder of the latch writes the rest of the word, or the vector.
 *   W3  Who has changed the vector gives the latch back with the next version, in one
 *       store with release.
 *   W4  Who holds a latch waits for nothing, least of all for another latch.
 *
 * A reader takes no latch: it reads the word, the vector, and the word again.  If both
 * were equal and without latch, what it read is whole.
 *
 * If a process dies here: a latch that it held stays.  The vector may be half written.
 * Those who find the latch look up whose it was (hand.h) and fail with that name.    */
#ifndef GWI_PARAMS_WORD_H
#define GWI_PARAMS_WORD_H

#include "base/platform.h"

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t gwi_word;

_Static_assert(sizeof(gwi_word) == 8 && ATOMIC_LLONG_LOCK_FREE == 2,
               "words are shared between processes");

#define GWI_WORD_LATCH UINT64_C(1)
#define GWI_WORD_STATE UINT64_C(0x6)
#define GWI_WORD_WATCHED UINT64_C(0x8)
#define GWI_WORD_SETTING UINT64_C(0x10)
#define GWI_WORD_MARKED UINT64_C(0x20)
#define GWI_WORD_VERSION UINT64_C(0xffffffc0)
#define GWI_WORD_VERSION_ONE UINT64_C(0x40)

enum {
    GWI_ABSENT = 0,  /* it is elsewhere */
    GWI_OWNED = 2,   /* it is here, and this node is its owner */
    GWI_REPLICA = 4, /* a copy is here */
};

static inline uint64_t gwi_word_make(uint32_t slot, unsigned state)
{
    return (uint64_t)slot << 32 | state;
}

static inline uint32_t gwi_word_slot(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static inline unsigned gwi_word_state(uint64_t word)
{
    return (unsigned)(word & GWI_WORD_STATE);
}

static inline uint64_t gwi_word_next_version(uint64_t word)
{
    return (word & ~GWI_WORD_VERSION) | ((word + GWI_WORD_VERSION_ONE) & GWI_WORD_VERSION);
}

/* Take the latch if it is free.  `ret_word` is what the word was, without latch. */
static inline int gwi_word_try_latch(gwi_word *at, uint64_t *ret_word)
{
    uint64_t word = atomic_load_explicit(at, memory_order_relaxed) & ~GWI_WORD_LATCH;

    /* Acquire pairs with the release in gwi_word_release(). */
    if (!atomic_compare_exchange_strong_explicit(at, &word, word | GWI_WORD_LATCH,
                                                 memory_order_acquire, memory_order_relaxed))
        return 0;
#if !GWI_TSAN
    /* What is written from now on is not seen before the latch; pairs with the fence in
     * gwi_word_unchanged(). */
    atomic_thread_fence(memory_order_release);
#endif
    *ret_word = word;
    return 1;
}

/* Give the latch back, with the word as it shall be. */
static inline void gwi_word_release(gwi_word *at, uint64_t word)
{
    atomic_store_explicit(at, word, memory_order_release);
}

static inline uint64_t gwi_word_look(gwi_word *at)
{
    return atomic_load_explicit(at, memory_order_acquire); /* pairs with gwi_word_release() */
}

/* After reading a vector: whether the word is still `word`. */
static inline int gwi_word_unchanged(gwi_word *at, uint64_t word)
{
#if GWI_TSAN
    /* ThreadSanitizer does not know fences.  A change that changes nothing orders as well. */
    return atomic_fetch_add_explicit(at, 0, memory_order_acq_rel) == word;
#else
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(at, memory_order_relaxed) == word;
#endif
}

#endif
