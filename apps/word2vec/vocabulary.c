/* vocabulary.c - words, their numbers, and how often they occur. */
#define _GNU_SOURCE
#include "word2vec.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 1024
#define MOST_WORDS (INT32_MAX / 2) /* two keys a word, and a word's number fits 32 bits */

static uint32_t hash_of(const char *word, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)word[i]) * 0x100000001b3u;
    return (uint32_t)(hash ^ (hash >> 32));
}

int w2v_vocab_init(w2v_vocab *vocab)
{
    *vocab = (w2v_vocab){
        .room = FIRST_ROOM, .room_bytes = 8 * FIRST_ROOM, .n_table = 2 * FIRST_ROOM};
    vocab->count = malloc(vocab->room * sizeof *vocab->count);
    vocab->hash = malloc(vocab->room * sizeof *vocab->hash);
    vocab->start = calloc(vocab->room + 1, sizeof *vocab->start);
    vocab->bytes = malloc(vocab->room_bytes);
    vocab->table = calloc(vocab->n_table, sizeof *vocab->table);
    if (vocab->count && vocab->hash && vocab->start && vocab->bytes && vocab->table)
        return 0;
    w2v_vocab_fini(vocab);
    return w2v_fail("no memory for a vocabulary");
}

void w2v_vocab_fini(w2v_vocab *vocab)
{
    free(vocab->count);
    free(vocab->hash);
    free(vocab->start);
    free(vocab->bytes);
    free(vocab->table);
    *vocab = (w2v_vocab){0};
}

static uint32_t *cell_of(const w2v_vocab *vocab, uint32_t hash, const char *word, size_t length)
{
    size_t mask = vocab->n_table - 1;

    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        uint32_t at = vocab->table[i];
        if (at == 0)
            return &vocab->table[i];
        size_t start = vocab->start[at - 1];
        if (vocab->hash[at - 1] == hash && vocab->start[at] - start == length &&
            memcmp(vocab->bytes + start, word, length) == 0)
            return &vocab->table[i];
    }
}

static int resize(void **array, size_t n, size_t size)
{
    void *larger = realloc(*array, n * size);

    if (larger == NULL)
        return w2v_fail("no memory for a vocabulary of %zu", n);
    *array = larger;
    return 0;
}

static int grow(w2v_vocab *vocab)
{
    size_t room = 2 * vocab->room;
    uint32_t *table = calloc(2 * room, sizeof *table);

    if (table == NULL)
        return w2v_fail("no memory for a vocabulary of %zu words", room);
    free(vocab->table);
    vocab->table = table;
    vocab->n_table = 2 * room;
    for (int64_t w = 0; w < vocab->n; w++) {
        size_t i = vocab->hash[w] & (vocab->n_table - 1);
        while (table[i] != 0)
            i = (i + 1) & (vocab->n_table - 1);
        table[i] = (uint32_t)w + 1;
    }
    if (resize((void **)&vocab->count, room, sizeof *vocab->count) < 0 ||
        resize((void **)&vocab->hash, room, sizeof *vocab->hash) < 0 ||
        resize((void **)&vocab->start, room + 1, sizeof *vocab->start) < 0)
        return -1;
    vocab->room = room;
    return 0;
}

int64_t w2v_vocab_add(w2v_vocab *vocab, const char *word, size_t length, int64_t count)
{
    uint32_t hash = hash_of(word, length);
    uint32_t *cell = cell_of(vocab, hash, word, length);

    if (*cell != 0) {
        vocab->count[*cell - 1] += count;
        return *cell - 1;
    }
    if (vocab->n == MOST_WORDS)
        return w2v_fail("the text has more than %d different words", MOST_WORDS);
    if ((size_t)vocab->n == vocab->room) {
        if (grow(vocab) < 0)
            return -1;
        cell = cell_of(vocab, hash, word, length);
    }
    size_t start = vocab->start[vocab->n];
    if (start + length > vocab->room_bytes) {
        size_t room = 2 * (start + length);
        if (resize((void **)&vocab->bytes, room, 1) < 0)
            return -1;
        vocab->room_bytes = room;
    }
    memcpy(vocab->bytes + start, word, length);
    int64_t w = vocab->n++;
    vocab->start[w + 1] = start + length;
    vocab->hash[w] = hash;
    vocab->count[w] = count;
    *cell = (uint32_t)w + 1;
    return w;
}

int64_t w2v_vocab_find(const w2v_vocab *vocab, const char *word, size_t length)
{
    return (int64_t)*cell_of(vocab, hash_of(word, length), word, length) - 1;
}

static int compare(const void *a, const void *b, void *context)
{
    const w2v_vocab *vocab = context;
    int64_t v = *(const int64_t *)a, w = *(const int64_t *)b;
    int n_v, n_w;

    if (vocab->count[v] != vocab->count[w])
        return vocab->count[v] > vocab->count[w] ? -1 : 1;
    const char *word_v = w2v_vocab_word(vocab, v, &n_v), *word_w = w2v_vocab_word(vocab, w, &n_w);
    int order = memcmp(word_v, word_w, (size_t)(n_v < n_w ? n_v : n_w));
    return order != 0 ? order : n_v - n_w;
}

int w2v_vocab_sort(w2v_vocab *vocab, int64_t min_count, int64_t most)
{
    int64_t *order = malloc(((size_t)vocab->n + 1) * sizeof *order);
    w2v_vocab sorted;

    if (order == NULL)
        return w2v_fail("no memory to sort %lld words", (long long)vocab->n);
    if (w2v_vocab_init(&sorted) < 0) {
        free(order);
        return -1;
    }
    for (int64_t w = 0; w < vocab->n; w++)
        order[w] = w;
    qsort_r(order, (size_t)vocab->n, sizeof *order, compare, vocab);
    int err = 0;
    for (int64_t i = 0; i < vocab->n && err == 0 && (most == 0 || i < most); i++) {
        int length;
        const char *word = w2v_vocab_word(vocab, order[i], &length);
        if (vocab->count[order[i]] < min_count)
            break;
        if (w2v_vocab_add(&sorted, word, (size_t)length, vocab->count[order[i]]) < 0)
            err = -1;
    }
    free(order);
    if (err < 0) {
        w2v_vocab_fini(&sorted);
        return err;
    }
    w2v_vocab_fini(vocab);
    *vocab = sorted;
    return 0;
}

/* ---- as a message: of each word its count, its length, its bytes ---------------------------- */

typedef struct entry {
    int64_t count;
    uint64_t length;
} entry;

int w2v_vocab_pack(const w2v_vocab *vocab, char **ret_bytes, size_t *ret_n_bytes)
{
    size_t n_bytes = (size_t)vocab->n * sizeof(entry) + vocab->start[vocab->n];
    char *bytes = malloc(n_bytes + 1), *at = bytes;

    if (bytes == NULL)
        return w2v_fail("no memory for a message of %zu bytes", n_bytes);
    for (int64_t w = 0; w < vocab->n; w++) {
        int length;
        const char *word = w2v_vocab_word(vocab, w, &length);
        entry head = {vocab->count[w], (uint64_t)length};
        memcpy(at, &head, sizeof head);
        memcpy(at + sizeof head, word, (size_t)length);
        at += sizeof head + (size_t)length;
    }
    *ret_bytes = bytes;
    *ret_n_bytes = n_bytes;
    return 0;
}

int w2v_vocab_unpack(w2v_vocab *vocab, const char *bytes, size_t n_bytes)
{
    const char *end = bytes + n_bytes;
    entry head;

    for (; (size_t)(end - bytes) >= sizeof head; bytes += sizeof head + head.length) {
        memcpy(&head, bytes, sizeof head);
        if (head.length > (size_t)(end - bytes) - sizeof head)
            break;
        if (w2v_vocab_add(vocab, bytes + sizeof head, head.length, head.count) < 0)
            return -1;
    }
    return bytes == end ? 0 : w2v_fail("a vocabulary that another process sent is cut off");
}

uint64_t w2v_vocab_fingerprint(const w2v_vocab *vocab)
{
    uint64_t print = (uint64_t)vocab->n;

    for (int64_t w = 0; w < vocab->n; w++) {
        print ^= vocab->hash[w];
        print = w2v_random(&print);
    }
    return print;
}
