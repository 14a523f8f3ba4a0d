/* error_test.c - errors have names, texts and one sentence per thread. */
#include "base/error.h"
#include "base/test.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static void every_error_has_its_own_name_and_text(void **state)
{
    (void)state;
    static const int errors[] = {
#define VALUE(name, value, python, kind, text) value,
        GW_ERRORS(VALUE)
#undef VALUE
    };
    size_t n = sizeof errors / sizeof errors[0];

    for (size_t i = 0; i < n; i++) {
        assert_true(errors[i] < 0);
        assert_string_not_equal(gw_strerror(errors[i]), "unknown error");
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(errors[i], errors[j]);
            assert_string_not_equal(gw_errname(errors[i]), gw_errname(errors[j]));
        }
    }
    assert_string_equal(gw_strerror(-9999), "unknown error");
    assert_string_equal(gw_errname(-9999), "?");
    assert_string_equal(gw_strerror(GW_OK), "no error");
}

static void a_failure_leaves_its_sentence(void **state)
{
    (void)state;
    assert_int_equal(gwi_fail(GW_ERANGE, "key %d of %s", 7, "keys"), GW_ERANGE);
    assert_string_equal(gw_last_error(), "key 7 of keys");
}

static void a_sentence_may_quote_the_one_before(void **state)
{
    (void)state;
    gwi_fail(GW_ESYS, "inner");
    gwi_fail(GW_ESYS, "outer: %s", gw_last_error());
    assert_string_equal(gw_last_error(), "outer: inner");
}

static void a_sentence_may_be_very_long(void **state)
{
    (void)state;
    static char word[10000];
    memset(word, 'x', sizeof word - 1);
    gwi_fail(GW_EINVAL, "%s", word);
    assert_string_equal(gw_last_error(), word);
}

static void system_failures_say_what_errno_said(void **state)
{
    (void)state;
    errno = EACCES;
    assert_int_equal(gwi_fail_errno("open '%s'", "f"), GW_ESYS);
    assert_string_equal(gw_last_error(), "open 'f': Permission denied");
    errno = ENOSPC;
    assert_int_equal(gwi_fail_errno("reserve"), GW_ENOMEM);
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    gwi_fail(GW_EINVAL, "elsewhere");
    return NULL;
}

static void another_threads_failure_is_not_mine(void **state)
{
    (void)state;
    pthread_t thread;

    gwi_fail(GW_EINVAL, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(gw_last_error(), "here");
}

GWI_TESTS(cmocka_unit_test(every_error_has_its_own_name_and_text),
          cmocka_unit_test(a_failure_leaves_its_sentence),
          cmocka_unit_test(a_sentence_may_quote_the_one_before),
          cmocka_unit_test(a_sentence_may_be_very_long),
          cmocka_unit_test(system_failures_say_what_errno_said),
          cmocka_unit_test(another_threads_failure_is_not_mine))
