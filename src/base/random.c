/* random.c - seeding, bounded numbers, and bytes from the operating system. */
#include "base/random.h"
#include "base/error.h"
#include "base/hash.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

__extension__ typedef unsigned __int128 uint128;

void gwi_random_init(gwi_random *random, uint64_t seed, uint64_t stream)
{
    /* One to one in the stream for any seed, and in the seed for any stream;
     * mixed, so that neighbours share nothing. */
    uint64_t state = gwi_hash_u64(gwi_hash_u64(seed) ^ stream);

    /* splitmix64.  Its outputs differ from each other, so one is not zero. */
    for (int i = 0; i < 4; i++) {
        random->word[i] = gwi_hash_u64(state);
        state += GWI_HASH_STEP;
    }
}

/* Lemire's method: the upper half of a 128-bit product with n.  The 2^64 inputs
 * spread over n results; 2^64 mod n of them are too many, and they are the ones
 * whose lower half is below that number.  The division that finds the number is
 * only done if the lower half is below n. */
uint64_t gwi_random_below(gwi_random *random, uint64_t n)
{
    assert(n > 0);
    uint128 product = (uint128)gwi_random_u64(random) * n;

    if ((uint64_t)product < n) {
        uint64_t too_many = -n % n; /* 2^64 mod n */
        while ((uint64_t)product < too_many)
            product = (uint128)gwi_random_u64(random) * n;
    }
    return (uint64_t)(product >> 64);
}

void gwi_random_fill(gwi_random *random, void *out, size_t len_bytes)
{
    unsigned char *at = out;

    while (len_bytes > 0) {
        uint64_t bits = htole64(gwi_random_u64(random));
        size_t n = len_bytes < sizeof bits ? len_bytes : sizeof bits;
        memcpy(at, &bits, n);
        at += n;
        len_bytes -= n;
    }
}

int gwi_random_entropy(void *out, size_t len_bytes)
{
    unsigned char *at = out;

    while (len_bytes > 0) {
        ssize_t n = getrandom(at, len_bytes, 0);
        if (n < 0 && errno == EINTR)
            continue; /* a signal; and long requests may come in parts */
        if (n < 0)
            return gwi_fail_errno("getrandom of %zu bytes", len_bytes);
        at += n;
        len_bytes -= (size_t)n;
    }
    return 0;
}
