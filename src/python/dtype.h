/* dtype.h - the types of entries that Godwit knows, and their names elsewhere. */
#ifndef GWI_PYTHON_DTYPE_H
#define GWI_PYTHON_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* PyTorch and NumPy call them by the same names.  DLPack has a code and a
 * number of bits, the buffer protocol a letter.
 *
 *    id   name        bytes  align  DLPack                               */
/* clang-format off */
#define GWI_DTYPES(X)                                                     \
    X(U8,   uint8,      1,     1,     DL_UINT)                            \
    X(I8,   int8,       1,     1,     DL_INT)                             \
    X(I16,  int16,      2,     2,     DL_INT)                             \
    X(I32,  int32,      4,     4,     DL_INT)                             \
    X(I64,  int64,      8,     8,     DL_INT)                             \
    X(BOOL, bool,       1,     1,     DL_BOOL)                            \
    X(F16,  float16,    2,     2,     DL_FLOAT)                           \
    X(BF16, bfloat16,   2,     2,     DL_BFLOAT)                          \
    X(F32,  float32,    4,     4,     DL_FLOAT)                           \
    X(F64,  float64,    8,     8,     DL_FLOAT)                           \
    X(C64,  complex64,  8,     4,     DL_COMPLEX)                         \
    X(C128, complex128, 16,    8,     DL_COMPLEX)
/* clang-format on */

#define GWI_DTYPE_ID(id, name, bytes, align, dl) GWI_##id,
typedef enum gwi_dtype { GWI_DTYPES(GWI_DTYPE_ID) GWI_N_DTYPES } gwi_dtype;
#undef GWI_DTYPE_ID

#define GWI_DTYPE_BIT(dtype) (1u << (dtype))

typedef struct gwi_dtype_info {
    const char *name;
    uint8_t bytes;
    uint8_t align;
    uint8_t dl_code;
} gwi_dtype_info;

extern const gwi_dtype_info gwi_dtype_table[GWI_N_DTYPES];

/* Each returns a gwi_dtype, or one of these. */
enum { GWI_DTYPE_UNKNOWN = -1, GWI_DTYPE_FOREIGN_ORDER = -2 };

int gwi_dtype_from_name(const char *name);
int gwi_dtype_from_dlpack(unsigned code, unsigned bits, unsigned lanes);

/* `format` as the struct module has it, NULL for bytes.  The letter says which
 * kind, `item_bytes` how wide: "l" has 8 bytes here and 4 in "<l". */
int gwi_dtype_from_format(const char *format, ptrdiff_t item_bytes);

#endif
