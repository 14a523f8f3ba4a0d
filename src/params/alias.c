/* alias.c - sharing out cells: who has too little for its own is paired with who has too much. */
#include "params/alias.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

#define WHOLE 0x1p32

static size_t heaviest(const double *weights, size_t n)
{
    size_t most = 0;

    for (size_t i = 1; i < n; i++)
        most = weights[i] > weights[most] ? i : most;
    return most;
}

/* Divided by the largest, so that no sum overflows; what small ones lose in rounding is kept and
 * added again. */
static double sum_of(const double *weights, size_t n, double largest)
{
    double sum = 0, lost = 0;

    for (size_t i = 0; i < n; i++) {
        double part = weights[i] / largest - lost, more = sum + part;
        lost = more - sum - part;
        sum = more;
    }
    return sum;
}

/* What has weight keeps at least the least share there is. */
static uint32_t share_of(double part, double weight)
{
    double share = weight > 0 ? fmax(1, nearbyint(part * WHOLE)) : 0;

    return share >= WHOLE - 1 ? UINT32_MAX : (uint32_t)share;
}

int gwi_alias_build(gwi_alias_cell *cells, const double *weights, size_t n)
{
    size_t most = heaviest(weights, n), n_poor = 0, n_rich = 0;
    double sum = sum_of(weights, n, weights[most]);
    double *has = malloc(n * sizeof *has); /* of each number; a cell is 1 */
    uint32_t *list = malloc(n *
                            sizeof *list); /* those with less than 1, and from its end the others */

    if (has == NULL || list == NULL) {
        free(list);
        free(has);
        return gwi_fail(GW_ENOMEM, "a table of %zu weights", n);
    }
    for (size_t i = 0; i < n; i++) {
        has[i] = weights[i] / weights[most] * ((double)n / sum);
        if (has[i] < 1)
            list[n_poor++] = (uint32_t)i;
        else
            list[n - ++n_rich] = (uint32_t)i;
    }
    while (n_poor > 0 && n_rich > 0) {
        uint32_t poor = list[--n_poor], rich = list[n - n_rich];
        cells[poor] = (gwi_alias_cell){share_of(has[poor], weights[poor]), rich};
        has[rich] = has[rich] + has[poor] - 1;
        if (has[rich] < 1) {
            n_rich--;
            list[n_poor++] = rich;
        }
    }
    for (; n_rich > 0; n_rich--)
        cells[list[n - n_rich]] = (gwi_alias_cell){UINT32_MAX, list[n - n_rich]};
    /* By rounding some of the poor may be left over.  They have nearly 1, or no weight at all. */
    while (n_poor > 0) {
        uint32_t poor = list[--n_poor];
        cells[poor] = (gwi_alias_cell){share_of(has[poor], weights[poor]), (uint32_t)most};
    }
    free(list);
    free(has);
    return 0;
}

void gwi_alias_weights(const gwi_alias_cell *cells, size_t n, double *ret_weights)
{
    for (size_t i = 0; i < n; i++)
        ret_weights[i] = 0;
    for (size_t i = 0; i < n; i++) {
        double own = cells[i].other == i ? 1 : cells[i].own / WHOLE;
        ret_weights[i] += own;
        ret_weights[cells[i].other] += 1 - own;
    }
}
