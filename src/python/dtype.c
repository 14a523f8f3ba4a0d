/* dtype.c - translates the types of entries. */
#include "dtype.h"
#include "dlpack.h"

#include <string.h>

const gwi_dtype_info gwi_dtype_table[GWI_N_DTYPES] = {
#define LINE(id, name, bytes, align, dl) {#name, bytes, align, dl},
    GWI_DTYPES(LINE)
#undef LINE
};

int gwi_dtype_from_name(const char *name)
{
    for (int i = 0; i < GWI_N_DTYPES; i++)
        if (strcmp(gwi_dtype_table[i].name, name) == 0)
            return i;
    return GWI_DTYPE_UNKNOWN;
}

static int find(unsigned code, ptrdiff_t bytes)
{
    for (int i = 0; i < GWI_N_DTYPES; i++)
        if (gwi_dtype_table[i].dl_code == code && gwi_dtype_table[i].bytes == bytes)
            return i;
    return GWI_DTYPE_UNKNOWN;
}

int gwi_dtype_from_dlpack(unsigned code, unsigned bits, unsigned lanes)
{
    /* The two that most tensors have, without a search. */
    if (code == DL_FLOAT && bits == 32 && lanes == 1)
        return GWI_F32;
    if (code == DL_INT && bits == 64 && lanes == 1)
        return GWI_I64;
    return lanes == 1 && bits % 8 == 0 ? find(code, bits / 8) : GWI_DTYPE_UNKNOWN;
}

/* DLPack's code for a letter of the struct module, or -1. */
static int code_of_letter(char letter)
{
    static const struct {
        const char *letters;
        int code;
    } kinds[] = {{"bhilqn", DL_INT}, {"BHILQNc", DL_UINT}, {"efd", DL_FLOAT}, {"?", DL_BOOL}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && letter != '\0'; i++)
        if (strchr(kinds[i].letters, letter) != NULL)
            return kinds[i].code;
    return -1;
}

int gwi_dtype_from_format(const char *format, ptrdiff_t item_bytes)
{
    const int one = 1;
    const char foreign = *(const char *)&one == 1 ? '>' : '<';
    char order = '@';

    if (format == NULL)
        return item_bytes == 1 ? GWI_U8 : GWI_DTYPE_UNKNOWN;
    if (*format != '\0' && strchr("@=<>!^", *format) != NULL)
        order = *format == '!' ? '>' : *format, format++;

    int is_complex = *format == 'Z';
    int code = code_of_letter(format[is_complex]);
    if (code < 0 || format[is_complex + 1] != '\0')
        return GWI_DTYPE_UNKNOWN;
    if (is_complex)
        code = code == DL_FLOAT ? DL_COMPLEX : -1;

    int dtype = find((unsigned)code, item_bytes);
    if (dtype >= 0 && item_bytes > 1 && order == foreign)
        return GWI_DTYPE_FOREIGN_ORDER;
    return dtype;
}
