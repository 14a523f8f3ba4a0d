/* part_test.c - heads of parts: what is written is read, and what is wrong is refused. */
#include "params/part.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAVE "20261116-101500-3f2a9c71"

static char *plan(gwi_part_file *part, size_t n_classes, const uint64_t (*classes)[2])
{
    char *head = NULL;

    *part = (gwi_part_file){.n_classes = n_classes,
                            .classes = calloc(n_classes, sizeof *part->classes)};
    for (size_t c = 0; c < n_classes; c++) {
        part->classes[c].length = classes[c][0];
        part->classes[c].n_keys = classes[c][1];
    }
    assert_int_equal(gwi_part_plan(part, GW_F32, n_classes > 1, SAVE, &head), 0);
    return head;
}

static void what_is_planned_is_read(void **state)
{
    static const uint64_t classes[][2] = {{16, 3}, {1, 5}, {64, 1}};
    gwi_part_file planned, found;

    (void)state;
    for (size_t n = 1; n <= 3; n += 2) {
        char *head = plan(&planned, n, classes);
        assert_int_equal(planned.head_bytes % 8, 0);
        assert_int_equal(
            gwi_part_parse(head + 8, planned.head_bytes - 8, planned.n_bytes, SAVE, &found), 0);
        assert_true(found.n_classes == n && found.n_keys == planned.n_keys &&
                    found.dtype == GW_F32 && found.head_bytes == planned.head_bytes);
        for (size_t c = 0; c < n; c++)
            assert_memory_equal(&found.classes[c], &planned.classes[c], sizeof *found.classes);
        gwi_part_fini(&found);
        gwi_part_fini(&planned);
        free(head);
    }
}

static int parse(const char *head, uint64_t n_bytes, const char *save)
{
    gwi_part_file part;
    int err = gwi_part_parse(head, strlen(head), n_bytes, save, &part);

    if (err == 0)
        gwi_part_fini(&part);
    return err;
}

#define META "\"__metadata__\":{\"save\":\"" SAVE "\"}"
#define KEYS "\"keys\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}"
#define VALUES "\"values\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]}"

static void heads_that_make_no_sense_are_refused(void **state)
{
    static const char good[] = "{" META "," KEYS "," VALUES "}";
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "{" KEYS "," VALUES "}",
        "{" META "," KEYS "}",
        "{" META "," VALUES "}",
        "{" META "," KEYS "," VALUES "," KEYS "}", /* twice */
        "{" META "," KEYS "," VALUES "} x",
        "{" META "," KEYS
        ",\"values\":{\"dtype\":\"F16\",\"shape\":[2,6],\"data_offsets\":[16,40]}}",
        "{" META "," KEYS
        ",\"values\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[16,40]}}",
        "{" META "," KEYS
        ",\"values\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,36]}}",
        "{" META "," KEYS
        ",\"values\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]}}",
        "{" META "," KEYS
        ",\"values\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40,1]}}",
        "{" META "," KEYS ",\"values\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[16,40]}}",
        "{" META "," KEYS ",\"values\":{\"dtype\":\"F32\",\"shape\":[2,3]}}",
        "{" META "," KEYS ",\"values\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],"
        "\"data_offsets\":[16,40]}}",
        "{" META "," KEYS
        ",\"values.4\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]}}",
        "{" META "," KEYS
        ",\"other\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]}}",
        "{\"__metadata__\":{\"save\":7}," KEYS "," VALUES "}",
    };

    (void)state;
    assert_int_equal(parse(good, 8 + strlen(good) + 40, SAVE), 0);
    assert_int_equal(parse(good, 8 + strlen(good) + 41, SAVE), GW_EINVAL);
    assert_int_equal(parse(good, 8 + strlen(good) + 40, "20261116-101500-00000000"), GW_EINVAL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse(bad[i], 8 + strlen(bad[i]) + 40, SAVE) != GW_EINVAL)
            fail_msg("%s was let in", bad[i]);
}

static void a_file_of_another_length_is_named(void **state)
{
    static const uint64_t classes[][2] = {{4, 10}};
    char path[] = "/tmp/gw-part-XXXXXX";
    gwi_part_file planned, found;
    char *head = plan(&planned, 1, classes);
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && write(fd, head, planned.head_bytes) == (ssize_t)planned.head_bytes);
    assert_int_equal(gwi_part_read(fd, path, planned.n_bytes, SAVE, &found), GW_EINVAL);
    assert_non_null(strstr(gw_last_error(), path));
    assert_non_null(strstr(gw_last_error(), "truncated"));
    assert_int_equal(ftruncate(fd, (off_t)planned.n_bytes), 0);
    assert_int_equal(gwi_part_read(fd, path, planned.n_bytes, SAVE, &found), 0);
    gwi_part_fini(&found);
    assert_true(pwrite(fd, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, 0) == 8);
    assert_int_equal(gwi_part_read(fd, path, planned.n_bytes, SAVE, &found), GW_EINVAL);
    assert_non_null(strstr(gw_last_error(), path));
    close(fd);
    unlink(path);
    gwi_part_fini(&planned);
    free(head);
}

GWI_TESTS(cmocka_unit_test(what_is_planned_is_read),
          cmocka_unit_test(heads_that_make_no_sense_are_refused),
          cmocka_unit_test(a_file_of_another_length_is_named))
