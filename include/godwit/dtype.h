/* dtype.h - the types of entries that arrays can have.                        */
#ifndef GODWIT_DTYPE_H
#define GODWIT_DTYPE_H

/* Named as in PyTorch and NumPy.
 *
 *    id    name        bytes */
/* clang-format off */
#define GW_DTYPES(X)          \
    X(U8,   uint8,      1)    \
    X(I8,   int8,       1)    \
    X(I16,  int16,      2)    \
    X(I32,  int32,      4)    \
    X(I64,  int64,      8)    \
    X(BOOL, bool,       1)    \
    X(F16,  float16,    2)    \
    X(BF16, bfloat16,   2)    \
    X(F32,  float32,    4)    \
    X(F64,  float64,    8)    \
    X(C64,  complex64,  8)    \
    X(C128, complex128, 16)
/* clang-format on */

#define GW_DTYPE_ID(id, name, bytes) GW_##id,
typedef enum gw_dtype { GW_DTYPES(GW_DTYPE_ID) GW_N_DTYPES } gw_dtype;
#undef GW_DTYPE_ID

#endif
