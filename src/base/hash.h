/* hash.h - hash functions, and a table from 64-bit keys to 64-bit values.
 *
 * The table uses open addressing.  A removal shifts the entries behind it back
 * instead of leaving a mark, so a table that lives long stays as fast as a new
 * one.  All keys and values are allowed; a pointer goes in as a uintptr_t.
 *
 * Owning   The struct is the caller's, the memory behind it the table's.
 * Failing  Only reserve and put can fail, with GW_ENOMEM; the table is then as
 *          it was.  A put within what was reserved cannot fail.
 * Threads  Not safe: one thread at a time, or the caller's lock around it.
 * Sharing  Private to a process: it holds addresses.                         */
#ifndef GWI_BASE_HASH_H
#define GWI_BASE_HASH_H

#include <godwit/base.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 2^64 divided by the golden ratio: the step of the splitmix64 sequence. */
#define GWI_HASH_STEP UINT64_C(0x9e3779b97f4a7c15)

/* Mix 64 bits: each bit of `x` changes each bit of the result with probability
 * one half.  No two numbers have the same result.  This is the first output of
 * splitmix64 with the seed `x`, so it never changes between versions. */
static inline uint64_t gwi_hash_u64(uint64_t x)
{
    x += GWI_HASH_STEP;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Hash `len_bytes` bytes.  The same on every machine and in every version, so
 * that names may be made from it.  Not safe against someone who looks for
 * collisions on purpose.  `bytes` may be NULL if there are none. */
uint64_t gwi_hash_bytes(const void *bytes, size_t len_bytes, uint64_t seed);

typedef struct gwi_hash_entry {
    uint64_t key;
    uint64_t value;
} gwi_hash_entry;

typedef struct gwi_hash {
    gwi_hash_entry *entry; /* n_slots of them, or NULL; owned */
    uint8_t *tag;          /* 0: the slot is empty; in the same allocation */
    size_t n_slots;        /* 0 or a power of two */
    size_t count;
} gwi_hash;

/* An empty table needs no memory, so init cannot fail.  A struct of zeros is an
 * empty table too.  After fini it is an empty table again. */
void gwi_hash_init(gwi_hash *hash);
void gwi_hash_fini(gwi_hash *hash);

/* Make room, so that no put fails while the table has at most `n_entries`. */
int gwi_hash_reserve(gwi_hash *hash, size_t n_entries);

/* Enter `key`, or give it a new value if it is there. */
int gwi_hash_put(gwi_hash *hash, uint64_t key, uint64_t value);

/* Whether `key` is there, and its value.  `ret_value` may be NULL. */
bool gwi_hash_get(const gwi_hash *hash, uint64_t key, uint64_t *ret_value);

/* The place of the key's value, to change it there, or NULL.  Borrowed until
 * the next put, reserve or remove. */
uint64_t *gwi_hash_find(gwi_hash *hash, uint64_t key);

/* Take `key` out; returns whether it was there.  `ret_value` may be NULL. */
bool gwi_hash_remove(gwi_hash *hash, uint64_t key, uint64_t *ret_value);

/* Take everything out, and keep the memory. */
void gwi_hash_clear(gwi_hash *hash);

/* Give every entry once, in no useful order:
 *
 *     gwi_hash_cursor cursor = gwi_hash_start(&hash);
 *     while (gwi_hash_next(&hash, &cursor, &key, &value))
 *
 * Inside the loop the entry just given may be removed; no other change is
 * allowed but new values for keys that are there. */
typedef struct gwi_hash_cursor {
    size_t slot; /* looked at last */
    size_t left; /* slots to look at */
} gwi_hash_cursor;

gwi_hash_cursor gwi_hash_start(const gwi_hash *hash);
bool gwi_hash_next(const gwi_hash *hash, gwi_hash_cursor *cursor, uint64_t *ret_key,
                   uint64_t *ret_value);

/* Check the rules that hash.c lists; takes time in proportion to the table. */
bool gwi_hash_valid(const gwi_hash *hash);

#endif
