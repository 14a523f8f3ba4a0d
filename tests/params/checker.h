/* checker.h - whether what the workers saw of one key can have happened in one order.
 *
 * A history is what some workers did to one key: each worker's pulls, pushes and sets, in
 * the order of its calls.  It is sequentially consistent if there is one order of all of
 * them that keeps each worker's own and in which every pull gets what a plain variable
 * would have held then.  Nothing is known of where the key was meanwhile, nor of time.
 *
 * Values describe themselves, so that a pull tells which pushes it saw since which set.  A
 * vector has 2 x workers + 1 entries:
 *
 *     push number p of worker w     adds 1 to entry 2w and p to entry 2w + 1
 *     set number id                 assigns id to the last entry and 0 to the others
 *
 * Pushes of a worker are numbered from 1, as are all sets of the key; each set has a number
 * of its own.  Before the first one the key is as if set by number 0.                     */
#ifndef GWI_TESTS_PARAMS_CHECKER_H
#define GWI_TESTS_PARAMS_CHECKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECKER_MAX_WORKERS 32

struct history;

struct history *history_new(int n_workers);
void history_free(struct history *h); /* NULL is fine */

size_t history_entries(int n_workers); /* of a vector */

/* What to push or set; `ret_vector` has history_entries(). */
void history_push_vector(int n_workers, int worker, int64_t number, double *ret_vector);
void history_set_vector(int n_workers, int64_t id, double *ret_vector);

/* The worker's next operation on the key. */
void history_add_push(struct history *h, int worker);
void history_add_set(struct history *h, int worker, int64_t id);
void history_add_pull(struct history *h, int worker, const double *vector);

/* Whether some order explains all; if not, `ret_reason` gets a sentence. */
bool history_check(struct history *h, char *ret_reason, size_t room);

#endif
