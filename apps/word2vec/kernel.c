/* kernel.c - the arithmetic of a step.
 *
 * All words around one are inputs, and they share its negatives; so a step is three small products
 * of matrices, inputs by outputs, which read each row from memory once and keep sums in registers.
 * It is written for vectors of eight entries, which the compiler turns into what the processor has.
 */
#include "word2vec.h"

#include <math.h>
#include <string.h>

enum { LANES = 8, TILE = W2V_OUTPUTS };

typedef float vec __attribute__((vector_size(LANES * sizeof(float))));
typedef float half __attribute__((vector_size(LANES / 2 * sizeof(float))));

static inline float sum_of(vec v)
{
    half part[2];

    memcpy(part, &v, sizeof v);
    half s = part[0] + part[1];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* Products of two inputs with all outputs: twelve sums in registers. */
static inline void score_two(const float *a, const float *b, float *const *output, int stride,
                             float *ret_a, float *ret_b)
{
    vec sum_a[TILE] = {{0}}, sum_b[TILE] = {{0}};

    for (int d = 0; d < stride; d += LANES) {
        vec x = *(const vec *)(a + d), y = *(const vec *)(b + d);
#pragma GCC unroll 8
        for (int k = 0; k < TILE; k++) {
            vec o = *(const vec *)(output[k] + d);
            sum_a[k] += x * o;
            sum_b[k] += y * o;
        }
    }
#pragma GCC unroll 8
    for (int k = 0; k < TILE; k++) {
        ret_a[k] = sum_of(sum_a[k]);
        ret_b[k] = sum_of(sum_b[k]);
    }
}

/* 1 / (1 + exp(-x)), to about six digits and without a call, so that the loop around it becomes one
 * of vectors: 2^y is made of its whole part, which is an exponent, and a polynomial for the rest.
 */
static inline float sigmoid(float x)
{
    float y = x * -1.44269504f;
    y = y > 80 ? 80 : y < -80 ? -80 : y;
    int32_t whole = (int32_t)(y + 128.0f) - 128; /* rounds down: the sum is positive */
    float f = y - (float)whole;
    float power = 1 + f * (0.69314718f +
                           f * (0.24022651f +
                                f * (0.05550411f +
                                     f * (0.00961813f + f * (0.00133336f + f * 0.00015469f)))));
    union {
        int32_t bits;
        float value;
    } scale = {.bits = (whole + 127) * (1 << 23)};
    return 1 / (1 + power * scale.value);
}

/* -log(sigmoid(score)) of the right one, -log(1 - sigmoid(score)) of others. */
static double loss_of(const float *score, const float *goal, int n)
{
    double sum = 0;

    for (int i = 0; i < n * TILE; i++)
        if (goal[i % TILE] >= 0)
            sum += log1p(exp(goal[i % TILE] > 0 ? -(double)score[i] : (double)score[i]));
    return sum;
}

/* What scores become: by how much a row is to be added to the other. */
static void steps_of(float *score, const float *goal, int n, float rate)
{
    float rates[TILE], goals[TILE];

    for (int k = 0; k < TILE; k++) {
        rates[k] = goal[k] < 0 ? 0 : rate;
        goals[k] = goal[k] < 0 ? 0 : goal[k];
    }
    for (int i = 0; i < n * TILE; i++)
        score[i] = sigmoid(score[i]);
    for (int c = 0; c < n; c++)
        for (int k = 0; k < TILE; k++)
            score[c * TILE + k] = (goals[k] - score[c * TILE + k]) * rates[k];
}

void w2v_step(float *const *input, int n, float *const *output, const float *goal, int stride,
              float rate, double *ret_loss)
{
    float step[(2 * W2V_MOST_WINDOW + 1) * TILE];

    for (int c = 0; c < n; c += 2) /* of an odd number, the last one twice */
        score_two(input[c], input[c + 1 < n ? c + 1 : c], output, stride, step + c * TILE,
                  step + (c + 1) * TILE);
    if (ret_loss != NULL)
        *ret_loss += loss_of(step, goal, n);
    steps_of(step, goal, n, rate);

    for (int d = 0; d < stride; d += LANES) {
        vec o[TILE], sum[TILE];
#pragma GCC unroll 8
        for (int k = 0; k < TILE; k++)
            sum[k] = o[k] = *(const vec *)(output[k] + d);
        for (int c = 0; c < n; c++) {
            vec x = *(const vec *)(input[c] + d), change = x;
#pragma GCC unroll 8
            for (int k = 0; k < TILE; k++) {
                float g = step[c * TILE + k];
                change += g * o[k];
                sum[k] += g * x;
            }
            *(vec *)(input[c] + d) = change;
        }
#pragma GCC unroll 8
        for (int k = 0; k < TILE; k++)
            *(vec *)(output[k] + d) = sum[k];
    }
}
