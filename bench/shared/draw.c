/* draw.c - random keys. */
#include "draw.h"

#include <stdio.h>
#include <stdlib.h>

uint64_t draw_random(uint64_t *state)
{
    uint64_t x = (*state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static double unit(uint64_t *state)
{
    return (double)(draw_random(state) >> 11) * 0x1p-53;
}

static void *get(size_t n_bytes)
{
    void *found = malloc(n_bytes);

    if (found == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", n_bytes);
        exit(1);
    }
    return found;
}

static void draw_zipf(draw *d, int64_t n_keys, uint64_t ranks_seed, uint64_t *state)
{
    double *upto = get((size_t)n_keys * sizeof *upto); /* weight of the first ranks */
    int32_t *key_of = get((size_t)n_keys * sizeof *key_of);
    double sum = 0;

    for (int64_t r = 0; r < n_keys; r++) {
        sum += 1.0 / (double)(r + 1);
        upto[r] = sum;
        int64_t other = (int64_t)(draw_random(&ranks_seed) % (uint64_t)(r + 1));
        key_of[r] = key_of[other];
        key_of[other] = (int32_t)r;
    }
    for (size_t i = 0; i < d->n; i++) {
        double wanted = unit(state) * sum;
        int64_t low = 0, high = n_keys - 1;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (upto[middle] < wanted)
                low = middle + 1;
            else
                high = middle;
        }
        d->keys[i] = key_of[low];
    }
    free(key_of);
    free(upto);
}

void draw_init(draw *d, draw_options opt)
{
    uint64_t state = opt.seed;

    *d = (draw){.keys = get(opt.n * sizeof *d->keys), .n = opt.n};
    if (opt.zipf)
        draw_zipf(d, opt.n_keys, opt.ranks_seed, &state);
    else
        for (size_t i = 0; i < d->n; i++)
            d->keys[i] = (int32_t)(draw_random(&state) % (uint64_t)opt.n_keys);
}

void draw_fini(draw *d)
{
    free(d->keys);
    *d = (draw){0};
}

void draw_next(draw *d, int64_t *ret_keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ret_keys[i] = d->keys[d->at + i];
    d->at = (d->at + n) % d->n;
}
