/* intents.h - what a worker said it will need, in the order of time.
 *
 * An intent begins when the worker's clock comes near its start and ends when the clock
 * reaches its end.                                                                   */
#ifndef GWI_PARAMS_INTENTS_H
#define GWI_PARAMS_INTENTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct gwi_intent {
    int64_t start, end;
    size_t n;
    int64_t *keys; /* owned */
} gwi_intent;

/* Heaps: the one that starts, or ends, first is first. */
typedef struct gwi_intents {
    gwi_intent *to_come, *in_force; /* owned */
    size_t n_to_come, n_in_force, room_to_come, room_in_force;
} gwi_intents;

void gwi_intents_fini(gwi_intents *intents);

/* `keys` is copied. */
int gwi_intents_add(gwi_intents *intents, const int64_t *keys, size_t n, int64_t start,
                    int64_t end);

/* An intent that starts before `clock`, which is in force then; NULL: none.  Borrowed until
 * the next call. */
int gwi_intents_begin(gwi_intents *intents, int64_t clock, const gwi_intent **ret_intent);

/* One whose end is not after `clock`.  The caller frees its keys. */
int gwi_intents_end(gwi_intents *intents, int64_t clock, gwi_intent *ret_intent);

#endif
