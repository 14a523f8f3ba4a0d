/* ranks.h - a set of ranks in words: "rank 2", "ranks 0, 2 and 5". */
#ifndef GWI_FABRIC_RANKS_H
#define GWI_FABRIC_RANKS_H

#include <stddef.h>

#define GWI_RANKS_SHOWN 8 /* beyond: "... and 12 more" */

/* Write the list into `text`.  `ranks` holds the first of `n_total`, at least
 * the smaller of n_total and GWI_RANKS_SHOWN.  The words "rank N" of the first
 * one always appear.  Returns `text`. */
const char *gwi_ranks_text(const int *ranks, int n_total, char *text, size_t room);

#endif
