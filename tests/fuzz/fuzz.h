/* fuzz.h - what every fuzz target needs.
 *
 * A target is one program around one decoder.  libFuzzer (part of clang) calls
 * LLVMFuzzerTestOneInput() with bytes that it makes up, watching which of them
 * lead to new places in the code; AddressSanitizer and UBSan see what goes wrong
 * there.  A target reads its input as a little program ("give a message of 300
 * bytes, take two frames, overwrite a head"), and REQUIREs what the decoder
 * promises.  tools/fuzz.py builds and runs all targets.
 *
 * The first inputs are made by the target itself: with FUZZ_SEEDS=directory in
 * the environment it calls plant_seeds(), which passes each one to plant(), and
 * ends.                                                                      */
#ifndef GWI_TESTS_FUZZ_FUZZ_H
#define GWI_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define REQUIRE(condition)                                                                  \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: this must hold: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                        \
        }                                                                                   \
    } while (0)

/* What is left of an input. */
struct input {
    const uint8_t *at;
    size_t left;
};

/* The next `n` bytes, at most 8, as a number, the lowest first; zeros follow the
 * end of the input. */
static inline uint64_t next_number(struct input *in, size_t n)
{
    uint64_t value = 0;
    size_t there = n < in->left ? n : in->left;

    for (size_t i = 0; i < there; i++)
        value |= (uint64_t)in->at[i] << (8 * i);
    in->at += there;
    in->left -= there;
    return value;
}

/* A copy of the next `n` bytes, or of as many as there are, that ends where its
 * memory ends, so that a look beyond is noticed.  Free it. */
static inline uint8_t *next_bytes(struct input *in, size_t n, size_t *ret_n)
{
    size_t there = n < in->left ? n : in->left;
    uint8_t *copy = malloc(there > 0 ? there : 1);

    if (there > 0)
        memcpy(copy, in->at, there);
    in->at += there;
    in->left -= there;
    *ret_n = there;
    return copy;
}

/* seeds */

static void plant_seeds(void);

static inline void plant(const void *bytes, size_t n_bytes)
{
    static int n_planted;
    char path[4096];

    snprintf(path, sizeof path, "%s/seed-%d", getenv("FUZZ_SEEDS"), n_planted++);
    FILE *file = fopen(path, "wb");
    REQUIRE(file != NULL && fwrite(bytes, 1, n_bytes, file) == n_bytes && fclose(file) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    if (getenv("FUZZ_SEEDS") != NULL) {
        plant_seeds();
        exit(0);
    }
    return 0;
}

#endif
