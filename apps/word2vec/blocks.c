/* blocks.c - cutting a share of the text into blocks.
 *
 * A block is made of whole sentences.  Only one that is longer than a block is cut, and then words
 * on the two sides of the cut are not seen together. */
#include "word2vec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int w2v_cutter_init(w2v_cutter *cutter, const w2v_vocab *vocab, const w2v_corpus *corpus, int block,
                    double sample)
{
    size_t n = (size_t)vocab->n;

    *cutter = (w2v_cutter){.corpus = corpus, .n_words = vocab->n, .block = block};
    cutter->keep = w2v_allocate(n, sizeof *cutter->keep);
    cutter->place = w2v_allocate(n, sizeof *cutter->place);
    cutter->stamp = w2v_allocate(n, sizeof *cutter->stamp);
    cutter->pending = w2v_allocate((size_t)block, sizeof *cutter->pending);
    if (!cutter->keep || !cutter->place || !cutter->stamp || !cutter->pending) {
        w2v_cutter_fini(cutter);
        return -1;
    }
    for (int64_t w = 0; w < vocab->n; w++) {
        double rare = sample * (double)corpus->n_words_of_all / (double)vocab->count[w];
        double share = sample > 0 ? sqrt(rare) + rare : 1;
        cutter->keep[w] = share >= 1 ? UINT32_MAX : (uint32_t)(share * UINT32_MAX);
    }
    return 0;
}

void w2v_cutter_fini(w2v_cutter *cutter)
{
    free(cutter->keep);
    free(cutter->place);
    free(cutter->stamp);
    free(cutter->pending);
    *cutter = (w2v_cutter){0};
}

void w2v_cutter_rewind(w2v_cutter *cutter, uint64_t seed)
{
    cutter->at = 0;
    cutter->n_pending = 0;
    cutter->raw_pending = 0;
    cutter->chance = seed;
}

int w2v_block_init(w2v_block *block, int n_words, int n_negatives)
{
    *block = (w2v_block){0};
    block->slot = w2v_allocate((size_t)n_words, sizeof *block->slot);
    block->end = w2v_allocate((size_t)n_words, sizeof *block->end);
    block->keys = w2v_allocate(2 * (size_t)n_words + (size_t)n_negatives, sizeof *block->keys);
    if (block->slot != NULL && block->end != NULL && block->keys != NULL)
        return 0;
    w2v_block_fini(block);
    return -1;
}

void w2v_block_fini(w2v_block *block)
{
    free(block->slot);
    free(block->end);
    free(block->keys);
    *block = (w2v_block){0};
}

/* The next sentence, without the words that chance leaves out, goes to `pending`; at most a block
 * of it.  0 at the end of the text. */
static int next_sentence(w2v_cutter *cutter)
{
    const w2v_corpus *corpus = cutter->corpus;

    if (cutter->n_pending > 0)
        return 1;
    while (cutter->at < corpus->n && cutter->n_pending < cutter->block) {
        int32_t word = corpus->word[cutter->at++];
        if (word == W2V_END) {
            if (cutter->n_pending > 1)
                break;
            cutter->n_pending = 0; /* a word alone teaches nothing */
            continue;
        }
        cutter->raw_pending++;
        if ((uint32_t)w2v_random(&cutter->chance) <= cutter->keep[word])
            cutter->pending[cutter->n_pending++] = word;
    }
    return cutter->n_pending > 0;
}

static int32_t slot_of(w2v_cutter *cutter, w2v_block *block, int32_t word)
{
    if (cutter->stamp[word] != cutter->current) {
        cutter->stamp[word] = cutter->current;
        cutter->place[word] = block->n_distinct;
        block->keys[block->n_distinct++] = word;
    }
    return cutter->place[word];
}

int w2v_cutter_next(w2v_cutter *cutter, w2v_block *block)
{
    block->n = block->n_distinct = block->n_sentences = 0;
    block->n_raw = 0;
    if (++cutter->current == INT32_MAX) {
        memset(cutter->stamp, 0, (size_t)cutter->n_words * sizeof *cutter->stamp);
        cutter->current = 1;
    }
    while (next_sentence(cutter) && block->n + cutter->n_pending <= cutter->block) {
        for (int i = 0; i < cutter->n_pending; i++)
            block->slot[block->n++] = slot_of(cutter, block, cutter->pending[i]);
        block->end[block->n_sentences++] = block->n;
        block->n_raw += cutter->raw_pending;
        cutter->n_pending = 0;
        cutter->raw_pending = 0;
    }
    for (int i = 0; i < block->n_distinct; i++)
        block->keys[block->n_distinct + i] = cutter->n_words + block->keys[i];
    return block->n > 0;
}
