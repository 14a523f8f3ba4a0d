/* fuzz_npy.c - a header of a .npy file that is let in tells of a shape and a type, and written
 * again it is read as the same.                                                        */
#include "fuzz.h"

#include "memory/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input in = {bytes, n_bytes};
    char again[4096];
    gwi_npy npy, other;
    size_t n;

    uint8_t *copy = next_bytes(&in, n_bytes, &n);
    if (n >= GWI_NPY_START && gwi_npy_length(copy) <= n && gwi_npy_length(copy) > 0) {
        n = gwi_npy_length(copy);
        uint8_t *header = malloc(n > 0 ? n : 1);
        memcpy(header, copy, n);
        if (gwi_npy_read(header, n, &npy) == 0) {
            REQUIRE(npy.header_bytes == n && npy.n_dims >= 0 && npy.n_dims <= GW_MAX_DIMS);
            for (int i = 0; i < npy.n_dims; i++)
                REQUIRE(npy.shape[i] >= 0);
            int written = gwi_npy_write(npy.dtype, npy.n_dims, npy.shape, again, sizeof again);
            REQUIRE(written > 0);
            REQUIRE(gwi_npy_read((uint8_t *)again, (size_t)written, &other) == 0);
            REQUIRE(other.dtype == npy.dtype && other.n_dims == npy.n_dims);
            REQUIRE(memcmp(other.shape, npy.shape, (size_t)npy.n_dims * sizeof *npy.shape) == 0);
        } else {
            REQUIRE(gw_last_error()[0] != '\0');
        }
        free(header);
    }
    free(copy);
    return 0;
}

static void plant_seeds(void)
{
    const int64_t shape[] = {3, 1000000, 0};
    char header[512];

    for (int n_dims = 1; n_dims <= 3; n_dims++)
        plant(header, (size_t)gwi_npy_write(GW_F32, n_dims, shape, header, sizeof header));
    plant(header, (size_t)gwi_npy_write(GW_C128, 2, shape, header, sizeof header));
}
