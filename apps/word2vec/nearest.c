/* nearest.c - questions to vectors: which words are near, and what is to c as b is to a. */
#include "word2vec.h"

#include <math.h>

static float product(const float *a, const float *b, int dim)
{
    float sum = 0;

    for (int d = 0; d < dim; d++)
        sum += a[d] * b[d];
    return sum;
}

void w2v_normalize(float *row, int64_t n, int dim)
{
    for (int64_t w = 0; w < n; w++, row += dim) {
        float length = sqrtf(product(row, row, dim));
        for (int d = 0; d < dim; d++)
            row[d] /= length > 0 ? length : 1;
    }
}

int w2v_nearest(const float *row, int64_t n, int dim, int64_t word, int most, int64_t *ret_words,
                float *ret_cosines)
{
    int found = 0;

    for (int64_t w = 0; w < n && most > 0; w++) {
        float cosine = product(row + w * dim, row + word * dim, dim);
        if (w == word || (found == most && cosine <= ret_cosines[found - 1]))
            continue;
        int at = found < most ? found++ : found - 1;
        for (; at > 0 && ret_cosines[at - 1] < cosine; at--) {
            ret_cosines[at] = ret_cosines[at - 1];
            ret_words[at] = ret_words[at - 1];
        }
        ret_cosines[at] = cosine;
        ret_words[at] = w;
    }
    return found;
}

int64_t w2v_analogy(const float *row, int64_t n, int dim, int64_t a, int64_t b, int64_t c)
{
    const float *row_a = row + a * dim, *row_b = row + b * dim, *row_c = row + c * dim;
    int64_t best = -1;
    float best_score = 0;

    for (int64_t w = 0; w < n; w++) {
        const float *x = row + w * dim;
        float score = 0;
        for (int d = 0; d < dim; d++)
            score += x[d] * (row_b[d] - row_a[d] + row_c[d]);
        if (w != a && w != b && w != c && (best < 0 || score > best_score)) {
            best = w;
            best_score = score;
        }
    }
    return best;
}
