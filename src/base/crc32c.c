/* crc32c.c - by tables everywhere, by the processor's own instruction where it has one.
 *
 * A sum is a polynomial over two elements, of which the highest power is the lowest bit.  To
 * append n bytes of zeros multiplies it by x^(8n).  That is how sums of pieces are joined, and
 * how the instruction is kept busy: it takes three steps for 8 bytes but can begin one in each,
 * so three streams side by side run three times as fast as one.                          */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL UINT32_C(0x82f63b78) /* without its highest power */
#define ONE UINT32_C(0x80000000)        /* x^0 */
#define X (ONE >> 1)                    /* x^1 */
#define STREAM_BYTES ((size_t)2048)     /* of each of the three */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t tables[8][256];       /* [k][b]: of byte b followed by k zeros */
static uint32_t stream_shift[4][256]; /* by byte of a sum: that followed by STREAM_BYTES zeros */
static uint32_t (*best)(uint32_t, const unsigned char *, size_t);

/* arithmetic */

static uint32_t times_x(uint32_t a)
{
    return a & 1 ? a >> 1 ^ POLYNOMIAL : a >> 1;
}

static uint32_t times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = ONE; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = times_x(b);
    }
    return product;
}

/* x^(8n) */
static uint32_t shift_by(uint64_t n_bytes)
{
    uint32_t power = times(times(X, X), times(X, X)), result = ONE;

    for (power = times(power, power); n_bytes != 0; n_bytes >>= 1) {
        if (n_bytes & 1)
            result = times(result, power);
        power = times(power, power);
    }
    return result;
}

uint32_t gwi_crc32c_join(uint32_t first, uint32_t second, uint64_t n_bytes)
{
    return times(shift_by(n_bytes), first) ^ second;
}

/* by tables; `raw` is a sum without the inversions at both ends */

static uint64_t load(const unsigned char *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t add_byte(uint32_t raw, unsigned char byte)
{
    return tables[0][(raw ^ byte) & 0xff] ^ raw >> 8;
}

static uint32_t plain(uint32_t raw, const unsigned char *at, size_t n)
{
    for (; n >= 8; n -= 8, at += 8) {
        uint32_t sum = 0;
        for (unsigned i = 0; i < 8; i++)
            sum ^= tables[7 - i][i < 4 ? (raw >> 8 * i & 0xff) ^ at[i] : at[i]];
        raw = sum;
    }
    for (; n > 0; n--)
        raw = add_byte(raw, *at++);
    return raw;
}

/* by the processor */

#if defined(__x86_64__)
static uint32_t shift_stream(uint32_t raw)
{
    return stream_shift[0][raw & 0xff] ^ stream_shift[1][raw >> 8 & 0xff] ^
           stream_shift[2][raw >> 16 & 0xff] ^ stream_shift[3][raw >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t by_processor(uint32_t raw,
                                                               const unsigned char *at, size_t n)
{
    for (; n >= 3 * STREAM_BYTES; n -= 3 * STREAM_BYTES, at += 3 * STREAM_BYTES) {
        uint64_t a = raw, b = 0, c = 0;
        for (size_t i = 0; i < STREAM_BYTES; i += 8) {
            a = __builtin_ia32_crc32di(a, load(at + i));
            b = __builtin_ia32_crc32di(b, load(at + STREAM_BYTES + i));
            c = __builtin_ia32_crc32di(c, load(at + 2 * STREAM_BYTES + i));
        }
        raw = shift_stream(shift_stream((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
    }
    for (; n >= 8; n -= 8, at += 8)
        raw = (uint32_t)__builtin_ia32_crc32di(raw, load(at));
    return plain(raw, at, n);
}
#endif

static void prepare(void)
{
    uint32_t shift = shift_by(STREAM_BYTES);

    for (uint32_t b = 0; b < 256; b++) {
        uint32_t sum = b;
        for (int i = 0; i < 8; i++)
            sum = times_x(sum);
        tables[0][b] = sum;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            tables[k][b] = add_byte(tables[k - 1][b], 0);
    for (int k = 0; k < 4; k++)
        for (uint32_t b = 0; b < 256; b++)
            stream_shift[k][b] = times(shift, b << 8 * k);
    best = plain;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        best = by_processor;
#endif
}

uint32_t gwi_crc32c(uint32_t crc, const void *bytes, size_t n_bytes)
{
    pthread_once(&once, prepare);
    return ~best(~crc, bytes, n_bytes);
}

uint32_t gwi_crc32c_plain(uint32_t crc, const void *bytes, size_t n_bytes)
{
    pthread_once(&once, prepare);
    return ~plain(~crc, bytes, n_bytes);
}
