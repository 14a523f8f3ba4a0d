/* chi_test.h - whether counts are as a distribution has it.
 *
 * Seeds are fixed, so a test gives the same each time.  A normal variable is beyond 3.5 once in
 * 2,000 times; counts that fit too well are as suspicious as those that do not.          */
#ifndef GWI_PARAMS_CHI_TEST_H
#define GWI_PARAMS_CHI_TEST_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define CHI_LIMIT 3.5

/* Pearson's statistic, as the normal variable to which Wilson and Hilferty relate it.  `weights`
 * are the expected counts but for a factor.  `uses`: how often each independent draw was counted;
 * that makes the statistic so many times as large.  Neighbours are put together until 10
 * independent draws are expected of them.  What is not possible must not be there: infinity. */
static inline double chi_normal(const double *weights, const int64_t *counts, size_t n,
                                int64_t uses)
{
    double weight = 0, total = 0, chi = 0, expected = 0, found = 0;
    int bins = 0;

    for (size_t i = 0; i < n; i++) {
        weight += weights[i];
        total += (double)counts[i];
        if (weights[i] <= 0 && counts[i] > 0)
            return INFINITY;
    }
    for (size_t i = 0; i < n; i++) {
        expected += weights[i] / weight * total;
        found += (double)counts[i];
        if (expected < 10 * (double)uses && i + 1 < n)
            continue;
        chi += expected > 0 ? (found - expected) * (found - expected) / expected : 0;
        bins += expected > 0;
        expected = found = 0;
    }
    double k = bins - 1, x = chi / (double)uses;
    return (cbrt(x / k) - (1 - 2 / (9 * k))) / sqrt(2 / (9 * k));
}

#endif
