/* deadlines.c - a list that is gone through whole: it is short, or gone through rarely. */
#include "params/deadlines.h"
#include "base/error.h"

#include <stdlib.h>

void gwi_deadlines_fini(gwi_deadlines *list)
{
    free(list->at);
    *list = (gwi_deadlines){0};
}

int gwi_deadlines_add(gwi_deadlines *list, int64_t at_ns, int64_t key)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        gwi_deadline *grown = realloc(list->at, capacity * sizeof *grown);
        if (grown == NULL)
            return gwi_fail(GW_ENOMEM, "%zu deadlines", capacity);
        list->at = grown;
        list->capacity = capacity;
    }
    if (list->n == 0 || at_ns < list->first_ns)
        list->first_ns = at_ns;
    list->at[list->n++] = (gwi_deadline){at_ns, key};
    return 0;
}

void gwi_deadlines_take(gwi_deadlines *list, int64_t now_ns, int (*take)(void *ctx, int64_t key),
                        void *ctx)
{
    size_t n_left = 0;

    list->first_ns = INT64_MAX;
    for (size_t i = 0; i < list->n; i++) {
        gwi_deadline d = list->at[i];
        if (d.at_ns <= now_ns && take(ctx, d.key))
            continue;
        list->first_ns = d.at_ns < list->first_ns ? d.at_ns : list->first_ns;
        list->at[n_left++] = d;
    }
    list->n = n_left;
}
