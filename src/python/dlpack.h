/* dlpack.h - the binary layout by which array libraries hand each other memory.
 *
 * These are facts of the DLPack ABI, major version 1, and of the unversioned
 * kind before it; only what Godwit reads is named.  A library gives them out
 * in three ways:
 *
 *   capsule "dltensor"             holds a dl_managed (PyTorch 1.13)
 *   capsule "dltensor_versioned"   holds a dl_managed_versioned
 *   type.__dlpack_c_exchange_api__ a capsule "dlpack_exchange_api" with a
 *                                  dl_exchange_api (PyTorch 2.10 and later)
 *
 * Whoever takes what a capsule holds renames it to "used_...", and calls the
 * deleter once when done.                                                    */
#ifndef GWI_PYTHON_DLPACK_H
#define GWI_PYTHON_DLPACK_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define DL_MAJOR 1 /* the only layout known here */
#define DL_MINOR 0 /* the oldest with everything below in a capsule */

/* Kinds of device whose memory this processor reads like its own. */
enum { DL_CPU = 1, DL_CUDA_HOST = 3, DL_ROCM_HOST = 11 };

enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6 };

typedef struct dl_version {
    uint32_t major, minor;
} dl_version;

typedef struct dl_tensor {
    void *data; /* the first entry lies byte_offset behind it */
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t dtype_code; /* DL_INT ... */
    uint8_t dtype_bits;
    uint16_t dtype_lanes; /* 1, but for vector types */
    int64_t *shape;
    int64_t *strides; /* in entries; NULL: dense, row by row */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *owner;
    void (*deleter)(struct dl_managed *self); /* may be NULL */
} dl_managed;

#define DL_READ_ONLY (UINT64_C(1) << 0)
#define DL_IS_COPY (UINT64_C(1) << 1)

/* With another major version only `version` and `deleter` mean the same. */
typedef struct dl_managed_versioned {
    dl_version version;
    void *owner;
    void (*deleter)(struct dl_managed_versioned *self); /* may be NULL */
    uint64_t flags;
    dl_tensor tensor;
} dl_managed_versioned;

/* A library's own functions, valid as long as the process.  They are called
 * with the GIL held; 0 is success, else a Python exception is set. */
typedef struct dl_exchange_api {
    dl_version version;
    const struct dl_exchange_api *older; /* the same for an older major version, or NULL */
    void *allocate;
    int (*managed_from_object)(void *object, dl_managed_versioned **ret_managed);
    void *managed_to_object;
    /* Gives no ownership: shape and strides belong to the object.  May be NULL. */
    int (*tensor_from_object)(void *object, dl_tensor *ret_tensor);
    void *current_stream;
} dl_exchange_api;

static_assert(sizeof(void *) == 8, "the offsets below are those of a 64-bit machine");
static_assert(sizeof(dl_tensor) == 48 && offsetof(dl_tensor, shape) == 24, "DLTensor");
static_assert(sizeof(dl_managed) == 64, "DLManagedTensor");
static_assert(offsetof(dl_managed_versioned, tensor) == 32, "DLManagedTensorVersioned");
static_assert(offsetof(dl_exchange_api, tensor_from_object) == 40, "DLPackExchangeAPI");

#endif
