/* crc32c_test.c - known sums, and that all ways to compute one agree. */
#include "base/crc32c.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

static void sums_are_those_of_the_standard(void **state)
{
    unsigned char bytes[32];

    (void)state;
    assert_int_equal(gwi_crc32c(0, "", 0), 0);
    assert_int_equal(gwi_crc32c(0, "123456789", 9), 0xe3069283);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(gwi_crc32c(0, bytes, sizeof bytes), 0x8a9136aa); /* RFC 3720, B.4 */
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(gwi_crc32c(0, bytes, sizeof bytes), 0x62a8ab43);
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(gwi_crc32c(0, bytes, sizeof bytes), 0x46dd794e);
}

static unsigned char *random_bytes(size_t n)
{
    unsigned char *bytes = malloc(n);

    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(i * i * 31 + (i >> 7));
    return bytes;
}

static void every_way_and_every_cut_gives_the_same(void **state)
{
    const size_t n = 50000;
    unsigned char *bytes = random_bytes(n);
    uint32_t whole = gwi_crc32c_plain(0, bytes, n);

    (void)state;
    assert_int_equal(gwi_crc32c(0, bytes, n), whole);
    for (size_t cut = 0; cut <= n; cut += 1 + cut / 7) {
        uint32_t first = gwi_crc32c(0, bytes, cut), second = gwi_crc32c(0, bytes + cut, n - cut);
        assert_int_equal(gwi_crc32c(first, bytes + cut, n - cut), whole);
        assert_int_equal(gwi_crc32c_plain(first, bytes + cut, n - cut), whole);
        assert_int_equal(gwi_crc32c_join(first, second, n - cut), whole);
    }
    free(bytes);
}

static void joining_counts_beyond_what_fits_in_memory(void **state)
{
    const unsigned char zeros[1000] = {0};
    uint32_t sum = gwi_crc32c(0, "godwit", 6), of_zeros = gwi_crc32c(0, zeros, sizeof zeros);
    uint64_t n = sizeof zeros;

    (void)state;
    for (int i = 0; i < 30; i++) { /* 1000 * 2^30 zeros, by doubling, joined in two orders */
        of_zeros = gwi_crc32c_join(of_zeros, of_zeros, n);
        n *= 2;
    }
    assert_int_equal(gwi_crc32c_join(gwi_crc32c_join(sum, of_zeros, n), of_zeros, n),
                     gwi_crc32c_join(sum, gwi_crc32c_join(of_zeros, of_zeros, n), 2 * n));
}

static void a_single_wrong_bit_is_noticed(void **state)
{
    const size_t n = 10000;
    unsigned char *bytes = random_bytes(n);
    uint32_t whole = gwi_crc32c(0, bytes, n);

    (void)state;
    for (size_t bit = 0; bit < 8 * n; bit += 97) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_not_equal(gwi_crc32c(0, bytes, n), whole);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    free(bytes);
}

GWI_TESTS(cmocka_unit_test(sums_are_those_of_the_standard),
          cmocka_unit_test(every_way_and_every_cut_gives_the_same),
          cmocka_unit_test(joining_counts_beyond_what_fits_in_memory),
          cmocka_unit_test(a_single_wrong_bit_is_noticed))
