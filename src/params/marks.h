/* marks.h - which keys have changed: a set that anybody adds to and one empties.
 *
 * A bit a key, and above it bits that say which words of the level below have any, up to a
 * level of one word or few.  To go through the marked keys costs in proportion to them,
 * not to all keys.
 *
 * Owning   The memory is the caller's; it may be shared, and is zero at the start.
 * Threads  Marking: any thread of any process.  Taking: one at a time.  A key that is
 *          marked while it is taken is taken now or the next time, never forgotten.
 * Dying    If a process dies in marking, a key may be marked below and not above, where nobody
 *          finds it until a key of the same word, that one or another, is marked.      */
#ifndef GWI_PARAMS_MARKS_H
#define GWI_PARAMS_MARKS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define GWI_MARKS_LEVELS 6 /* 64^6 keys */

typedef struct gwi_marks {
    int n_levels;
    _Atomic uint64_t *level[GWI_MARKS_LEVELS]; /* [0]: the keys; borrowed */
    size_t n_words[GWI_MARKS_LEVELS];
} gwi_marks;

size_t gwi_marks_bytes(int64_t n_keys);
void gwi_marks_init(gwi_marks *marks, int64_t n_keys, void *memory);

void gwi_marks_add(gwi_marks *marks, int64_t key);

/* One that will be marked soon: get its place on its way from memory. */
static inline void gwi_marks_fetch(const gwi_marks *marks, int64_t key)
{
    __builtin_prefetch(marks->level[0] + key / 64, 1, 2);
}

/* Call `take` for every marked key, which is then no longer marked; it may be marked again
 * meanwhile. */
void gwi_marks_take(gwi_marks *marks, void (*take)(void *ctx, int64_t key), void *ctx);

/* The same for the first `most` of them, `from` this key on.  Returns the key from which to go on;
 * -1: there were no more. */
int64_t gwi_marks_take_some(gwi_marks *marks, int64_t from, size_t most,
                            void (*take)(void *ctx, int64_t key), void *ctx);

int gwi_marks_has(const gwi_marks *marks, int64_t key);
int gwi_marks_any(const gwi_marks *marks);

#endif
