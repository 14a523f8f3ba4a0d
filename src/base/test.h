/* test.h - what every unit test needs: cmocka, and the main function.
 *
 * A test file ends with GWI_TESTS(cmocka_unit_test(...), ...).               */
#ifndef GWI_BASE_TEST_H
#define GWI_BASE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* needs the four above */

#define GWI_TESTS(...)                                    \
    int main(void)                                        \
    {                                                     \
        const struct CMUnitTest tests[] = {__VA_ARGS__};  \
        return cmocka_run_group_tests(tests, NULL, NULL); \
    }

#endif
