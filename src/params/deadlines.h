/* deadlines.h - keys that must be looked at by some time, in no order.
 *
 * A key may be in it several times; whoever takes it knows whether a deadline still says anything.
 */
#ifndef GWI_PARAMS_DEADLINES_H
#define GWI_PARAMS_DEADLINES_H

#include <stddef.h>
#include <stdint.h>

typedef struct gwi_deadline {
    int64_t at_ns, key;
} gwi_deadline;

/* All 0: empty. */
typedef struct gwi_deadlines {
    gwi_deadline *at; /* owned */
    size_t n, capacity;
    int64_t first_ns; /* nothing is before that, if there is anything */
} gwi_deadlines;

void gwi_deadlines_fini(gwi_deadlines *list);

/* 0 or GW_ENOMEM. */
int gwi_deadlines_add(gwi_deadlines *list, int64_t at_ns, int64_t key);

/* Hand those up to `now_ns` to `take`, which adds none; one that it returns 0 for stays, as all
 * others do. */
void gwi_deadlines_take(gwi_deadlines *list, int64_t now_ns, int (*take)(void *ctx, int64_t key),
                        void *ctx);

#endif
