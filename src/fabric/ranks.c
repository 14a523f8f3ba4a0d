/* ranks.c - ranks in words. */
#include "fabric/ranks.h"

#include <stdio.h>

const char *gwi_ranks_text(const int *ranks, int n_total, char *text, size_t room)
{
    int shown = n_total < GWI_RANKS_SHOWN ? n_total : GWI_RANKS_SHOWN;
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < shown && used < room; i++) {
        const char *between = i == 0 ? "" : i == n_total - 1 ? " and " : ", ";
        used += (size_t)snprintf(text + used, room - used, "%srank %d", between, ranks[i]);
    }
    if (n_total > shown && used < room)
        snprintf(text + used, room - used, " and %d more", n_total - shown);
    return text;
}
