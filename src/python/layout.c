/* layout.c - the arithmetic of shapes and strides, none of which may overflow. */
#include "layout.h"

#include <stdbool.h>

void gwi_layout_set_dtype(gwi_layout *layout, int dtype)
{
    layout->dtype = (uint8_t)dtype;
    layout->item_bytes = gwi_dtype_table[dtype].bytes;
}

static gwi_fault set_dense(gwi_layout *layout)
{
    int64_t stride = layout->item_bytes;

    for (int i = layout->ndim; i-- > 0;) {
        layout->stride_bytes[i] = stride;
        if (__builtin_mul_overflow(stride, layout->shape[i], &stride))
            return GWI_FAULT_TOO_LARGE;
    }
    return GWI_FAULT_NONE;
}

gwi_fault gwi_layout_set_dims(gwi_layout *layout, long long ndim, const int64_t *shape,
                              const int64_t *strides, int64_t unit)
{
    if (ndim < 0 || ndim > GWI_MAX_DIMS)
        return GWI_FAULT_DIMS;
    if (ndim > 0 && shape == NULL)
        return GWI_FAULT_NO_SHAPE;
    layout->ndim = (int32_t)ndim;
    for (int i = 0; i < ndim; i++)
        layout->shape[i] = shape[i];
    if (strides == NULL)
        return set_dense(layout);
    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(strides[i], unit, &layout->stride_bytes[i])) {
            if (shape[i] > 1)
                return GWI_FAULT_TOO_LARGE;
            layout->stride_bytes[i] = 0; /* of a single entry it means nothing */
        }
    return GWI_FAULT_NONE;
}

gwi_fault gwi_layout_from_dlpack(const dl_tensor *tensor, gwi_layout *ret_layout)
{
    if (tensor->device_type != DL_CPU && tensor->device_type != DL_CUDA_HOST &&
        tensor->device_type != DL_ROCM_HOST)
        return GWI_FAULT_DEVICE;
    int dtype = gwi_dtype_from_dlpack(tensor->dtype_code, tensor->dtype_bits, tensor->dtype_lanes);
    if (dtype < 0)
        return GWI_FAULT_DTYPE;
    gwi_layout_set_dtype(ret_layout, dtype);

    uintptr_t address = (uintptr_t)tensor->data;
    if (address != 0 && __builtin_add_overflow(address, tensor->byte_offset, &address))
        return GWI_FAULT_TOO_LARGE;
    ret_layout->data = (void *)address;
    return gwi_layout_set_dims(ret_layout, tensor->ndim, tensor->shape, tensor->strides,
                               ret_layout->item_bytes);
}

/* How far the entries reach in memory, seen from the first: from `low`, which is
 * not above 0, to the end of the one at `high`. */
struct reach {
    int64_t low, high;
};

static bool extend(struct reach *reach, int64_t size, int64_t stride)
{
    int64_t distance, *end = stride < 0 ? &reach->low : &reach->high;

    return !__builtin_mul_overflow(size - 1, stride, &distance) &&
           !__builtin_add_overflow(*end, distance, end);
}

static bool in_address_space(const gwi_layout *layout, const struct reach *reach)
{
    uint64_t address = (uintptr_t)layout->data, end;

    return 0 - (uint64_t)reach->low <= address &&
           !__builtin_add_overflow(address, (uint64_t)reach->high + layout->item_bytes, &end);
}

gwi_fault gwi_layout_check(gwi_layout *layout, unsigned wishes)
{
    int64_t align_mask = gwi_dtype_table[layout->dtype].align - 1;
    int64_t misaligned = (intptr_t)layout->data & align_mask;
    int64_t n_bytes = layout->item_bytes;
    struct reach reach = {0, 0};
    bool dense = true, shared = false, empty = false, fits = true;

    for (int i = layout->ndim; i-- > 0;) {
        int64_t size = layout->shape[i], stride = layout->stride_bytes[i];
        if (size < 0)
            return GWI_FAULT_SIZE;
        empty |= size == 0;
        if (size <= 1)
            continue;
        dense &= stride == n_bytes;
        shared |= stride == 0;
        misaligned |= stride & align_mask;
        fits &= extend(&reach, size, stride) && !__builtin_mul_overflow(n_bytes, size, &n_bytes);
    }
    layout->n = empty ? 0 : n_bytes / layout->item_bytes;
    if (empty)
        return GWI_FAULT_NONE;
    if (layout->data == NULL)
        return GWI_FAULT_NO_MEMORY;
    if (!fits || !in_address_space(layout, &reach))
        return GWI_FAULT_TOO_LARGE;
    if (misaligned)
        return GWI_FAULT_MISALIGNED;
    if (!dense && (wishes & GWI_LAYOUT_DENSE) != 0)
        return GWI_FAULT_NOT_DENSE;
    if (shared && (wishes & GWI_LAYOUT_DISTINCT) != 0)
        return GWI_FAULT_SHARED;
    return GWI_FAULT_NONE;
}
