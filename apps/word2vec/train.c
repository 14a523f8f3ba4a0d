/* train.c - the training loop.
 *
 * The text goes by in blocks.  Of a block that is `ahead` blocks away, the keys of its words are
 * announced (gw_worker_intent) and its negatives are drawn and announced
 * (gw_worker_prepare_sample), for the clock at which its turn comes.  Then the vectors are here
 * already, wherever they were before:
 *
 *     rows   [ inputs of the block's words | their outputs | negatives ]      pulled
 *     trained, in memory of the worker's own
 *     rows now - rows before                                                  pushed, added to what
 * others pushed
 *
 * A step takes a word with its negatives as outputs, and the words around it as inputs.  A negative
 * that is drawn twice, or is a word of the block, has one row nevertheless. */
#include "word2vec.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LOSS_EVERY 64 /* words: the loss costs more than a step */

struct w2v_trainer {
    const w2v_options *options;
    gw_worker *worker;
    w2v_cutter cutter;
    int stride, rank;
    int64_t n_words;  /* of the vocabulary */
    w2v_block *queue; /* ahead + 1 blocks, of which n_queue wait, the first at `head` */
    int n_blocks, n_queue, head;
    float *rows, *before;
    float *spare;      /* a row that does not count */
    int64_t *drawn;    /* keys of a block's negatives */
    int32_t *negative; /* the rows of a block's negatives */
    int32_t *row;      /* by word: its row as an output, if stamp says that it is of this block */
    int32_t *stamp, current;
    uint64_t chance;
    int epoch;
    int64_t n_steps;
    w2v_progress progress;
};

static int negatives_of(const w2v_options *options, int n_words)
{
    int n = (int)((int64_t)n_words * options->negatives / options->share);

    return n > options->negatives ? n : options->negatives;
}

int w2v_trainer_new(const w2v_options *options, gw_worker *worker, const w2v_vocab *vocab,
                    const w2v_corpus *corpus, int rank, w2v_trainer **ret_trainer)
{
    w2v_trainer *t = w2v_allocate(1, sizeof *t);
    int n_negatives = negatives_of(options, options->block);
    size_t stride = (size_t)w2v_stride(options->dim);
    size_t n_rows = 2 * (size_t)options->block + (size_t)n_negatives;

    if (t == NULL)
        return -1;
    t->options = options;
    t->worker = worker;
    t->stride = (int)stride;
    t->rank = rank;
    t->n_words = vocab->n;
    t->rows = w2v_allocate(n_rows * stride, sizeof *t->rows);
    t->before = w2v_allocate(n_rows * stride, sizeof *t->before);
    t->spare = w2v_allocate(stride, sizeof *t->spare);
    t->drawn = w2v_allocate((size_t)n_negatives, sizeof *t->drawn);
    t->negative = w2v_allocate((size_t)n_negatives, sizeof *t->negative);
    t->row = w2v_allocate((size_t)vocab->n, sizeof *t->row);
    t->stamp = w2v_allocate((size_t)vocab->n, sizeof *t->stamp);
    t->queue = w2v_allocate((size_t)options->ahead + 1, sizeof *t->queue);
    bool whole = t->rows && t->before && t->spare && t->drawn && t->negative && t->row &&
                 t->stamp && t->queue &&
                 w2v_cutter_init(&t->cutter, vocab, corpus, options->block, options->sample) == 0;
    while (whole && t->n_blocks <= options->ahead) {
        whole = w2v_block_init(&t->queue[t->n_blocks], options->block, n_negatives) == 0;
        t->n_blocks += whole;
    }
    if (!whole) {
        w2v_trainer_free(t);
        return -1;
    }
    *ret_trainer = t;
    return 0;
}

void w2v_trainer_free(w2v_trainer *t)
{
    if (t == NULL)
        return;
    for (int i = 0; i < t->n_blocks; i++)
        w2v_block_fini(&t->queue[i]);
    w2v_cutter_fini(&t->cutter);
    free(t->queue);
    free(t->rows);
    free(t->before);
    free(t->spare);
    free(t->drawn);
    free(t->negative);
    free(t->row);
    free(t->stamp);
    free(t);
}

/* ---- announcing ---------------------------------------------------------------------------- */

static int announce(w2v_trainer *t, w2v_block *block, int64_t clock)
{
    gw_clocks when = {clock, clock + 1};
    gw_keys keys = {block->keys, 2 * (size_t)block->n_distinct};
    bool announced = t->options->ahead > 0;

    if (announced && w2v_check(gw_worker_intent(t->worker, keys, when.start, when.end)) < 0)
        return -1;
    block->n_negatives = negatives_of(t->options, block->n);
    return w2v_check(gw_worker_prepare_sample(t->worker, (size_t)block->n_negatives,
                                              announced ? &when : NULL, &block->sample));
}

/* Cut blocks until `ahead` are there behind the first. */
static int fill_queue(w2v_trainer *t)
{
    while (t->n_queue < t->n_blocks) {
        w2v_block *block = &t->queue[(t->head + t->n_queue) % t->n_blocks];
        if (!w2v_cutter_next(&t->cutter, block))
            break;
        if (announce(t, block, gw_worker_clock(t->worker) + t->n_queue) < 0)
            return -1;
        t->n_queue++;
    }
    return 0;
}

/* ---- a block ------------------------------------------------------------------------------- */

/* Each drawn key's row: that of the same word if there is one already, else its own. */
static void place_negatives(w2v_trainer *t, const w2v_block *block)
{
    int n = block->n_distinct;

    if (++t->current == INT32_MAX) {
        memset(t->stamp, 0, (size_t)t->n_words * sizeof *t->stamp);
        t->current = 1;
    }
    for (int i = 0; i < n; i++) {
        t->stamp[block->keys[i]] = t->current;
        t->row[block->keys[i]] = n + i;
    }
    for (int i = 0; i < block->n_negatives; i++) {
        int64_t word = t->drawn[i] - t->n_words;
        if (t->stamp[word] != t->current) {
            t->stamp[word] = t->current;
            t->row[word] = 2 * n + i;
        }
        t->negative[i] = t->row[word];
    }
}

static int pull(w2v_trainer *t, w2v_block *block)
{
    size_t stride = (size_t)t->stride, n = 2 * (size_t)block->n_distinct;
    size_t n_negatives = (size_t)block->n_negatives;
    gw_ticket words, negatives;

    /* Both are started before either is waited for: what is not here comes at the same time. */
    if (w2v_check(gw_worker_pull(t->worker, (gw_keys){block->keys, n}, t->rows, n * stride,
                                 &words)) < 0 ||
        w2v_check(gw_worker_pull_sample(t->worker, block->sample, t->drawn, n_negatives,
                                        t->rows + n * stride, n_negatives * stride, &negatives)) <
            0 ||
        w2v_check(gw_worker_wait(t->worker, words)) < 0 ||
        w2v_check(gw_worker_wait(t->worker, negatives)) < 0)
        return -1;
    memcpy(t->before, t->rows, (n + n_negatives) * stride * sizeof *t->rows);
    place_negatives(t, block);
    return 0;
}

static int push(w2v_trainer *t, w2v_block *block)
{
    size_t stride = (size_t)t->stride, n = 2 * (size_t)block->n_distinct, n_keys = n;

    for (int i = 0; i < block->n_negatives; i++) {
        if (t->negative[i] != (int)n + i)
            continue; /* another one's row */
        if (n_keys != n + (size_t)i) {
            memcpy(t->rows + n_keys * stride, t->rows + (n + (size_t)i) * stride,
                   stride * sizeof *t->rows);
            memcpy(t->before + n_keys * stride, t->before + (n + (size_t)i) * stride,
                   stride * sizeof *t->rows);
        }
        block->keys[n_keys++] = t->drawn[i];
    }
    float *restrict change = t->before;
    const float *restrict now = t->rows;
    for (size_t i = 0; i < n_keys * stride; i++)
        change[i] = now[i] - change[i];
    return w2v_check(
        gw_worker_push(t->worker, (gw_keys){block->keys, n_keys}, change, n_keys * stride, NULL));
}

/* The rows that a word is compared with: its own, which is the right one, then its negatives.  Of a
 * step they are different ones: what is there already does not count again.  Padded to whole steps.
 */
static int choose_outputs(const w2v_trainer *t, const w2v_block *block, int word,
                          float **ret_output, float *ret_goal)
{
    size_t stride = (size_t)t->stride;
    int n = 1 + t->options->negatives;
    int at = (int)((int64_t)word * t->options->negatives % block->n_negatives);

    ret_output[0] = t->rows + (size_t)(block->n_distinct + block->slot[word]) * stride;
    ret_goal[0] = 1;
    for (int k = 1; k < n; k++) {
        ret_output[k] = t->rows + (size_t)t->negative[at] * stride;
        ret_goal[k] = 0;
        at = at + 1 < block->n_negatives ? at + 1 : 0;
        for (int j = 0; j < k; j++)
            if (ret_output[j] == ret_output[k]) {
                ret_output[k] = t->spare;
                ret_goal[k] = -1;
            }
    }
    for (; n % W2V_OUTPUTS != 0; n++) {
        ret_output[n] = t->spare;
        ret_goal[n] = -1;
    }
    return n;
}

static void train_word(w2v_trainer *t, const w2v_block *block, int word, int first, int end,
                       float rate)
{
    float *input[2 * W2V_MOST_WINDOW], *output[1 + W2V_MOST_NEGATIVES + W2V_OUTPUTS];
    float goal[1 + W2V_MOST_NEGATIVES + W2V_OUTPUTS];
    int window = 1 + (int)w2v_below(&t->chance, (uint32_t)t->options->window);
    int n = 0;

    first = word - window > first ? word - window : first;
    end = word + window < end ? word + window + 1 : end;
    for (int i = first; i < end; i++)
        if (i != word)
            input[n++] = t->rows + (size_t)block->slot[i] * (size_t)t->stride;
    if (n == 0)
        return;
    int n_outputs = choose_outputs(t, block, word, output, goal);
    bool look = t->n_steps++ % LOSS_EVERY == 0;
    for (int k = 0; k < n_outputs; k += W2V_OUTPUTS)
        w2v_step(input, n, output + k, goal + k, t->stride, rate, look ? &t->progress.loss : NULL);
    t->progress.pairs += look ? n : 0;
}

/* The rate falls evenly from the first word of the first epoch to the last of the last. */
static float rate_now(const w2v_trainer *t)
{
    const w2v_options *options = t->options;
    double words = (double)(t->progress.words_of_all > 0 ? t->progress.words_of_all : 1);
    double done = (t->epoch - 1 + (double)t->progress.words / words) / options->epochs;
    double rate = options->rate * (1 - done);

    return (float)(rate > options->least_rate ? rate : options->least_rate);
}

static int train_block(w2v_trainer *t, w2v_block *block)
{
    float rate = rate_now(t);
    int word = 0;

    if (pull(t, block) < 0)
        return -1;
    for (int s = 0; s < block->n_sentences; s++)
        for (int first = word; word < block->end[s]; word++)
            train_word(t, block, word, first, block->end[s], rate);
    t->progress.words += block->n_raw;
    return push(t, block) < 0 ? -1 : w2v_check(gw_worker_advance_clock(t->worker));
}

/* ---- an epoch ------------------------------------------------------------------------------ */

int w2v_trainer_begin(w2v_trainer *t, int epoch)
{
    uint64_t seed = t->options->seed + (uint64_t)epoch * 0x10001 + (uint64_t)t->rank * 0x100000001u;

    t->epoch = epoch;
    t->chance = w2v_random(&seed);
    w2v_cutter_rewind(&t->cutter, w2v_random(&seed));
    t->progress = (w2v_progress){.words_of_all = t->cutter.corpus->n_words};
    return fill_queue(t);
}

int w2v_trainer_train(w2v_trainer *t, int64_t words, w2v_progress *ret_progress)
{
    int64_t limit = t->progress.words + words;

    while (t->n_queue > 0 && t->progress.words < limit) {
        if (train_block(t, &t->queue[t->head]) < 0)
            return -1;
        t->head = (t->head + 1) % t->n_blocks;
        t->n_queue--;
        if (fill_queue(t) < 0)
            return -1;
    }
    *ret_progress = t->progress;
    return t->n_queue > 0;
}

int w2v_trainer_end(w2v_trainer *t)
{
    for (; t->n_queue > 0; t->n_queue--, t->head = (t->head + 1) % t->n_blocks)
        if (w2v_check(gw_worker_finish_sample(t->worker, t->queue[t->head].sample)) < 0)
            return -1;
    return w2v_check(gw_worker_wait_all(t->worker));
}
