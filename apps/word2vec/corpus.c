/* corpus.c - a text file, of which each process reads a part.
 *
 * The file is cut into as many pieces as there are processes, at blanks.  Each process counts the
 * words of its piece; rank 0 adds the counts up and tells everybody which word has which number. So
 * the numbers do not depend on how many processes there are, and a checkpoint fits any job. */
#define _GNU_SOURCE
#include "word2vec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct text {
    const char *at, *end; /* the piece */
    void *map;
    size_t n_map;
} text;

static bool is_blank(char c)
{
    return (unsigned char)c <= ' ';
}

/* The first blank from `at` on. */
static const char *cut(const char *at, const char *end)
{
    while (at < end && !is_blank(*at))
        at++;
    return at;
}

static int map_file(const char *path, text *ret_text)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return w2v_fail("cannot read %s: %s", path, strerror(errno));
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
        close(fd);
        return w2v_fail("%s is not a file with text in it", path);
    }
    size_t n = (size_t)status.st_size;
    void *map = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return w2v_fail("cannot map %s: %s", path, strerror(errno));
    *ret_text = (text){.at = map, .end = (const char *)map + n, .map = map, .n_map = n};
    return 0;
}

static void take_piece(text *piece, int part, int parts)
{
    const char *map = piece->map, *end = map + piece->n_map;

    piece->at = part == 0 ? map : cut(map + piece->n_map / (size_t)parts * (size_t)part, end);
    piece->end = part == parts - 1
                     ? end
                     : cut(map + piece->n_map / (size_t)parts * (size_t)(part + 1), end);
    madvise(piece->map, piece->n_map, MADV_SEQUENTIAL);
}

/* The next word: its length, 0 at the end.  `ret_ends` tells whether a line ended before it. */
static size_t next_word(text *piece, const char **ret_word, bool *ret_ends)
{
    const char *at = piece->at;

    *ret_ends = false;
    for (; at < piece->end && is_blank(*at); at++)
        *ret_ends |= *at == '\n';
    *ret_word = at;
    piece->at = cut(at, piece->end);
    return (size_t)(piece->at - at);
}

static int count_words(text piece, w2v_vocab *vocab)
{
    const char *word;
    bool ends;

    for (size_t n; (n = next_word(&piece, &word, &ends)) > 0;)
        if (w2v_vocab_add(vocab, word, n, 1) < 0)
            return -1;
    return 0;
}

/* ---- one vocabulary for all ------------------------------------------------------------------ */

static int send_vocab(gw_world *world, int peer, const w2v_vocab *vocab)
{
    char *bytes;
    size_t n_bytes;

    if (w2v_vocab_pack(vocab, &bytes, &n_bytes) < 0)
        return -1;
    int err = w2v_check(gw_world_send(world, peer, bytes, n_bytes));
    free(bytes);
    return err;
}

static int receive_vocab(gw_world *world, int peer, w2v_vocab *vocab)
{
    size_t n_bytes;

    if (w2v_check(gw_world_peek(world, peer, &n_bytes)) < 0)
        return -1;
    char *bytes = malloc(n_bytes + 1);
    if (bytes == NULL)
        return w2v_fail("no memory for a message of %zu bytes", n_bytes);
    int err = w2v_check(gw_world_recv(world, peer, bytes, n_bytes, &n_bytes));
    if (err == 0)
        err = w2v_vocab_unpack(vocab, bytes, n_bytes);
    free(bytes);
    return err;
}

static int agree(gw_world *world, const gw_world_info *info, int64_t min_count, int64_t most,
                 w2v_vocab *vocab)
{
    if (info->rank != 0) {
        if (send_vocab(world, 0, vocab) < 0)
            return -1;
        w2v_vocab_fini(vocab);
        return w2v_vocab_init(vocab) < 0 ? -1 : receive_vocab(world, 0, vocab);
    }
    for (int peer = 1; peer < info->size; peer++)
        if (receive_vocab(world, peer, vocab) < 0)
            return -1;
    if (w2v_vocab_sort(vocab, min_count, most) < 0)
        return -1;
    for (int peer = 1; peer < info->size; peer++)
        if (send_vocab(world, peer, vocab) < 0)
            return -1;
    return 0;
}

/* ---- numbers instead of words ---------------------------------------------------------------- */

static int encode(text piece, const w2v_vocab *vocab, w2v_corpus *corpus)
{
    size_t room = (size_t)(piece.end - piece.at) / 4 + 16;
    const char *word;
    bool ends;

    corpus->word = malloc(room * sizeof *corpus->word);
    if (corpus->word == NULL)
        return w2v_fail("no memory for a text of %zu words", room);
    for (size_t n; (n = next_word(&piece, &word, &ends)) > 0;) {
        int64_t number = w2v_vocab_find(vocab, word, n);
        if (corpus->n + 3 > room) {
            int32_t *larger = realloc(corpus->word, (room *= 2) * sizeof *larger);
            if (larger == NULL)
                return w2v_fail("no memory for a text of %zu words", room);
            corpus->word = larger;
        }
        if (ends && corpus->n > 0 && corpus->word[corpus->n - 1] != W2V_END)
            corpus->word[corpus->n++] = W2V_END;
        if (number >= 0) {
            corpus->word[corpus->n++] = (int32_t)number;
            corpus->n_words++;
        }
    }
    corpus->word[corpus->n++] = W2V_END;
    return 0;
}

void w2v_corpus_fini(w2v_corpus *corpus)
{
    free(corpus->word);
    *corpus = (w2v_corpus){0};
}

int w2v_corpus_read(gw_world *world, const char *path, int64_t min_count, int64_t most_words,
                    w2v_vocab *ret_vocab, w2v_corpus *ret_corpus)
{
    gw_world_info info = {.size_bytes = sizeof info};
    w2v_corpus corpus = {0};
    w2v_vocab vocab = {0};
    text piece = {0};

    if (w2v_check(gw_world_get_info(world, &info)) < 0 || map_file(path, &piece) < 0)
        return -1;
    take_piece(&piece, info.rank, info.size);
    int err = w2v_vocab_init(&vocab);
    if (err == 0)
        err = count_words(piece, &vocab);
    if (err == 0)
        err = agree(world, &info, min_count, most_words, &vocab);
    if (err == 0 && vocab.n < 2)
        err = w2v_fail("%s has %lld different words that occur %lld times or more: too few", path,
                       (long long)vocab.n, (long long)min_count);
    if (err == 0)
        err = encode(piece, &vocab, &corpus);
    munmap(piece.map, piece.n_map);
    if (err < 0) {
        w2v_vocab_fini(&vocab);
        w2v_corpus_fini(&corpus);
        return err;
    }
    for (int64_t w = 0; w < vocab.n; w++)
        corpus.n_words_of_all += vocab.count[w];
    *ret_vocab = vocab;
    *ret_corpus = corpus;
    return 0;
}
