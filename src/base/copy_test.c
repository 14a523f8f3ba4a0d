/* copy_test.c - streaming copies copy exactly what they should. */
#include "base/copy.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

static void every_length_and_alignment_is_copied_exactly(void **state)
{
    (void)state;
    enum { ROOM = 1200 };
    unsigned char from[ROOM], to[ROOM], want[ROOM];

    for (int i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i * 7 + 1);
    for (size_t n = 0; n < 1000; n += n < 300 ? 1 : 37)
        for (size_t at = 0; at < 64; at += 3) {
            memset(to, 0, ROOM);
            memset(want, 0, ROOM);
            memcpy(want + at, from + at / 2, n);
            gwi_copy_stream(to + at, from + at / 2, n);
            assert_memory_equal(to, want, ROOM);
        }
}

GWI_TESTS(cmocka_unit_test(every_length_and_alignment_is_copied_exactly))
