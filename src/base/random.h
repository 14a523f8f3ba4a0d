/* random.h - random numbers: repeatable ones from a seed, and true ones.
 *
 * A gwi_random is a stream of numbers that depends on its seed and its stream
 * number alone: the same on every machine and in every version.  The generator
 * is xoshiro256**, filled by splitmix64; its period is 2^256 - 1.  It is fast
 * and passes the usual statistical tests; it is no secret to anybody who sees
 * its output.
 *
 * Threads  A gwi_random is used by one thread at a time; give each its own
 *          stream of the same seed.  gwi_random_entropy is for any thread.    */
#ifndef GWI_BASE_RANDOM_H
#define GWI_BASE_RANDOM_H

#include <godwit/base.h>

#include <stddef.h>
#include <stdint.h>

typedef struct gwi_random {
    uint64_t word[4]; /* not all zero */
} gwi_random;

/* Start the stream number `stream` of `seed`.  Any two numbers will do: 0 and 1
 * are as good as any.  Nothing to free. */
void gwi_random_init(gwi_random *random, uint64_t seed, uint64_t stream);

/* 64 random bits. */
static inline uint64_t gwi_random_u64(gwi_random *random)
{
    uint64_t *word = random->word;
    uint64_t scrambled = word[1] * 5;
    uint64_t shifted = word[1] << 17;

    scrambled = ((scrambled << 7) | (scrambled >> 57)) * 9;
    word[2] ^= word[0];
    word[3] ^= word[1];
    word[1] ^= word[2];
    word[0] ^= word[3];
    word[2] ^= shifted;
    word[3] = (word[3] << 45) | (word[3] >> 19);
    return scrambled;
}

/* A number in [0, 1): a multiple of 2^-53, all of them equally likely. */
static inline double gwi_random_double(gwi_random *random)
{
    return (double)(gwi_random_u64(random) >> 11) * 0x1p-53;
}

/* A whole number in [0, n), all of them exactly equally likely.  `n` is not 0. */
uint64_t gwi_random_below(gwi_random *random, uint64_t n);

/* Fill memory with random bytes.  They are those of gwi_random_u64, lowest byte
 * first; what is left of the last number is dropped. */
void gwi_random_fill(gwi_random *random, void *out, size_t len_bytes);

/* Fill memory with bytes from the operating system that nobody can guess or
 * repeat, for the names of things.  GW_ESYS if the system refuses. */
int gwi_random_entropy(void *out, size_t len_bytes);

#endif
