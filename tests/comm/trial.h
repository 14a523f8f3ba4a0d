/* trial.h - a collective call drawn by lot, and what must come of it.
 *
 * Every rank draws the same trial from the same seed, knows the inputs of all ranks, and
 * works out its own output by itself, entry by entry, with none of the library's ways of
 * cutting and combining.                                                          */
#ifndef GWI_TESTS_COMM_TRIAL_H
#define GWI_TESTS_COMM_TRIAL_H

#include "base/random.h"

#include <godwit/comm.h>

#include <stddef.h>
#include <stdint.h>

#define MAX_RANKS 64
#define TRIAL_DIMS 4

/* What a trial may be. */
struct range {
    int size;           /* ranks */
    int64_t longest;    /* axis */
    gw_collective kind; /* GW_N_COLLECTIVES: any */
    gw_dtype dtype;     /* GW_N_DTYPES: any */
};

struct trial {
    uint64_t seed; /* of the inputs */
    int size;
    gw_collective kind;
    gw_op op;
    gw_dtype dtype;
    int root, axis, axis2;
    int n_dims;
    int64_t shape[TRIAL_DIMS]; /* but for the axes that differ */
    int64_t length[MAX_RANKS]; /* along `axis`, where it differs */
    int64_t count[MAX_RANKS];  /* of the axis that is cut */
    int same_memory;           /* input and output are */
    int in_two_steps;
};

void trial_draw(struct trial *t, gwi_random *random, const struct range *range);
void trial_describe(const struct trial *t, char *text, size_t room);

/* The shape of a rank's input or output, and its number of entries. */
int64_t trial_input_shape(const struct trial *t, int rank, int64_t *ret_shape);
int64_t trial_output_shape(const struct trial *t, int rank, int64_t *ret_shape);

size_t entry_bytes(gw_dtype dtype);

/* Whether outputs have the shape of inputs, so that they may be the same memory. */
int trial_keeps_shape(const struct trial *t);

/* The input of a rank, and its output; both allocated. */
void *trial_input(const struct trial *t, int rank);
void *trial_output(const struct trial *t, int rank);

/* The first entry in which the two differ, or -1.  NaNs are equal to each other. */
int64_t trial_compare(const struct trial *t, const void *expected, const void *got, int64_t n);

/* The bytes of an entry, for messages. */
void entry_text(gw_dtype dtype, const void *array, int64_t index, char *text, size_t room);

#endif
