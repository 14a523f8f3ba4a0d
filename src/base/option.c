/* option.c - the table of options and its readers. */
#include "base/option.h"
#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum type { INT, SECONDS, TEXT };

static const struct row {
    const char *name;
    enum type type;
    int low, high;
    const char *value;
    const char *help;
} table[GWI_N_OPTIONS] = {
#define ROW(id, type, low, high, value, help) {"GODWIT_" #id, type, low, high, value, help},
    GWI_OPTIONS(ROW)
#undef ROW
};

const char *gwi_option_name(gwi_option option)
{
    return table[option].name;
}

static const char *given(const struct row *row)
{
    const char *text = getenv(row->name);

    return text != NULL && text[0] != '\0' ? text : NULL;
}

static const char *text_of(const struct row *row)
{
    const char *text = given(row);

    return text != NULL ? text : row->value;
}

int gwi_parse_int(const char *what, const char *text, int low, int high, int *ret_value)
{
    char *end;

    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < low || value > high)
        return gwi_fail(GW_EINVAL, "%s is '%s'; it must be a whole number from %d to %d", what,
                        text, low, high);
    *ret_value = (int)value;
    return 0;
}

static int parse_seconds(const struct row *row, const char *text, double *ret_value)
{
    char *end;

    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0) || !isfinite(value))
        return gwi_fail(GW_EINVAL,
                        "%s is '%s'; it must be a number of seconds above 0, such as 2.5",
                        row->name, text);
    *ret_value = value;
    return 0;
}

int gwi_option_int(gwi_option option, int *ret_value)
{
    const struct row *row = &table[option];
    const char *text = text_of(row);

    if (text == NULL)
        return 0;
    int err = gwi_parse_int(row->name, text, row->low, row->high, ret_value);
    return err < 0 ? err : 1;
}

int gwi_option_seconds(gwi_option option, double *ret_value)
{
    const char *text = text_of(&table[option]);

    if (text == NULL)
        return 0;
    int err = parse_seconds(&table[option], text, ret_value);
    return err < 0 ? err : 1;
}

int gwi_option_text(gwi_option option, const char **ret_value)
{
    const char *text = text_of(&table[option]);

    if (text == NULL)
        return 0;
    *ret_value = text;
    return 1;
}

static int check(int index)
{
    int number;
    double seconds;

    switch (table[index].type) {
    case INT:
        return gwi_option_int((gwi_option)index, &number);
    case SECONDS:
        return gwi_option_seconds((gwi_option)index, &seconds);
    case TEXT:
        break;
    }
    return 0;
}

int gw_option_get(int index, gw_option_info *ret_info)
{
    if (index < 0 || index >= GWI_N_OPTIONS)
        return gwi_fail(GW_ERANGE, "option %d: there are %d", index, GWI_N_OPTIONS);
    if (ret_info->size < sizeof *ret_info)
        return gwi_fail(GW_EINVAL, "ret_info->size is %zu; set it to sizeof(gw_option_info)",
                        ret_info->size);

    const struct row *row = &table[index];
    const char *text = text_of(row);

    ret_info->name = row->name;
    ret_info->help = row->help;
    ret_info->given = given(row) != NULL;
    snprintf(ret_info->value, sizeof ret_info->value, "%s", text != NULL ? text : "");
    snprintf(ret_info->problem, sizeof ret_info->problem, "%s",
             check(index) < 0 ? gw_last_error() : "");
    return 0;
}
