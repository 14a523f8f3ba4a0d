/* layout_test.c - shapes and strides are worked out, and those that overflow refused. */
#include "layout.h"
#include "base/test.h"

#include <stdlib.h>

static dl_tensor tensor_of(void *data, int ndim, int64_t *shape, int64_t *strides)
{
    return (dl_tensor){.data = data,
                       .device_type = DL_CPU,
                       .ndim = ndim,
                       .dtype_code = DL_FLOAT,
                       .dtype_bits = 32,
                       .dtype_lanes = 1,
                       .shape = shape,
                       .strides = strides};
}

/* What becomes of a tensor of two dimensions. */
static gwi_fault read(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                      unsigned wishes, gwi_layout *ret_layout)
{
    static float memory[64];
    int64_t shape[] = {rows, columns}, strides[] = {row_stride, column_stride};
    dl_tensor tensor = tensor_of(&memory[32], 2, shape, strides);
    gwi_fault fault = gwi_layout_from_dlpack(&tensor, ret_layout);

    return fault != GWI_FAULT_NONE ? fault : gwi_layout_check(ret_layout, wishes);
}

static void a_plain_tensor_is_read_as_it_lies(void **state)
{
    (void)state;
    gwi_layout l;

    assert_int_equal(read(3, 4, 4, 1, GWI_LAYOUT_DENSE | GWI_LAYOUT_DISTINCT, &l), GWI_FAULT_NONE);
    assert_int_equal(l.n, 12);
    assert_int_equal(l.stride_bytes[0], 16);
    assert_int_equal(l.stride_bytes[1], 4);
    assert_int_equal(read(3, 4, -4, 1, 0, &l), GWI_FAULT_NONE);
    assert_int_equal(read(3, 4, 8, 2, GWI_LAYOUT_DENSE, &l), GWI_FAULT_NOT_DENSE);
    assert_int_equal(read(3, 4, 0, 1, GWI_LAYOUT_DISTINCT, &l), GWI_FAULT_SHARED);
}

static void a_tensor_that_gives_no_strides_is_dense(void **state)
{
    (void)state;
    int64_t shape[] = {2, 3, 4};
    float memory[24];
    dl_tensor tensor = tensor_of(memory, 3, shape, NULL);
    gwi_layout l;

    assert_int_equal(gwi_layout_from_dlpack(&tensor, &l), GWI_FAULT_NONE);
    assert_int_equal(l.stride_bytes[0], 48);
    assert_int_equal(gwi_layout_check(&l, GWI_LAYOUT_DENSE), GWI_FAULT_NONE);
    assert_int_equal(l.n, 24);
}

static void numbers_that_overflow_are_found(void **state)
{
    (void)state;
    gwi_layout l;

    assert_int_equal(read(INT64_MAX, INT64_MAX, 1, 1, 0, &l), GWI_FAULT_TOO_LARGE);
    assert_int_equal(read(INT64_C(1) << 32, INT64_C(1) << 32, 0, 0, 0, &l), GWI_FAULT_TOO_LARGE);
    assert_int_equal(read(2, 2, INT64_MAX, 1, 0, &l), GWI_FAULT_TOO_LARGE);
    assert_int_equal(read(2, 2, INT64_MIN, 1, 0, &l), GWI_FAULT_TOO_LARGE);
    assert_int_equal(read(2, 2, INT64_MIN / 4, 1, 0, &l), GWI_FAULT_TOO_LARGE);
    assert_int_equal(read(3, 3, INT64_MAX / 8, INT64_MAX / 8, 0, &l), GWI_FAULT_TOO_LARGE);
    assert_int_equal(read(-1, 1, 1, 1, 0, &l), GWI_FAULT_SIZE);
    assert_int_equal(read(INT64_MIN, 1, 1, 1, 0, &l), GWI_FAULT_SIZE);
}

static void a_stride_that_is_never_used_does_no_harm(void **state)
{
    (void)state;
    gwi_layout l;

    assert_int_equal(read(1, 4, INT64_MAX, 1, GWI_LAYOUT_DENSE, &l), GWI_FAULT_NONE);
    assert_int_equal(l.n, 4);
    assert_int_equal(read(0, INT64_MAX, 1, 1, GWI_LAYOUT_DENSE, &l), GWI_FAULT_NONE);
    assert_int_equal(l.n, 0);
}

static void what_dlpack_leaves_out_is_noticed(void **state)
{
    (void)state;
    int64_t shape[GWI_MAX_DIMS + 1] = {1};
    float memory[1];
    gwi_layout l;

    dl_tensor t = tensor_of(memory, 1, NULL, NULL);
    assert_int_equal(gwi_layout_from_dlpack(&t, &l), GWI_FAULT_NO_SHAPE);
    t = tensor_of(memory, GWI_MAX_DIMS + 1, shape, NULL);
    assert_int_equal(gwi_layout_from_dlpack(&t, &l), GWI_FAULT_DIMS);
    t = tensor_of(memory, -1, shape, NULL);
    assert_int_equal(gwi_layout_from_dlpack(&t, &l), GWI_FAULT_DIMS);
    t = tensor_of(NULL, 1, shape, NULL);
    assert_int_equal(gwi_layout_from_dlpack(&t, &l), GWI_FAULT_NONE);
    assert_int_equal(gwi_layout_check(&l, 0), GWI_FAULT_NO_MEMORY);
    t = tensor_of(memory, 1, shape, NULL);
    t.byte_offset = UINT64_MAX;
    assert_int_equal(gwi_layout_from_dlpack(&t, &l), GWI_FAULT_TOO_LARGE);
    t.byte_offset = 1;
    assert_int_equal(gwi_layout_from_dlpack(&t, &l), GWI_FAULT_NONE);
    assert_int_equal(gwi_layout_check(&l, 0), GWI_FAULT_MISALIGNED);
    t.device_type = 2;
    assert_int_equal(gwi_layout_from_dlpack(&t, &l), GWI_FAULT_DEVICE);
}

GWI_TESTS(cmocka_unit_test(a_plain_tensor_is_read_as_it_lies),
          cmocka_unit_test(a_tensor_that_gives_no_strides_is_dense),
          cmocka_unit_test(numbers_that_overflow_are_found),
          cmocka_unit_test(a_stride_that_is_never_used_does_no_harm),
          cmocka_unit_test(what_dlpack_leaves_out_is_noticed))
