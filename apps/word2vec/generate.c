/* generate.c - a made-up text in which analogies hold.
 *
 * There are families of items, and each item of a family has the same forms, as countries have a
 * capital and a language.  The word for a form of an item stands between words that go with the
 * item, whatever the form, and words that go with the form, whatever the item:
 *
 *     bako-ri    with  tuse mila poke (of bako)  and  sano dile garu (of -ri)
 *     bako-lu    with  tuse mila poke            and  hobu rema nita (of -lu)
 *
 * So its vector becomes about the sum of the two, and bako-ri - bako-lu + tesi-lu is near tesi-ri.
 * All around are filler words, as frequent as Zipf's law has it, and sentences that are nothing
 * else. */
#define _GNU_SOURCE
#include "word2vec.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ITEM_WORDS = 4, /* that go with an item */
    FORM_WORDS = 8, /* that go with a form of a family */
    ITEM_SLOTS = 3, /* of a sentence */
    FORM_SLOTS = 3,
    FEWEST_FILLERS = 2, /* and up to twice as many */
    MOST_SENTENCE = 16,
    FILLER_SENTENCES = 30, /* of a hundred */
    NAME = 32
};

typedef struct maker {
    const w2v_plan *plan;
    uint64_t chance;
    int64_t n_items, n_forms; /* of all families together */
    int64_t n_fillers;
    double *sum; /* of the fillers' frequencies, up to and with each */
    FILE *file;
} maker;

/* A word for each number: syllables, of which no two numbers have the same. */
static void name_of(int64_t number, char *ret_name)
{
    static const char consonants[] = "bdfghklmnprstz", vowels[] = "aeiou";
    char *at = ret_name;

    number += 70; /* from two syllables on */
    for (; number > 0; number /= 70) {
        *at++ = consonants[number % 70 / 5];
        *at++ = vowels[number % 5];
    }
    *at = '\0';
}

/* The numbers of words: first items' names, then forms' endings, then those that go with them, then
 * fillers. */
static void write_planted(const maker *m, FILE *file, int64_t family, int64_t item, int64_t form)
{
    const w2v_plan *plan = m->plan;
    char stem[NAME], ending[NAME];

    name_of(family * plan->items + item, stem);
    name_of(m->n_items + family * plan->forms + form, ending);
    fprintf(file, "%s-%s", stem, ending);
}

static int64_t item_word(const maker *m, int64_t item, int64_t which)
{
    return m->n_items + m->n_forms + item * ITEM_WORDS + which;
}

static int64_t form_word(const maker *m, int64_t form, int64_t which)
{
    return item_word(m, m->n_items, 0) + form * FORM_WORDS + which;
}

static int64_t filler(maker *m)
{
    double x = (double)(w2v_random(&m->chance) >> 11) * 0x1p-53 * m->sum[m->n_fillers - 1];
    int64_t low = 0, high = m->n_fillers - 1;

    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (m->sum[middle] <= x)
            low = middle + 1;
        else
            high = middle;
    }
    return form_word(m, m->n_forms, 0) + low;
}

static int filler_sentence(maker *m)
{
    int n = MOST_SENTENCE / 2 + (int)w2v_below(&m->chance, MOST_SENTENCE / 2 + 1);
    char name[NAME];

    for (int i = 0; i < n; i++) {
        name_of(filler(m), name);
        fprintf(m->file, "%s%c", name, i + 1 < n ? ' ' : '\n');
    }
    return n;
}

static int planted_sentence(maker *m)
{
    const w2v_plan *plan = m->plan;
    int64_t family = w2v_below(&m->chance, (uint32_t)plan->families);
    int64_t item = w2v_below(&m->chance, (uint32_t)plan->items);
    int64_t form = w2v_below(&m->chance, (uint32_t)plan->forms);
    int n_fillers = FEWEST_FILLERS + (int)w2v_below(&m->chance, FEWEST_FILLERS + 1);
    int n = 0;
    int64_t word[MOST_SENTENCE];
    char name[NAME];

    word[n++] = -1; /* the planted one */
    for (int i = 0; i < ITEM_SLOTS; i++)
        word[n++] = item_word(m, family * plan->items + item, w2v_below(&m->chance, ITEM_WORDS));
    for (int i = 0; i < FORM_SLOTS; i++)
        word[n++] = form_word(m, family * plan->forms + form, w2v_below(&m->chance, FORM_WORDS));
    for (int i = 0; i < n_fillers; i++)
        word[n++] = filler(m);
    for (int i = n - 1; i > 0; i--) {
        int j = (int)w2v_below(&m->chance, (uint32_t)i + 1);
        int64_t other = word[i];
        word[i] = word[j];
        word[j] = other;
    }
    for (int i = 0; i < n; i++) {
        if (word[i] < 0) {
            write_planted(m, m->file, family, item, form);
        } else {
            name_of(word[i], name);
            fputs(name, m->file);
        }
        putc(i + 1 < n ? ' ' : '\n', m->file);
    }
    return n;
}

static void write_text(maker *m)
{
    for (int64_t n = 0; n < m->plan->n_words;)
        n += w2v_below(&m->chance, 100) < FILLER_SENTENCES ? filler_sentence(m)
                                                           : planted_sentence(m);
}

/* Two different numbers below n. */
static void choose_two(maker *m, int n, int64_t *ret_a, int64_t *ret_b)
{
    *ret_a = w2v_below(&m->chance, (uint32_t)n);
    *ret_b = w2v_below(&m->chance, (uint32_t)n - 1);
    *ret_b += *ret_b >= *ret_a;
}

static void write_questions(maker *m)
{
    const w2v_plan *plan = m->plan;

    for (int64_t family = 0; family < plan->families; family++) {
        fprintf(m->file, ": family %lld\n", (long long)family + 1);
        for (int64_t q = family; q < plan->questions; q += plan->families) {
            int64_t item[2], form[2];
            choose_two(m, plan->items, &item[0], &item[1]);
            choose_two(m, plan->forms, &form[0], &form[1]);
            for (int i = 0; i < 4; i++) {
                write_planted(m, m->file, family, item[i / 2], form[i % 2]);
                putc(i < 3 ? ' ' : '\n', m->file);
            }
        }
    }
}

/* A file that is there whole or not at all. */
static int write_file(maker *m, const char *path, void (*write)(maker *))
{
    char *part;

    if (asprintf(&part, "%s.part", path) < 0)
        return w2v_fail("no memory");
    m->file = fopen(part, "w");
    int err = m->file == NULL ? w2v_fail("cannot write %s: %s", part, strerror(errno)) : 0;
    if (err == 0) {
        write(m);
        bool bad = ferror(m->file) != 0;
        if (fclose(m->file) != 0 || bad || rename(part, path) < 0)
            err = w2v_fail("cannot write %s: %s", path, strerror(errno));
    }
    free(part);
    return err;
}

int w2v_generate(const w2v_plan *plan, const char *text_path, const char *questions_path)
{
    if (plan->families < 1 || plan->items < 2 || plan->forms < 2)
        return w2v_fail("a text with %d families of %d items with %d forms has no analogies; there "
                        "must be at least one family of two items with two forms",
                        plan->families, plan->items, plan->forms);
    maker m = {.plan = plan, .chance = plan->seed};
    m.n_items = (int64_t)plan->families * plan->items;
    m.n_forms = (int64_t)plan->families * plan->forms;
    int64_t others = m.n_items * (plan->forms + ITEM_WORDS) + m.n_forms * FORM_WORDS;
    m.n_fillers = plan->vocabulary - others;
    if (m.n_fillers < 1)
        return w2v_fail("%lld different words are too few: analogies take %lld of them",
                        (long long)plan->vocabulary, (long long)others);

    m.sum = malloc((size_t)m.n_fillers * sizeof *m.sum);
    if (m.sum == NULL)
        return w2v_fail("no memory for %lld words", (long long)m.n_fillers);
    double sum = 0;
    for (int64_t i = 0; i < m.n_fillers; i++)
        m.sum[i] = sum += 1 / (double)(i + 1);
    int err = write_file(&m, text_path, write_text);
    if (err == 0)
        err = write_file(&m, questions_path, write_questions);
    free(m.sum);
    return err;
}
