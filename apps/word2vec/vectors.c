/* vectors.c - word2vec's files of vectors, as text and as bytes. */
#define _GNU_SOURCE
#include "word2vec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ENTRIES ((int64_t)1 << 40)

static void write_all(const w2v_vectors *vectors, FILE *file, int binary)
{
    fprintf(file, "%lld %d\n", (long long)vectors->vocab.n, vectors->dim);
    for (int64_t w = 0; w < vectors->vocab.n && !ferror(file); w++) {
        const float *row = vectors->row + w * vectors->dim;
        int length;
        const char *word = w2v_vocab_word(&vectors->vocab, w, &length);
        fprintf(file, "%.*s%s", length, word, binary ? " " : "");
        if (binary)
            fwrite(row, sizeof *row, (size_t)vectors->dim, file);
        else
            for (int d = 0; d < vectors->dim; d++)
                fprintf(file, " %.9g", (double)row[d]);
        putc('\n', file);
    }
}

/* It appears under its name when it is complete. */
int w2v_vectors_write(const w2v_vectors *vectors, const char *path, int binary)
{
    char *part;

    if (asprintf(&part, "%s.part", path) < 0)
        return w2v_fail("no memory");
    FILE *file = fopen(part, "wb");
    int err = file == NULL ? w2v_fail("cannot write %s: %s", part, strerror(errno)) : 0;
    if (err == 0) {
        write_all(vectors, file, binary);
        bool bad = ferror(file) != 0;
        if (fclose(file) != 0 || bad || rename(part, path) < 0)
            err = w2v_fail("cannot write %s: %s", path, strerror(errno));
    }
    free(part);
    return err;
}

void w2v_vectors_free(w2v_vectors *vectors)
{
    if (vectors == NULL)
        return;
    w2v_vocab_fini(&vectors->vocab);
    free(vectors->row);
    free(vectors);
}

/* The word up to the next blank, to be freed; NULL at the end of the file. */
static char *read_word(FILE *file, size_t *ret_length)
{
    char *word = NULL;
    size_t room = 0;
    int c = getc(file);

    while (c == '\n')
        c = getc(file);
    if (c == EOF)
        return NULL;
    ungetc(c, file);
    ssize_t n = getdelim(&word, &room, ' ', file);
    if (n < 1 || word[n - 1] != ' ') {
        free(word);
        return NULL;
    }
    *ret_length = (size_t)n - 1;
    return word;
}

static bool read_row(FILE *file, float *ret_row, int dim, int binary)
{
    if (binary)
        return fread(ret_row, sizeof *ret_row, (size_t)dim, file) == (size_t)dim;
    for (int d = 0; d < dim; d++)
        if (fscanf(file, "%f", &ret_row[d]) != 1)
            return false;
    int c;
    while ((c = getc(file)) != EOF && c != '\n')
        if (c != ' ' && c != '\r' && c != '\t')
            return false;
    return true;
}

static int read_all(FILE *file, const char *path, int64_t n, int binary, w2v_vectors *vectors)
{
    for (int64_t w = 0; w < n; w++) {
        size_t length;
        char *word = read_word(file, &length);
        bool whole = word != NULL && length > 0 && memchr(word, '\n', length) == NULL &&
                     read_row(file, vectors->row + w * vectors->dim, vectors->dim, binary);
        int64_t number = whole ? w2v_vocab_add(&vectors->vocab, word, length, 1) : -1;
        free(word);
        if (!whole)
            return w2v_fail("%s: word %lld of %lld, with %d entries, is not there or not whole",
                            path, (long long)w + 1, (long long)n, vectors->dim);
        if (number != w)
            return number < 0 ? -1
                              : w2v_fail("%s: word %lld is there twice", path, (long long)w + 1);
    }
    return 0;
}

int w2v_vectors_read(const char *path, int binary, w2v_vectors **ret_vectors)
{
    FILE *file = fopen(path, "rb");
    w2v_vectors *vectors = w2v_allocate(1, sizeof *vectors);
    long long n = 0;
    int dim = 0, err = vectors == NULL ? -1 : 0;

    if (err == 0 && file == NULL)
        err = w2v_fail("cannot read %s: %s", path, strerror(errno));
    if (err == 0 && (fscanf(file, "%lld %d", &n, &dim) != 2 || getc(file) != '\n' || n < 1 ||
                     dim < 1 || n > MOST_ENTRIES / dim))
        err = w2v_fail("%s does not begin with a line that has the numbers of words and of entries",
                       path);
    if (err == 0)
        err = w2v_vocab_init(&vectors->vocab);
    if (err == 0) {
        vectors->dim = dim;
        vectors->row = w2v_allocate((size_t)n * (size_t)dim, sizeof *vectors->row);
        err = vectors->row == NULL ? -1 : read_all(file, path, n, binary, vectors);
    }
    if (file != NULL)
        fclose(file);
    if (err < 0) {
        w2v_vectors_free(vectors);
        return err;
    }
    w2v_normalize(vectors->row, n, dim);
    *ret_vectors = vectors;
    return 0;
}

int w2v_vectors_nearest(w2v_vectors *vectors, const char *word, int most, int64_t *ret_words,
                        float *ret_cosines)
{
    int64_t w = w2v_vocab_find(&vectors->vocab, word, strlen(word));

    if (w < 0)
        return w2v_fail("there is no vector of '%s'", word);
    return w2v_nearest(vectors->row, vectors->vocab.n, vectors->dim, w, most, ret_words,
                       ret_cosines);
}

void w2v_vectors_word(const w2v_vectors *vectors, int64_t w, char *ret_word, size_t room)
{
    int length;
    const char *word = w2v_vocab_word(&vectors->vocab, w, &length);

    snprintf(ret_word, room, "%.*s", length, word);
}
