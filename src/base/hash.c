/* hash.c - open addressing with linear probing, a tag byte beside each entry.
 *
 *     entry  | key value | key value | key value | ...   16 bytes a slot
 *     tag    | t | t | t | ...                            1 byte a slot
 *
 * A tag is 0 for an empty slot, else 0x80 and seven bits of the key's hash, so
 * a search reads the entries of other keys in one case of 128 only, and a
 * search for a key that is not there mostly reads one cache line.
 *
 * The rules:
 *   H1  n_slots is 0 or a power of two; count is at most 3/4 of it, so there
 *       is an empty slot and every search ends.
 *   H2  The tag of a used slot belongs to its key.
 *   H3  From a key's home slot to the slot it is in, no slot is empty.
 *   H4  A key is in the table once; count is the number of used slots.        */
#include "base/hash.h"
#include "base/error.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define MIN_SLOTS 16

/* Debug builds check all rules after every change of a table up to this size,
 * and when a larger one grows; more would make the work quadratic. */
#define CHECKED_SLOTS 256

uint64_t gwi_hash_bytes(const void *bytes, size_t len_bytes, uint64_t seed)
{
    const unsigned char *at = bytes;
    size_t left = len_bytes;

    /* The length goes in first: "a" and "a\0" fill the last word alike. */
    uint64_t hash = gwi_hash_u64(seed ^ gwi_hash_u64(len_bytes));

    while (left > 0) {
        size_t n = left < 8 ? left : 8;
        uint64_t word = 0;
        memcpy(&word, at, n);
        /* One to one in `hash` for any word: what came before is never lost. */
        hash = gwi_hash_u64(hash ^ le64toh(word));
        at += n;
        left -= n;
    }
    return hash;
}

/* Where a key belongs: the low bits of its hash are the home, the high ones the tag. */
static size_t home_of(const gwi_hash *hash, uint64_t mixed)
{
    return (size_t)mixed & (hash->n_slots - 1);
}

static uint8_t tag_of(uint64_t mixed)
{
    return (uint8_t)(0x80 | (mixed >> 57));
}

static size_t after(const gwi_hash *hash, size_t slot)
{
    return (slot + 1) & (hash->n_slots - 1);
}

static size_t before(const gwi_hash *hash, size_t slot)
{
    return (slot - 1) & (hash->n_slots - 1);
}

/* How far an entry in `slot` is from the home of its key. */
static size_t distance(const gwi_hash *hash, size_t slot)
{
    size_t home = home_of(hash, gwi_hash_u64(hash->entry[slot].key));

    return (slot - home) & (hash->n_slots - 1);
}

static size_t room(size_t n_slots)
{
    return n_slots / 4 * 3;
}

/* The slot of `key`, or the empty slot where its search ends.  Needs slots. */
static size_t search(const gwi_hash *hash, uint64_t key)
{
    uint64_t mixed = gwi_hash_u64(key);
    uint8_t tag = tag_of(mixed);
    size_t slot = home_of(hash, mixed);

    while (hash->tag[slot] != 0 && !(hash->tag[slot] == tag && hash->entry[slot].key == key))
        slot = after(hash, slot);
    return slot;
}

static void set_slot(gwi_hash *hash, size_t slot, gwi_hash_entry entry)
{
    hash->entry[slot] = entry;
    hash->tag[slot] = tag_of(gwi_hash_u64(entry.key));
}

static bool has_key(const gwi_hash *hash, uint64_t key, size_t *ret_slot)
{
    if (hash->count == 0)
        return false;

    size_t slot = search(hash, key);
    if (hash->tag[slot] == 0)
        return false;
    *ret_slot = slot;
    return true;
}

void gwi_hash_init(gwi_hash *hash)
{
    *hash = (gwi_hash){0};
}

void gwi_hash_fini(gwi_hash *hash)
{
    if (hash == NULL)
        return;
    free(hash->entry);
    gwi_hash_init(hash);
}

/* An empty table of `n_slots` slots. */
static int make(size_t n_slots, gwi_hash *ret_hash)
{
    size_t slot_bytes = sizeof(gwi_hash_entry) + sizeof(uint8_t);
    gwi_hash_entry *entry = malloc(n_slots * slot_bytes);

    if (entry == NULL)
        return gwi_fail(GW_ENOMEM, "hash table of %zu slots: no memory", n_slots);
    *ret_hash = (gwi_hash){.entry = entry, .tag = (uint8_t *)(entry + n_slots), .n_slots = n_slots};
    memset(ret_hash->tag, 0, n_slots);
    return 0;
}

static int grow(gwi_hash *hash, size_t n_slots)
{
    gwi_hash wider;

    int err = make(n_slots, &wider);
    if (err < 0)
        return err;
    for (size_t slot = 0; slot < hash->n_slots; slot++)
        if (hash->tag[slot] != 0)
            set_slot(&wider, search(&wider, hash->entry[slot].key), hash->entry[slot]);
    wider.count = hash->count;
    free(hash->entry);
    *hash = wider;
    assert(gwi_hash_valid(hash));
    return 0;
}

int gwi_hash_reserve(gwi_hash *hash, size_t n_entries)
{
    size_t n_slots = hash->n_slots > 0 ? hash->n_slots : MIN_SLOTS;

    /* 32 bytes cover an entry, its tag and more, so no product overflows. */
    if (n_entries > SIZE_MAX / 2 / 32 / 4 * 3)
        return gwi_fail(GW_ENOMEM, "hash table of %zu entries: more than memory can hold",
                        n_entries);
    while (room(n_slots) < n_entries)
        n_slots *= 2;
    return n_entries > room(hash->n_slots) ? grow(hash, n_slots) : 0;
}

int gwi_hash_put(gwi_hash *hash, uint64_t key, uint64_t value)
{
    size_t slot;

    if (has_key(hash, key, &slot)) {
        hash->entry[slot].value = value;
        return 0;
    }
    int err = gwi_hash_reserve(hash, hash->count + 1);
    if (err < 0)
        return err;
    set_slot(hash, search(hash, key), (gwi_hash_entry){key, value});
    hash->count++;
    assert(hash->n_slots > CHECKED_SLOTS || gwi_hash_valid(hash));
    return 0;
}

bool gwi_hash_get(const gwi_hash *hash, uint64_t key, uint64_t *ret_value)
{
    size_t slot;

    if (!has_key(hash, key, &slot))
        return false;
    if (ret_value != NULL)
        *ret_value = hash->entry[slot].value;
    return true;
}

uint64_t *gwi_hash_find(gwi_hash *hash, uint64_t key)
{
    size_t slot;

    return has_key(hash, key, &slot) ? &hash->entry[slot].value : NULL;
}

/* Empty the slot `hole`.  An entry further on moves into the hole if that does
 * not put it before its home; its own slot is then the hole (H3). */
static void close_gap(gwi_hash *hash, size_t hole)
{
    for (size_t slot = after(hash, hole); hash->tag[slot] != 0; slot = after(hash, slot)) {
        size_t to_hole = (slot - hole) & (hash->n_slots - 1);
        if (distance(hash, slot) >= to_hole) {
            hash->entry[hole] = hash->entry[slot];
            hash->tag[hole] = hash->tag[slot];
            hole = slot;
        }
    }
    hash->tag[hole] = 0;
}

bool gwi_hash_remove(gwi_hash *hash, uint64_t key, uint64_t *ret_value)
{
    size_t slot;

    if (!has_key(hash, key, &slot))
        return false;
    if (ret_value != NULL)
        *ret_value = hash->entry[slot].value;
    close_gap(hash, slot);
    hash->count--;
    assert(hash->n_slots > CHECKED_SLOTS || gwi_hash_valid(hash));
    return true;
}

void gwi_hash_clear(gwi_hash *hash)
{
    if (hash->n_slots > 0)
        memset(hash->tag, 0, hash->n_slots);
    hash->count = 0;
}

/* The cursor walks down from an empty slot.  Removing the entry it is at only
 * moves entries that lie above, up to the next empty slot, and those it has
 * given already: so none is skipped and none comes twice. */
gwi_hash_cursor gwi_hash_start(const gwi_hash *hash)
{
    size_t slot = 0;

    if (hash->count == 0)
        return (gwi_hash_cursor){0};
    while (hash->tag[slot] != 0)
        slot++;
    return (gwi_hash_cursor){.slot = slot, .left = hash->n_slots - 1};
}

bool gwi_hash_next(const gwi_hash *hash, gwi_hash_cursor *cursor, uint64_t *ret_key,
                   uint64_t *ret_value)
{
    while (cursor->left > 0) {
        cursor->left--;
        cursor->slot = before(hash, cursor->slot);
        if (hash->tag[cursor->slot] != 0) {
            *ret_key = hash->entry[cursor->slot].key;
            *ret_value = hash->entry[cursor->slot].value;
            return true;
        }
    }
    return false;
}

static bool slot_valid(const gwi_hash *hash, size_t slot)
{
    uint64_t mixed = gwi_hash_u64(hash->entry[slot].key);

    if (hash->tag[slot] != tag_of(mixed))
        return false; /* H2 */
    /* The search goes from the home to the first slot that is empty (H3) or
     * that has the key (H4). */
    return search(hash, hash->entry[slot].key) == slot;
}

bool gwi_hash_valid(const gwi_hash *hash)
{
    size_t used = 0;

    if (hash->n_slots == 0)
        return hash->count == 0 && hash->entry == NULL;
    if ((hash->n_slots & (hash->n_slots - 1)) != 0 || hash->count > room(hash->n_slots))
        return false; /* H1 */
    for (size_t slot = 0; slot < hash->n_slots; slot++)
        used += hash->tag[slot] != 0;
    if (used != hash->count)
        return false; /* H4; and the searches below end */
    for (size_t slot = 0; slot < hash->n_slots; slot++)
        if (hash->tag[slot] != 0 && !slot_valid(hash, slot))
            return false;
    return true;
}
