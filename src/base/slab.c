/* slab.c - a counter of fresh blocks, and a list of freed ones.
 *
 * The free list is a stack whose head carries a tag.  Between reading the head
 * and replacing it a thread may be overtaken: the block at the head is taken,
 * used, freed, and is at the head again, but with another link.  The tag has
 * changed then (S4), so the replacement fails and is tried again.  It has 32
 * bits: it would take 2^32 allocations during one overtaking to be fooled.
 *
 * Links lie beside the blocks, not in them: a thread that is overtaken reads
 * the link of a block that now belongs to somebody else, who may write all of
 * the block, but not the link.                                              */
#include "base/slab.h"
#include "base/error.h"
#include "base/hash.h"

#include <string.h>

#define MAGIC UINT64_C(0x62616c7374697764) /* "dwitslab" */
#define VERSION 2

#define IN_USE 0
#define LARGE_BLOCKS 1024
#define FETCHED 512 /* bytes of a block that will be given out next */

static uint64_t fingerprint(void)
{
    const uint64_t layout[] = {
        VERSION,
        GWI_LINE,
        GWI_SLAB_LAST,
        sizeof(gwi_slab_header),
        offsetof(gwi_slab_header, block_bytes),
        offsetof(gwi_slab_header, blocks_at),
        offsetof(gwi_slab_header, n_blocks),
        offsetof(gwi_slab_header, fresh),
        offsetof(gwi_slab_header, head),
    };

    return gwi_hash_bytes(layout, sizeof layout, MAGIC);
}

/* Blocks that share a page with fewer others are found faster, so large slabs begin on a
 * page, if the memory does. */
static size_t blocks_at(uint64_t n_blocks)
{
    size_t end = sizeof(gwi_slab_header) + n_blocks * sizeof(uint32_t);
    size_t unit = n_blocks < LARGE_BLOCKS ? GWI_LINE : GWI_PAGE;

    return (end + unit - 1) / unit * unit;
}

size_t gwi_slab_head_bytes(uint64_t n_blocks)
{
    return blocks_at(n_blocks);
}

size_t gwi_slab_bytes(size_t block_bytes, uint64_t n_blocks)
{
    size_t bytes;

    if (block_bytes == 0 || n_blocks == 0 || n_blocks > GWI_SLAB_MAX_BLOCKS)
        return 0;
    if (__builtin_mul_overflow(block_bytes, n_blocks, &bytes) ||
        __builtin_add_overflow(bytes, blocks_at(n_blocks), &bytes) || bytes > PTRDIFF_MAX)
        return 0;
    return bytes;
}

static int check_alignment(const void *memory)
{
    if ((uintptr_t)memory % GWI_LINE != 0)
        return gwi_fail(GW_EINVAL, "slab at %p: it must begin at a multiple of %d bytes", memory,
                        GWI_LINE);
    return 0;
}

static gwi_slab view(gwi_slab_header *header)
{
    return (gwi_slab){
        .header = header,
        .link = (_Atomic uint32_t *)(header + 1),
        .blocks = (unsigned char *)header + header->blocks_at,
        .block_bytes = header->block_bytes,
        .n_blocks = header->n_blocks,
    };
}

int gwi_slab_init(gwi_slab *slab, void *memory, size_t memory_bytes, size_t block_bytes,
                  uint64_t n_blocks)
{
    gwi_slab_header *header = memory;
    size_t need = gwi_slab_bytes(block_bytes, n_blocks);

    int err = check_alignment(memory);
    if (err < 0)
        return err;
    if (need == 0)
        return gwi_fail(GW_EINVAL, "slab of %llu blocks of %zu bytes: there can be no such slab",
                        (unsigned long long)n_blocks, block_bytes);
    if (memory_bytes < need)
        return gwi_fail(GW_EINVAL,
                        "slab of %llu blocks of %zu bytes: it needs %zu bytes and was given %zu",
                        (unsigned long long)n_blocks, block_bytes, need, memory_bytes);

    /* An old slab must not be taken for the new one while that is made. */
    atomic_store_explicit(&header->magic, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);

    header->fingerprint = fingerprint();
    header->block_bytes = block_bytes;
    header->blocks_at = blocks_at(n_blocks);
    header->n_blocks = (uint32_t)n_blocks;
    memset(header->unused, 0, sizeof header->unused);
    atomic_init(&header->fresh, 0);
    atomic_init(&header->head, GWI_SLAB_LAST);
    memset(header + 1, 0, n_blocks * sizeof(uint32_t)); /* every link: IN_USE */

    /* Pairs with gwi_slab_attach(). */
    atomic_store_explicit(&header->magic, MAGIC, memory_order_release);
    *slab = view(header);
    return 0;
}

/* Whether what the header says fits together and into the memory. */
static bool header_valid(const gwi_slab_header *header, size_t memory_bytes)
{
    size_t need = gwi_slab_bytes(header->block_bytes, header->n_blocks);

    return need != 0 && need <= memory_bytes && header->blocks_at == blocks_at(header->n_blocks);
}

int gwi_slab_attach(gwi_slab *slab, void *memory, size_t memory_bytes)
{
    gwi_slab_header *header = memory;

    int err = check_alignment(memory);
    if (err < 0)
        return err;
    if (memory_bytes < sizeof *header)
        return gwi_fail(GW_EINVAL, "slab: %zu bytes cannot hold one", memory_bytes);
    /* Pairs with gwi_slab_init(). */
    if (atomic_load_explicit(&header->magic, memory_order_acquire) != MAGIC)
        return gwi_fail(GW_ESTATE, "slab: there is none in this memory, or not yet");
    if (header->fingerprint != fingerprint())
        return gwi_fail(GW_EDISAGREE,
                        "slab: made by another version of the library (layout %016llx, ours is "
                        "%016llx); all processes of a job need the same one",
                        (unsigned long long)header->fingerprint, (unsigned long long)fingerprint());
    if (!header_valid(header, memory_bytes))
        return gwi_fail(GW_EINVAL, "slab: %u blocks of %llu bytes do not fit into %zu bytes",
                        header->n_blocks, (unsigned long long)header->block_bytes, memory_bytes);
    *slab = view(header);
    return 0;
}

static uint32_t first_of(uint64_t head)
{
    return (uint32_t)head;
}

static uint64_t tag_of(uint64_t head)
{
    return head >> 32;
}

static uint64_t make_head(uint64_t tag, uint32_t first)
{
    return tag << 32 | first;
}

/* Take the first block off the free list. */
static bool pop(gwi_slab *slab, uint32_t *ret_block)
{
    _Atomic uint64_t *head = &slab->header->head;
    /* The acquires, here and when the exchange fails, pair with the release in
     * gwi_slab_free(): the link is read after it was written, and the block is
     * used after its last owner was done.  Exchanges by others in between keep
     * that order, being read-modify-writes. */
    uint64_t seen = atomic_load_explicit(head, memory_order_acquire);
    uint64_t next;

    do {
        if (first_of(seen) == GWI_SLAB_LAST)
            return false;
        *ret_block = first_of(seen) - 1;
        assert(*ret_block < slab->n_blocks);
        /* IN_USE or another link, if we are overtaken; then the tag differs. */
        uint32_t link = atomic_load_explicit(&slab->link[*ret_block], memory_order_relaxed);
        next = make_head(tag_of(seen) + 1, link);
    } while (!atomic_compare_exchange_weak_explicit(head, &seen, next, memory_order_acquire,
                                                    memory_order_acquire));

    /* Ours from here on (S3).  Only debug builds and people look at this. */
    atomic_store_explicit(&slab->link[*ret_block], IN_USE, memory_order_relaxed);
    return true;
}

/* Take the first block that was never used.  Nobody wrote to it, so there is
 * nothing to order. */
static bool take_fresh(gwi_slab *slab, uint32_t *ret_block)
{
    _Atomic uint64_t *fresh = &slab->header->fresh;
    uint64_t seen = atomic_load_explicit(fresh, memory_order_relaxed);

    do {
        if (seen >= slab->n_blocks)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(fresh, &seen, seen + 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    *ret_block = (uint32_t)seen;
    return true;
}

int gwi_slab_alloc(gwi_slab *slab, uint32_t *ret_block)
{
    uint32_t block;

    /* The list is asked again at the end: a block may have come back while
     * others took the last fresh ones, and then the slab was never full. */
    if (!pop(slab, &block) && !take_fresh(slab, &block) && !pop(slab, &block))
        return gwi_fail(GW_ENOMEM, "slab: all %u blocks of %zu bytes are in use", slab->n_blocks,
                        slab->block_bytes);
    /* Where the next one will look, and then write. */
    uint32_t next = first_of(atomic_load_explicit(&slab->header->head, memory_order_relaxed));
    if (next != GWI_SLAB_LAST) {
        __builtin_prefetch(&slab->link[next - 1]);
        for (size_t at = 0; at < slab->block_bytes && at < FETCHED; at += GWI_LINE)
            __builtin_prefetch((unsigned char *)gwi_slab_block(slab, next - 1) + at, 1, 2);
    }
    *ret_block = block;
    return 0;
}

void gwi_slab_free(gwi_slab *slab, uint32_t block)
{
    _Atomic uint64_t *head = &slab->header->head;
    uint64_t seen = atomic_load_explicit(head, memory_order_relaxed);

    assert(block < atomic_load_explicit(&slab->header->fresh, memory_order_relaxed));
    assert(atomic_load_explicit(&slab->link[block], memory_order_relaxed) == IN_USE);

    /* The tag stays: a pop that is overtaken by this and fooled would need the
     * same block at the head with another link, and that needs a pop (S3, S4).
     * The release pairs with the acquires in pop(). */
    do
        atomic_store_explicit(&slab->link[block], first_of(seen), memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(head, &seen, make_head(tag_of(seen), block + 1),
                                                  memory_order_release, memory_order_relaxed));
}

/* The length of the free list, or -1 if it leads astray or never ends (S2). */
static int64_t free_length(const gwi_slab *slab, uint64_t fresh)
{
    uint32_t link = first_of(atomic_load_explicit(&slab->header->head, memory_order_acquire));
    int64_t length = 0;

    while (link != GWI_SLAB_LAST) {
        if (link == IN_USE || link > fresh || (uint64_t)length == fresh)
            return -1;
        link = atomic_load_explicit(&slab->link[link - 1], memory_order_relaxed);
        length++;
    }
    return length;
}

uint32_t gwi_slab_in_use(const gwi_slab *slab)
{
    uint64_t fresh = atomic_load_explicit(&slab->header->fresh, memory_order_relaxed);
    int64_t length = free_length(slab, fresh);

    return length < 0 ? 0 : (uint32_t)(fresh - (uint64_t)length);
}

void gwi_slab_mark_free(const gwi_slab *slab, uint64_t *bits)
{
    uint64_t fresh = atomic_load_explicit(&slab->header->fresh, memory_order_relaxed);
    uint32_t link = first_of(atomic_load_explicit(&slab->header->head, memory_order_acquire));

    for (uint64_t block = fresh; block < slab->n_blocks; block++)
        bits[block / 64] |= UINT64_C(1) << block % 64;
    while (link != GWI_SLAB_LAST && link != IN_USE && link <= slab->n_blocks) {
        bits[(link - 1) / 64] |= UINT64_C(1) << (link - 1) % 64;
        link = atomic_load_explicit(&slab->link[link - 1], memory_order_relaxed);
    }
}

bool gwi_slab_valid(const gwi_slab *slab)
{
    const gwi_slab_header *header = slab->header;
    uint64_t fresh = atomic_load_explicit(&header->fresh, memory_order_relaxed);

    if (atomic_load_explicit(&header->magic, memory_order_acquire) != MAGIC ||
        header->fingerprint != fingerprint() || header->n_blocks != slab->n_blocks ||
        header->block_bytes != slab->block_bytes || !header_valid(header, SIZE_MAX))
        return false;
    if (fresh > slab->n_blocks)
        return false; /* S1 */
    for (uint64_t block = fresh; block < slab->n_blocks; block++)
        if (atomic_load_explicit(&slab->link[block], memory_order_relaxed) != IN_USE)
            return false; /* S1 */
    return free_length(slab, fresh) >= 0;
}
