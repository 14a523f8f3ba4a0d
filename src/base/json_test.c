/* json_test.c - what is JSON is read, and what is not is refused. */
#include "base/json.h"
#include "base/test.h"

#include <stdio.h>
#include <string.h>

static const char *problem_of(const char *text)
{
    gwi_json j = gwi_json_of(text, strlen(text));

    gwi_json_skip(&j, NULL);
    gwi_json_end(&j);
    assert_true(j.at >= j.begin && j.at <= j.end);
    return j.problem;
}

static void what_is_json_is_passed(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        " [ 1 , -2.5e+3,0, 0.0E-1 ] ",
        "true",
        "null",
        "\"\"",
        "{\"a\": {\"b\": [1, {\"c\": false}]}, \"\": \"\\u00e9\\ud83d\\ude00\\n\"}",
        "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_null(problem_of(texts[i]));
}

static void what_is_not_json_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "[1,]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "01",
        "-",
        "1.",
        "1e",
        "+1",
        "NaN",
        "nul",
        "\"",
        "\"\n\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\xff\"",
        "\"\xc0\xaf\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xe2\x82\"",
        "1 2",
        "{}}",
        "'a'",
        "[1}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (problem_of(texts[i]) == NULL)
            fail_msg("%s was let in", texts[i]);
}

static void brackets_in_each_other_have_a_limit(void **state)
{
    char text[2 * GWI_JSON_DEPTH + 8] = "";

    (void)state;
    memset(text, '[', GWI_JSON_DEPTH);
    memset(text + GWI_JSON_DEPTH, ']', GWI_JSON_DEPTH);
    assert_null(problem_of(text));
    memset(text, '[', GWI_JSON_DEPTH + 1);
    memset(text + GWI_JSON_DEPTH + 1, ']', GWI_JSON_DEPTH + 1);
    assert_non_null(problem_of(text));
}

static void members_are_read_one_by_one(void **state)
{
    const char text[] = "{\"name\": \"a\\tb\\u00e9\", \"rows\": [1, 9223372036854775807], "
                        "\"other\": {\"x\": [true]}}";
    gwi_json j = gwi_json_of(text, strlen(text));
    char name[8], value[16] = "";
    int64_t rows[2] = {0};
    const char *other = NULL;
    size_t other_bytes = 0;

    (void)state;
    for (int n = gwi_json_object(&j); gwi_json_member(&j, &n, name, sizeof name);)
        if (strcmp(name, "name") == 0) {
            gwi_json_text(&j, value, sizeof value);
        } else if (strcmp(name, "rows") == 0) {
            int i = 0;
            for (int m = gwi_json_array(&j); gwi_json_element(&j, &m);)
                rows[i++ % 2] = gwi_json_number(&j);
        } else {
            other_bytes = gwi_json_skip(&j, &other);
        }
    gwi_json_end(&j);
    assert_null(j.problem);
    assert_string_equal(value, "a\tb\xc3\xa9");
    assert_true(rows[0] == 1 && rows[1] == INT64_MAX);
    assert_true(other_bytes == 13 && memcmp(other, "{\"x\": [true]}", 13) == 0);
}

static void a_number_or_text_that_does_not_fit_is_refused(void **state)
{
    static const char *const numbers[] = {
        "9223372036854775808", "-1", "1.5", "1e3", "007", "\"1\"", ""};
    char small[4];

    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        gwi_json j = gwi_json_of(numbers[i], strlen(numbers[i]));
        assert_true(gwi_json_number(&j) == 0 && j.problem != NULL);
    }
    gwi_json fits = gwi_json_of("\"abc\"", 5), does_not = gwi_json_of("\"abcd\"", 6),
             zero = gwi_json_of("\"\\u0000\"", 8);
    gwi_json_text(&fits, small, sizeof small);
    assert_true(fits.problem == NULL && strcmp(small, "abc") == 0);
    gwi_json_text(&does_not, small, sizeof small);
    assert_true(does_not.problem != NULL && small[0] == 0);
    gwi_json_text(&zero, small, sizeof small);
    assert_non_null(zero.problem);
}

GWI_TESTS(cmocka_unit_test(what_is_json_is_passed), cmocka_unit_test(what_is_not_json_is_refused),
          cmocka_unit_test(brackets_in_each_other_have_a_limit),
          cmocka_unit_test(members_are_read_one_by_one),
          cmocka_unit_test(a_number_or_text_that_does_not_fit_is_refused))
