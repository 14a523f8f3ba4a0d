/* hello_test.c - good hellos and answers are read, all others are refused with a reason. */
#include "fabric/host/hello.h"
#include "base/error.h"
#include "base/test.h"

#include <string.h>

enum { LAYOUT = 7, SIZE = 4 };

static gwi_hello hello_as(int rank)
{
    gwi_job job = {.rank = rank, .size = SIZE, .node_size = 2};

    return gwi_hello_of(&job, LAYOUT);
}

static void a_hello_is_read_as_it_was_said(void **state)
{
    (void)state;
    gwi_hello mine = hello_as(0), got;
    char why[GWI_HELLO_WHY_BYTES];

    for (int rank = -1; rank < SIZE; rank++) {
        gwi_hello said = hello_as(rank);
        assert_int_equal(gwi_hello_read(&mine, &said, sizeof said, mine.pid, &got, why), 1);
        assert_memory_equal(&got, &said, sizeof said);
    }
}

static void expect_refused(const gwi_hello *said, size_t n_bytes, const char *word)
{
    gwi_hello mine = hello_as(0), got = {.rank = -1};
    char why[GWI_HELLO_WHY_BYTES] = "";

    assert_int_equal(gwi_hello_read(&mine, said, n_bytes, mine.pid, &got, why), 0);
    assert_non_null(strstr(why, word));
}

static void a_hello_that_does_not_fit_is_refused_with_the_reason(void **state)
{
    (void)state;
    const gwi_hello good = hello_as(1);
    gwi_hello h[8] = {good, good, good, good, good, good, good, good};

    expect_refused(&h[0], sizeof h[0] - 1, "another version");
    expect_refused(&h[0], sizeof h[0] + 1, "another version");
    expect_refused(&h[0], 0, "another version");
    h[1].magic++;
    expect_refused(&h[1], sizeof h[1], "another version");
    h[2].layout++;
    expect_refused(&h[2], sizeof h[2], "another version");
    h[3].pid++;
    expect_refused(&h[3], sizeof h[3], "PID namespace");
    h[4].size++;
    expect_refused(&h[4], sizeof h[4], "5 processes");
    h[5].node_size++;
    expect_refused(&h[5], sizeof h[5], "node has 3");
    h[6].rank = SIZE;
    expect_refused(&h[6], sizeof h[6], "rank 4; ranks go from 0 to 3");
    h[7].rank = -2;
    expect_refused(&h[7], sizeof h[7], "rank -2");
}

static int answer(int my_rank, int status, int rank, int has_descriptor)
{
    gwi_hello mine = hello_as(my_rank);
    gwi_answer said = {.status = status, .rank = rank, .text = "no room today"}, got;

    return gwi_answer_read(&mine, &said, sizeof said, has_descriptor, 4711, &got);
}

static void a_good_answer_is_believed(void **state)
{
    (void)state;
    assert_int_equal(answer(1, GWI_NOTED, -1, 0), GWI_NOTED);
    assert_int_equal(answer(1, GWI_NOTED, 0, 0), GWI_NOTED);
    assert_int_equal(answer(1, GWI_WELCOME, 1, 1), GWI_WELCOME);
    assert_int_equal(answer(-1, GWI_WELCOME, 3, 1), GWI_WELCOME);
    assert_int_equal(answer(1, GW_ENOMEM, 0, 0), GW_ENOMEM);
    assert_string_equal(gw_last_error(), "no room today");
}

static void an_answer_that_makes_no_sense_is_an_error_that_names_the_gatherer(void **state)
{
    (void)state;
    static const struct {
        int my_rank, status, rank, has_descriptor;
    } cases[] = {
        {1, 0, 0, 0},
        {1, 3, 0, 1},
        {1, -9999, 0, 0},
        {1, INT32_MIN, 0, 0},
        {1, GWI_NOTED, SIZE, 0},
        {1, GWI_NOTED, -2, 0},
        {1, GWI_WELCOME, 1, 0},
        {1, GWI_WELCOME, 2, 1},
        {-1, GWI_WELCOME, SIZE, 1},
        {-1, GWI_WELCOME, -1, 1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gwi_fail(GW_EINVAL, "nothing yet");
        assert_int_equal(
            answer(cases[i].my_rank, cases[i].status, cases[i].rank, cases[i].has_descriptor),
            GW_EBROKEN);
        assert_non_null(strstr(gw_last_error(), "4711"));
    }
}

static void an_answer_of_another_length_is_an_error(void **state)
{
    (void)state;
    gwi_hello mine = hello_as(1);
    gwi_answer said[2] = {{.status = GWI_NOTED}}, got;

    assert_int_equal(gwi_answer_read(&mine, said, sizeof said[0] - 1, 0, 4711, &got), GW_EBROKEN);
    assert_int_equal(gwi_answer_read(&mine, said, sizeof said[0] + 1, 0, 4711, &got), GW_EBROKEN);
    assert_int_equal(gwi_answer_read(&mine, said, 0, 0, 4711, &got), GW_EBROKEN);
}

static void the_text_of_a_refusal_ends_even_if_it_was_sent_without_an_end(void **state)
{
    (void)state;
    gwi_hello mine = hello_as(1);
    gwi_answer said = {.status = GW_EDISAGREE}, got;

    memset(said.text, 'x', sizeof said.text);
    assert_int_equal(gwi_answer_read(&mine, &said, sizeof said, 0, 4711, &got), GW_EDISAGREE);
    assert_int_equal(strlen(gw_last_error()), sizeof said.text - 1);
}

GWI_TESTS(cmocka_unit_test(a_hello_is_read_as_it_was_said),
          cmocka_unit_test(a_hello_that_does_not_fit_is_refused_with_the_reason),
          cmocka_unit_test(a_good_answer_is_believed),
          cmocka_unit_test(an_answer_that_makes_no_sense_is_an_error_that_names_the_gatherer),
          cmocka_unit_test(an_answer_of_another_length_is_an_error),
          cmocka_unit_test(the_text_of_a_refusal_ends_even_if_it_was_sent_without_an_end))
