/* option_test.c - options are read from the environment or refused by name. */
#include "base/option.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

static int clean(void **state)
{
    (void)state;
    for (int i = 0; i < GWI_N_OPTIONS; i++)
        unsetenv(gwi_option_name((gwi_option)i));
    return 0;
}

static void an_option_that_is_not_given_has_no_value(void **state)
{
    (void)state;
    int value = 77;

    assert_int_equal(gwi_option_int(GWI_OPTION_RANK, &value), 0);
    assert_int_equal(value, 77);
    setenv("GODWIT_RANK", "", 1);
    assert_int_equal(gwi_option_int(GWI_OPTION_RANK, &value), 0);
}

static void a_given_number_is_read(void **state)
{
    (void)state;
    int value;

    setenv("GODWIT_RANK", "3", 1);
    assert_int_equal(gwi_option_int(GWI_OPTION_RANK, &value), 1);
    assert_int_equal(value, 3);
}

static void a_bad_number_is_refused_with_its_name_and_value(void **state)
{
    (void)state;
    static const char *const bad[] = {"x", "3x", "-1", "99999999999999999999", "1.5", " "};
    int value = 5;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("GODWIT_SIZE", bad[i], 1);
        assert_int_equal(gwi_option_int(GWI_OPTION_SIZE, &value), GW_EINVAL);
        assert_non_null(strstr(gw_last_error(), "GODWIT_SIZE"));
        assert_non_null(strstr(gw_last_error(), bad[i]));
        assert_int_equal(value, 5);
    }
}

static void seconds_have_a_default_and_must_be_positive(void **state)
{
    (void)state;
    double value = 0;

    assert_int_equal(gwi_option_seconds(GWI_OPTION_TIMEOUT, &value), 1);
    assert_true(value == 300);
    setenv("GODWIT_TIMEOUT", "2.5", 1);
    assert_int_equal(gwi_option_seconds(GWI_OPTION_TIMEOUT, &value), 1);
    assert_true(value == 2.5);
    static const char *const bad[] = {"0", "-3", "nan", "inf", "soon"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("GODWIT_TIMEOUT", bad[i], 1);
        assert_int_equal(gwi_option_seconds(GWI_OPTION_TIMEOUT, &value), GW_EINVAL);
    }
}

static void the_table_lists_every_option_with_help_and_problems(void **state)
{
    (void)state;
    gw_option_info info = {.size = sizeof info};
    int n = 0;

    setenv("GODWIT_SIZE", "many", 1);
    while (gw_option_get(n, &info) == 0) {
        assert_int_equal(strncmp(info.name, "GODWIT_", 7), 0);
        assert_true(strlen(info.help) > 10);
        assert_int_equal(info.given, strcmp(info.name, "GODWIT_SIZE") == 0);
        assert_int_equal(info.problem[0] != '\0', info.given);
        n++;
    }
    assert_int_equal(n, GWI_N_OPTIONS);
}

GWI_TESTS(cmocka_unit_test_setup(an_option_that_is_not_given_has_no_value, clean),
          cmocka_unit_test_setup(a_given_number_is_read, clean),
          cmocka_unit_test_setup(a_bad_number_is_refused_with_its_name_and_value, clean),
          cmocka_unit_test_setup(seconds_have_a_default_and_must_be_positive, clean),
          cmocka_unit_test_setup(the_table_lists_every_option_with_help_and_problems, clean))
