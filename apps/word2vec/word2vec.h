/* word2vec.h - word vectors by skip-gram with negative sampling, on Godwit's C API.
 *
 * What lies where   A word has two vectors, and each is a key of the parameters: key w has the
 *                   vector of word w as an input, the one that people want; key n_words + w its
 *                   vector as an output, which is needed for training alone.  A vector's length is
 *                   rounded up to a multiple of 8; what is beyond `dim` is always zero.
 * Owning            What a function gives is freed by the one that rhymes with it.
 * Failing           A function that returns int returns -1 if it failed, and w2v_error() says why.
 * Threads           One thread of each process.  Functions marked "collective" are called by all
 *                   processes of the job, in the same order.                                     */
#ifndef WORD2VEC_H
#define WORD2VEC_H

#include <godwit/params.h>

#include <stddef.h>
#include <stdint.h>

/* ---- errors: job.c ------------------------------------------------------------------------ */

const char *w2v_error(void);

/* Record a sentence; returns -1. */
int w2v_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The result of a call of Godwit: if it failed, its sentence becomes ours.  0 or -1. */
int w2v_check(int result);

/* Memory that begins as zeros, for 64-byte vectors; NULL with a sentence. */
void *w2v_allocate(size_t n, size_t size);

/* ---- random numbers ----------------------------------------------------------------------- */

/* Steps of a 64-bit counter, stirred: short, and any seed is as good as another. */
static inline uint64_t w2v_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* From 0 to n - 1; n is below 2^32. */
static inline uint32_t w2v_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(((w2v_random(state) >> 32) * n) >> 32);
}

/* ---- words: vocabulary.c ------------------------------------------------------------------ */

/* Words and how often each occurs.  Numbers of words are from 0 on, in the order of adding; after
 * w2v_vocab_sort() the most frequent is 0. */
typedef struct w2v_vocab {
    int64_t n;
    int64_t *count;
    char *bytes;     /* all words, one after the other */
    size_t *start;   /* of word w: bytes start[w] to start[w + 1] - 1; n + 1 of them */
    uint32_t *hash;  /* of each word */
    uint32_t *table; /* 1 + number of a word, 0: free; open addressing */
    size_t n_table, room, room_bytes;
} w2v_vocab;

int w2v_vocab_init(w2v_vocab *vocab);
void w2v_vocab_fini(w2v_vocab *vocab); /* one that is all zeros, too */

/* The number of a word, which is added if it is new; or -1. */
int64_t w2v_vocab_add(w2v_vocab *vocab, const char *word, size_t length, int64_t count);

/* The number of a word, or -1 if there is none, which is no failure. */
int64_t w2v_vocab_find(const w2v_vocab *vocab, const char *word, size_t length);

/* The most frequent first, of equally frequent ones the one that sorts first; without those that
 * occur less than `min_count` times, and without those after the first `most` (0: no limit). */
int w2v_vocab_sort(w2v_vocab *vocab, int64_t min_count, int64_t most);

/* As bytes for a message, which are the caller's to free(); and back, added to `vocab`. */
int w2v_vocab_pack(const w2v_vocab *vocab, char **ret_bytes, size_t *ret_n_bytes);
int w2v_vocab_unpack(w2v_vocab *vocab, const char *bytes, size_t n_bytes);

/* Two vocabularies with the same words in the same order have the same. */
uint64_t w2v_vocab_fingerprint(const w2v_vocab *vocab);

static inline const char *w2v_vocab_word(const w2v_vocab *vocab, int64_t w, int *ret_length)
{
    *ret_length = (int)(vocab->start[w + 1] - vocab->start[w]);
    return vocab->bytes + vocab->start[w];
}

/* ---- text: corpus.c ------------------------------------------------------------------------ */

#define W2V_END (-1) /* of a sentence */

/* This process's share of a text, as numbers of words. */
typedef struct w2v_corpus {
    int32_t *word; /* words that are not in the vocabulary are left out */
    size_t n;      /* with the ends of sentences */
    int64_t n_words, n_words_of_all;
} w2v_corpus;

/* Collective: count the words of a file, each process a part of it, and turn the process's own
 * part into numbers.  A line is a sentence; words have blanks between them. */
int w2v_corpus_read(gw_world *world, const char *path, int64_t min_count, int64_t most_words,
                    w2v_vocab *ret_vocab, w2v_corpus *ret_corpus);
void w2v_corpus_fini(w2v_corpus *corpus);

/* ---- a made-up text: generate.c ------------------------------------------------------------ */

typedef struct w2v_plan {
    int64_t n_words;    /* about so many in the text */
    int64_t vocabulary; /* about so many different ones */
    int families, items, forms;
    int64_t questions;
    uint64_t seed;
} w2v_plan;

/* Write a text with analogies in it, and a file of questions about them.  Each appears under its
 * name when it is complete. */
int w2v_generate(const w2v_plan *plan, const char *text_path, const char *questions_path);

/* ---- blocks of the text: blocks.c ---------------------------------------------------------- */

/* Some hundred words that are trained together: their vectors are pulled once, before, and what
 * has become of them is pushed once, after. */
typedef struct w2v_block {
    int n;          /* words in it */
    int n_distinct; /* different ones among them */
    int n_sentences;
    int n_negatives; /* keys that are drawn for it */
    int64_t n_raw;   /* words of the text that it stands for, with those left out by chance */
    int32_t *slot;   /* of each word: its place among the different ones */
    int32_t *end;    /* of each sentence: the place after its last word */
    int64_t *keys;   /* of the different words as inputs, then as outputs; room for negatives */
    gw_sample sample;
} w2v_block;

/* Cuts a share of a text into blocks. */
typedef struct w2v_cutter {
    const w2v_corpus *corpus;
    int64_t n_words; /* of the vocabulary */
    uint32_t *keep;  /* of each word: it stays if a random number is not above it */
    int block;       /* words of a block at most */
    size_t at;       /* in the text */
    uint64_t chance;
    int32_t *pending; /* a sentence that did not fit */
    int n_pending;
    int64_t raw_pending; /* words of the text that it stands for */
    int32_t *place;      /* by word: its slot, if stamp says that it is of the current block */
    int32_t *stamp;
    int32_t current;
} w2v_cutter;

/* `sample`: words more frequent than that are left out by chance, the more the more frequent;
 * 0: none is. */
int w2v_cutter_init(w2v_cutter *cutter, const w2v_vocab *vocab, const w2v_corpus *corpus, int block,
                    double sample);
void w2v_cutter_fini(w2v_cutter *cutter);
void w2v_cutter_rewind(w2v_cutter *cutter, uint64_t seed);

int w2v_block_init(w2v_block *block, int n_words, int n_negatives);
void w2v_block_fini(w2v_block *block);

/* The next block: 1, or 0 if there is none. */
int w2v_cutter_next(w2v_cutter *cutter, w2v_block *block);

/* ---- arithmetic: kernel.c ------------------------------------------------------------------ */

#define W2V_OUTPUTS 6 /* rows that a step compares with: the right one and five others */
#define W2V_MOST_WINDOW 32
#define W2V_MOST_NEGATIVES 64

static inline int w2v_stride(int dim)
{
    return (dim + 7) / 8 * 8;
}

/* One step.  Each of `n` inputs (at most 2 * W2V_MOST_WINDOW) is compared with each output; all
 * rows change.  `goal` of an output is 1 if it is the right one, 0 if it is not, and below zero if
 * it does not count.  The outputs are different rows.  If `ret_loss` is not NULL, the loss of the
 * pairs is added. */
void w2v_step(float *const *input, int n, float *const *output, const float *goal, int stride,
              float rate, double *ret_loss);

/* ---- training: train.c --------------------------------------------------------------------- */

typedef struct w2v_options {
    int dim, window, negatives;
    int epochs;
    int block;  /* words */
    int share;  /* how many words share a drawn negative */
    int ahead;  /* blocks that are announced before they come; 0: nothing is announced */
    int scheme; /* a gw_sampling_scheme */
    double rate, least_rate;
    double sample;
    int64_t min_count, most_words;
    uint64_t seed;
} w2v_options;

typedef struct w2v_progress {
    int64_t words, words_of_all; /* of this process's share of the text; `words` are done */
    double loss;                 /* the sum of some pairs' losses */
    int64_t pairs;               /* so many */
} w2v_progress;

typedef struct w2v_trainer w2v_trainer;

int w2v_trainer_new(const w2v_options *options, gw_worker *worker, const w2v_vocab *vocab,
                    const w2v_corpus *corpus, int rank, w2v_trainer **ret_trainer);
void w2v_trainer_free(w2v_trainer *trainer); /* NULL is fine */

/* An epoch, from 1 on, is begin, train until it says 0, end.  train goes on for about so many words
 * of the text, returns 1 if there is more, and tells how far the epoch has come.  Who does not go
 * on to the end of the epoch calls end, too: what was announced and drawn is not wanted any more.
 */
int w2v_trainer_begin(w2v_trainer *trainer, int epoch);
int w2v_trainer_train(w2v_trainer *trainer, int64_t words, w2v_progress *ret_progress);
int w2v_trainer_end(w2v_trainer *trainer);

/* ---- the job: job.c ------------------------------------------------------------------------ */

typedef struct w2v_job w2v_job;

/* Join the world.  Collective. */
int w2v_job_open(const w2v_options *options, w2v_job **ret_job);
int w2v_job_rank(const w2v_job *job);
int w2v_job_size(const w2v_job *job);
int w2v_job_nodes(const w2v_job *job);

/* Collective: read the text, and make the parameters with their first values. */
int w2v_job_read(w2v_job *job, const char *path);
w2v_trainer *w2v_job_trainer(w2v_job *job);     /* lent */
int64_t w2v_job_words(const w2v_job *job);      /* of the vocabulary */
int64_t w2v_job_text_words(const w2v_job *job); /* of the text, in all processes */
uint64_t w2v_job_fingerprint(const w2v_job *job);

/* Collective: with what it has trained, or, without waiting for the others, after a failure. */
int w2v_job_close(w2v_job *job);
void w2v_job_abandon(w2v_job *job);

/* Collective: sums, or the largest, over all processes, in place. */
int w2v_job_sum(w2v_job *job, double *values, size_t n);
int w2v_job_largest(w2v_job *job, double *values, size_t n);
int w2v_job_barrier(w2v_job *job);

/* Until everybody sees what everybody has pushed.  Collective. */
int w2v_job_in_step(w2v_job *job);

/* Godwit's counters of this process, or, if `total`, over all, which is collective.  Fills up to
 * `n` and returns how many there are. */
int w2v_job_counts(w2v_job *job, int total, const char **ret_names, int64_t *ret_values, int n);

/* Collective.  `ret_meta` is lent until the job's next load. */
int w2v_job_save(w2v_job *job, const char *dir, const char *meta);
int w2v_job_load(w2v_job *job, const char *dir, const char **ret_meta);

/* The vectors of the `n` most frequent words, `dim` entries each. */
int w2v_job_vectors(w2v_job *job, int64_t n, float *ret_vectors);

/* Collective: write the vectors of all words. */
int w2v_job_write(w2v_job *job, const char *path, int binary);

/* Collective: how many of a file's questions find their answer.  Lines are `a b c d`, meaning that
 * b is to a as d is to c; those that begin with a colon are headings. */
int w2v_job_analogies(w2v_job *job, const char *path, int64_t among, int64_t *ret_asked,
                      int64_t *ret_found);

/* ---- files of vectors, and questions to them: vectors.c, nearest.c ------------------------- */

typedef struct w2v_vectors {
    w2v_vocab vocab; /* counts are not known */
    int dim;
    float *row; /* n * dim */
} w2v_vectors;

/* word2vec's formats: a line with the number of words and entries; then a line for each word, or
 * a word, a blank, its entries as 32-bit numbers, and a line feed. */
int w2v_vectors_write(const w2v_vectors *vectors, const char *path, int binary);
int w2v_vectors_read(const char *path, int binary, w2v_vectors **ret_vectors);
void w2v_vectors_free(w2v_vectors *vectors); /* NULL is fine */

/* Make all rows as long as 1. */
void w2v_normalize(float *row, int64_t n, int dim);

/* The `most` words nearest to a word, by the cosine, nearest first.  Rows are as long as 1.
 * Returns how many there are. */
int w2v_nearest(const float *row, int64_t n, int dim, int64_t word, int most, int64_t *ret_words,
                float *ret_cosines);

/* The word that is to c as b is to a, but none of the three. */
int64_t w2v_analogy(const float *row, int64_t n, int dim, int64_t a, int64_t b, int64_t c);

/* The same as w2v_nearest() for a file that was read, by the word itself, which is normalized. */
int w2v_vectors_nearest(w2v_vectors *vectors, const char *word, int most, int64_t *ret_words,
                        float *ret_cosines);
/* The word with this number, which is cut if there is no room. */
void w2v_vectors_word(const w2v_vectors *vectors, int64_t w, char *ret_word, size_t room);

#endif
