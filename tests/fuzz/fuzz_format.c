/* fuzz_format.c - a buffer's format names the type of its entries, or none.
 *
 * The first byte is the size of an entry, the rest is the format.            */
#include "fuzz.h"

#include "python/dlpack.h"
#include "python/dtype.h"

/* The kind of number that a letter of the struct module stands for. */
static unsigned code_of(char letter)
{
    return letter == '?'              ? DL_BOOL
           : strchr("efd", letter)    ? DL_FLOAT
           : strchr("bhilqn", letter) ? DL_INT
                                      : DL_UINT;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input in = {bytes, n_bytes};
    ptrdiff_t item_bytes = (int8_t)next_number(&in, 1);
    char *format = strndup((const char *)in.at, in.left);
    const char *letters = format + strspn(format, "@=<>!^");
    int dtype = gwi_dtype_from_format(format, item_bytes);

    REQUIRE(dtype >= GWI_DTYPE_FOREIGN_ORDER && dtype < GWI_N_DTYPES);
    if (dtype != GWI_DTYPE_UNKNOWN) {
        int is_complex = letters[0] == 'Z';
        REQUIRE(letters - format <= 1 && strlen(letters) == 1u + (unsigned)is_complex);
        REQUIRE(strchr("bhilqnBHILQNcefd?", letters[is_complex]) != NULL);
        REQUIRE(!is_complex || code_of(letters[1]) == DL_FLOAT);
        REQUIRE(dtype >= 0 ? format[0] != '>' || item_bytes == 1
                           : format[0] == '>' || format[0] == '!');
        if (dtype >= 0)
            REQUIRE(gwi_dtype_table[dtype].bytes == item_bytes &&
                    gwi_dtype_table[dtype].dl_code ==
                        (is_complex ? DL_COMPLEX : code_of(letters[0])));
    }
    REQUIRE(gwi_dtype_from_name(format) < GWI_N_DTYPES);
    free(format);
    return 0;
}

static void plant_seeds(void)
{
    static const char *const seeds[] = {"\4f",  "\10<d", "\10Zf", "\20>Zd", "\1?",
                                        "\10l", "\4=l",  "\1c",   "\2!e",   "\10T{f:x:}"};

    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        plant(seeds[i], strlen(seeds[i]));
}
