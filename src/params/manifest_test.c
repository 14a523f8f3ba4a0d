/* manifest_test.c - checkpoint.json: written, read, and found out if it is damaged. */
#include "params/manifest.h"
#include "base/crc32c.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

static gwi_manifest_length lengths[] = {{4, 700}, {16, 300}};
static gwi_manifest_part parts[] = {{0, 0, 600, 12345, 0xdeadbeef}, {3, 1, 400, 999, 7}};

static gwi_manifest example(void)
{
    static char meta[] = "{\"epoch\": 3, \"tags\": [\"a\", null, {\"x\": 1.5e-3}]}";

    return (gwi_manifest){.save = "20261116-101500-3f2a9c71",
                          .created = "2026-11-16T10:15:00Z",
                          .library = "0.1.0",
                          .n_keys = 1000,
                          .dtype = GW_F64,
                          .ranks = 4,
                          .nodes = 2,
                          .lengths = lengths,
                          .n_lengths = 2,
                          .parts = parts,
                          .n_parts = 2,
                          .meta = meta};
}

/* Kept from becoming part of its callers, where GCC 12 sees pointers that dangle. */
static __attribute__((noinline)) char *print(const gwi_manifest *m, size_t *ret_bytes)
{
    char *text = NULL;

    assert_int_equal(gwi_manifest_print(m, &text, ret_bytes), 0);
    return text;
}

static void what_is_printed_is_read(void **state)
{
    gwi_manifest m = example(), found;
    size_t n;
    char *text = print(&m, &n), name[96];

    (void)state;
    assert_int_equal(gwi_manifest_parse(text, n, &found), 0);
    assert_string_equal(found.save, m.save);
    assert_string_equal(found.created, m.created);
    assert_string_equal(found.library, m.library);
    assert_string_equal(found.meta, m.meta);
    assert_true(found.n_keys == 1000 && found.dtype == GW_F64 && found.ranks == 4 &&
                found.nodes == 2 && found.n_lengths == 2 && found.n_parts == 2);
    assert_memory_equal(found.lengths, lengths, sizeof lengths);
    for (int i = 0; i < 2; i++)
        assert_true(found.parts[i].rank == parts[i].rank && found.parts[i].node == parts[i].node &&
                    found.parts[i].n_keys == parts[i].n_keys &&
                    found.parts[i].n_bytes == parts[i].n_bytes &&
                    found.parts[i].crc == parts[i].crc);
    gwi_manifest_part_name(&found, 3, name, sizeof name);
    assert_string_equal(name, "save-20261116-101500-3f2a9c71/part-00003.safetensors");
    gwi_manifest_fini(&found);
    free(text);
}

static void every_wrong_byte_and_every_cut_is_noticed(void **state)
{
    gwi_manifest m = example(), found;
    size_t n;
    char *text = print(&m, &n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        text[i] ^= 1;
        assert_int_equal(gwi_manifest_parse(text, n, &found), GW_EINVAL);
        text[i] ^= 1;
        assert_int_equal(gwi_manifest_parse(text, i, &found), GW_EINVAL);
    }
    free(text);
}

/* Replace a piece of the text, and let the sum be right. */
static int parse_with(const char *from, const char *to)
{
    gwi_manifest m = example(), found;
    size_t n, tail = strlen(",\n\"crc32c\": \"00000000\"\n}\n");
    char *text = print(&m, &n), changed[4096];
    char *at = strstr(text, from);

    assert_non_null(at);
    int length = snprintf(changed, sizeof changed, "%.*s%s%.*s", (int)(at - text), text, to,
                          (int)(n - tail - strlen(from)) - (int)(at - text), at + strlen(from));
    snprintf(changed + length, sizeof changed - (size_t)length, ",\n\"crc32c\": \"%08x\"\n}\n",
             (unsigned)gwi_crc32c(0, changed, (size_t)length));
    int err = gwi_manifest_parse(changed, strlen(changed), &found);
    if (err == 0)
        gwi_manifest_fini(&found);
    free(text);
    return err;
}

static void what_makes_no_sense_is_refused_though_its_sum_is_right(void **state)
{
    (void)state;
    assert_int_equal(parse_with("\"epoch\": 3", "\"epoch\": 4"), 0);
    assert_int_equal(parse_with("\"version\": 1", "\"version\": 2"), GW_EINVAL);
    assert_int_equal(parse_with("godwit checkpoint", "something else"), GW_EINVAL);
    assert_int_equal(parse_with("\"save\": \"20261116", "\"save\": \"../61116"), GW_EINVAL);
    assert_int_equal(parse_with("part-00003", "part-00002"), GW_EINVAL);
    assert_int_equal(parse_with("save-20261116-101500-3f2a9c71/part-00003", "/etc/passwd"),
                     GW_EINVAL);
    assert_int_equal(parse_with("float64", "float16"), GW_EINVAL);
    assert_int_equal(parse_with("\"num_keys\": 1000", "\"num_keys\": 1001"), GW_EINVAL);
    assert_int_equal(parse_with("\"keys\": 400", "\"keys\": 9223372036854775807"), GW_EINVAL);
    assert_int_equal(parse_with("\"length\": 4", "\"length\": 0"), GW_EINVAL);
    assert_int_equal(parse_with("\"ranks\": 4,\n", ""), GW_EINVAL);
    assert_int_equal(parse_with("{\"epoch\"", "[{\"epoch\""), GW_EINVAL);
}

GWI_TESTS(cmocka_unit_test(what_is_printed_is_read),
          cmocka_unit_test(every_wrong_byte_and_every_cut_is_noticed),
          cmocka_unit_test(what_makes_no_sense_is_refused_though_its_sum_is_right))
