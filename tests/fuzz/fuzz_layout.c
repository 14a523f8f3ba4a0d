/* fuzz_layout.c - a tensor that is let in has all its entries where it says.
 *
 * The input is a tensor as DLPack has it, or with strides in bytes as a buffer:
 * type, address, and per dimension a size and a stride.  What is let in is worked
 * out again in numbers of 128 bits.                                          */
#include "fuzz.h"

#include "python/layout.h"

__extension__ typedef __int128 wide;

/* Mostly small numbers and such that are close to overflowing. */
static int64_t next_size(struct input *in)
{
    uint64_t how = next_number(in, 1),
             value = how % 4 == 3 ? next_number(in, 8) : next_number(in, 1);

    return how % 4 == 0   ? (int64_t)value
           : how % 4 == 1 ? -(int64_t)value
           : how % 4 == 2 ? (int64_t)(UINT64_C(1) << value % 64)
                          : (int64_t)value;
}

static void check_entries(const gwi_layout *l, unsigned wishes)
{
    wide n = 1, low = 0, high = 0, address = (wide)(uintptr_t)l->data;
    unsigned align = gwi_dtype_table[l->dtype].align;

    for (int i = 0; i < l->ndim; i++) {
        wide span = (wide)(l->shape[i] - 1) * l->stride_bytes[i];
        n *= l->shape[i];
        *(span < 0 ? &low : &high) += span;
        REQUIRE(l->shape[i] > 0 && (l->shape[i] == 1 || l->stride_bytes[i] % align == 0));
        REQUIRE(l->shape[i] == 1 || l->stride_bytes[i] != 0 || (wishes & GWI_LAYOUT_DISTINCT) == 0);
    }
    REQUIRE(l->n == (int64_t)n && n * l->item_bytes <= INT64_MAX);
    REQUIRE(l->data != NULL && (uintptr_t)l->data % align == 0);
    REQUIRE(address + low >= 0 && address + high + l->item_bytes <= (wide)UINT64_MAX);
    if ((wishes & GWI_LAYOUT_DENSE) != 0)
        REQUIRE(low == 0 && high + l->item_bytes == n * l->item_bytes);
}

static void check_refusal(const gwi_layout *l, gwi_fault fault, unsigned wishes)
{
    REQUIRE(fault > GWI_FAULT_NONE && fault <= GWI_FAULT_SHARED);
    REQUIRE(fault != GWI_FAULT_NOT_DENSE || (wishes & GWI_LAYOUT_DENSE) != 0);
    REQUIRE(fault != GWI_FAULT_SHARED || (wishes & GWI_LAYOUT_DISTINCT) != 0);
    if (fault == GWI_FAULT_SIZE) {
        int i = 0;
        while (i < l->ndim && l->shape[i] >= 0)
            i++;
        REQUIRE(i < l->ndim);
    }
}

static gwi_fault read_buffer(const dl_tensor *t, gwi_layout *ret_layout)
{
    gwi_layout_set_dtype(ret_layout, t->dtype_code % GWI_N_DTYPES);
    ret_layout->data = t->data;
    return gwi_layout_set_dims(ret_layout, t->ndim, t->shape, t->strides, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input in = {bytes, n_bytes};
    unsigned how = (unsigned)next_number(&in, 2), wishes = how & 3;
    dl_tensor t = {.device_type = how & 4 ? (int32_t)next_number(&in, 4) : DL_CPU};
    gwi_layout l;

    t.ndim = how & 8 ? (int32_t)next_number(&in, 4) : (int32_t)(next_number(&in, 1) % 10);
    t.dtype_code = (uint8_t)next_number(&in, 1);
    t.dtype_bits = (uint8_t)next_number(&in, 1);
    t.dtype_lanes = how & 16 ? (uint16_t)next_number(&in, 2) : 1;
    t.data = (void *)(uintptr_t)(how & 32 ? next_number(&in, 8) : 0x700000000000);
    t.byte_offset = how & 64 ? next_number(&in, 8) : 0;
    size_t n = t.ndim >= 0 && t.ndim <= 16 ? (size_t)t.ndim : 0;
    t.shape = malloc(n * sizeof *t.shape + 1); /* a look beyond is noticed */
    t.strides = how & 128 ? NULL : malloc(n * sizeof *t.strides + 1);
    for (size_t i = 0; i < n; i++) {
        t.shape[i] = next_size(&in);
        if (t.strides != NULL)
            t.strides[i] = next_size(&in);
    }

    gwi_fault fault = how & 256 ? read_buffer(&t, &l) : gwi_layout_from_dlpack(&t, &l);
    if (fault == GWI_FAULT_NONE) {
        fault = gwi_layout_check(&l, wishes);
        REQUIRE(l.ndim == t.ndim && l.dtype < GWI_N_DTYPES);
    }
    if (fault != GWI_FAULT_NONE)
        check_refusal(&l, fault, wishes);
    else if (l.n != 0)
        check_entries(&l, wishes);
    free(t.strides);
    free(t.shape);
    return 0;
}

static void plant_seeds(void)
{
    plant("\3\0\2\2\40\0\3\0\4\0\4\0\1", 13);    /* float32, 3 x 4, dense */
    plant("\203\0\3\2\100\0\2\0\3\0\4", 11);     /* float64, without strides */
    plant("\0\0\1\5\100\0\3\1\2", 9);            /* complex64, backwards */
    plant("\0\0\2\0\100\2\40\0\0\2\40\0\0", 13); /* 2^32 x 2^32 entries in one place */
    plant("\0\0\1\2\40\3\377\377\377\377\377\377\377\177\0\1", 16);
    plant("\2\1\1\10\0\0\5\0\6", 9); /* float32, six bytes apart */
}
