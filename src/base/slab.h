/* slab.h - blocks of one size in memory that several processes may share.
 *
 * The caller gives a range of memory, and one process makes a slab in it; each
 * process that maps the range, at any address, attaches to it with a gwi_slab
 * of its own.  A block is known by its number, the same everywhere.  The first
 * n calls of alloc give the blocks 0, 1, 2, ... n-1, so that blocks made in
 * order lie in order.
 *
 * Owning   The memory is the caller's.  A block is owned by whoever got its
 *          number, until somebody frees it.
 * Failing  Results below zero are a gw_err; nothing has changed then.
 * Threads  Alloc, free and block may be called by any thread of any process at
 *          any time, without a lock: nobody ever waits for another.  What an
 *          owner does to a block before freeing it happens before all that the
 *          next owner does.
 * Forking  A gwi_slab works in a forked child if its mapping is shared.
 * Dying    If a process dies in alloc or free, at most the block in its hands
 *          is lost; the slab stays valid and usable.                          */
#ifndef GWI_BASE_SLAB_H
#define GWI_BASE_SLAB_H

#include "base/platform.h"

#include <godwit/base.h>

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The range, which begins on a cache line:
 *
 *     0                192                          blocks_at
 *     | header         | link of each block | pad   | block 0 | block 1 | ...
 *                        4 bytes each                 block_bytes each
 *
 * The link of a block is 0 if it is in use or was never used; in the free list
 * it is the number of the next block plus 1, or GWI_SLAB_LAST.
 *
 * The rules:
 *   S1  Blocks below `fresh` have been given out at least once; the others
 *       never, and their links are 0.
 *   S2  The free list starts at the low half of `head`, holds blocks below
 *       `fresh` only, each once, and ends with GWI_SLAB_LAST.
 *   S3  A link is changed only by the owner of its block, which is therefore
 *       not in the list.
 *   S4  Every block taken off the list puts a new tag into `head`.           */
#define GWI_SLAB_LAST UINT32_MAX
#define GWI_SLAB_MAX_BLOCKS (UINT32_MAX - 2)

typedef struct gwi_slab_header {
    /* Set by the process that makes the slab, then constant.  `magic` is
     * written last: if it dies before, there is no slab here and attach says
     * so; nobody can be using it. */
    _Atomic uint64_t magic;
    uint64_t fingerprint; /* of this layout and its version */
    uint64_t block_bytes;
    uint64_t blocks_at; /* from the start of the header */
    uint32_t n_blocks;
    uint32_t unused[7];

    /* Written by any alloc while the free list is empty.  If a process dies
     * after it has counted on, the block that it counted is lost. */
    _Alignas(GWI_LINE) _Atomic uint64_t fresh;

    /* Written by any alloc and free: tag << 32 | link to the first free block.
     * If a process dies after it has taken a block off, or before it has put
     * it on, that block is lost. */
    _Alignas(GWI_LINE) _Atomic uint64_t head;
} gwi_slab_header;

static_assert(sizeof(gwi_slab_header) == 3 * GWI_LINE, "processes must agree on the header");
static_assert(offsetof(gwi_slab_header, blocks_at) == 24, "processes must agree on the header");
static_assert(offsetof(gwi_slab_header, fresh) == GWI_LINE, "one line for each writer");
static_assert(offsetof(gwi_slab_header, head) == 2 * GWI_LINE, "one line for each writer");
static_assert(ATOMIC_LONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "no locks in shared memory");
static_assert(sizeof(_Atomic uint64_t) == 8 && sizeof(_Atomic uint32_t) == 4, "plain words");

/* One process's view.  Set by init or attach, then constant. */
typedef struct gwi_slab {
    gwi_slab_header *header; /* borrowed, as are the next two */
    _Atomic uint32_t *link;
    unsigned char *blocks;
    size_t block_bytes;
    uint32_t n_blocks;
} gwi_slab;

/* How much memory a slab needs.  0 if it cannot be: no block or no byte, more
 * than GWI_SLAB_MAX_BLOCKS blocks, or more memory than there are addresses. */
size_t gwi_slab_bytes(size_t block_bytes, uint64_t n_blocks);

/* Of these, the bytes before the first block.  Of the rest only blocks that were ever given
 * out are used. */
size_t gwi_slab_head_bytes(uint64_t n_blocks);

/* Make a slab of `n_blocks` free blocks at `memory`, which is aligned to
 * GWI_LINE; whatever was there is gone.  The blocks themselves are not touched.
 * The first one is aligned to GWI_LINE, with many blocks to GWI_PAGE if `memory` is; the
 * others follow without a gap. */
int gwi_slab_init(gwi_slab *slab, void *memory, size_t memory_bytes, size_t block_bytes,
                  uint64_t n_blocks);

/* Use the slab at `memory`, made by another process or another build.  GW_ESTATE
 * if there is none (or not yet), GW_EDISAGREE if its layout is not ours. */
int gwi_slab_attach(gwi_slab *slab, void *memory, size_t memory_bytes);

/* How many blocks, from the first, have been given out so far, each at least once. */
static inline uint64_t gwi_slab_ever_used(const gwi_slab *slab)
{
    uint64_t fresh = atomic_load_explicit(&slab->header->fresh, memory_order_relaxed);

    return fresh < slab->n_blocks ? fresh : slab->n_blocks;
}

/* Take a free block; GW_ENOMEM if there is none. */
int gwi_slab_alloc(gwi_slab *slab, uint32_t *ret_block);

/* Give a block back.  To free a block that is not in use is a mistake that debug
 * builds notice. */
void gwi_slab_free(gwi_slab *slab, uint32_t block);

/* Where a block lies in this process. */
static inline void *gwi_slab_block(const gwi_slab *slab, uint32_t block)
{
    assert(block < slab->n_blocks);
    return slab->blocks + (size_t)block * slab->block_bytes;
}

/* How many blocks are in use, or lost.  Takes time in proportion to the free
 * list; exact while nobody allocates or frees. */
uint32_t gwi_slab_in_use(const gwi_slab *slab);

/* Set the bit of every block that is free, in an array of n_blocks / 64 + 1 numbers.  Exact
 * while nobody allocates or frees, if the slab is valid. */
void gwi_slab_mark_free(const gwi_slab *slab, uint64_t *bits);

/* Check the rules, also after processes have died, but while nobody allocates or
 * frees. */
bool gwi_slab_valid(const gwi_slab *slab);

#endif
