/* envelope.c - reading envelopes; what makes no sense is refused here. */
#include "comm/envelope.h"
#include "base/error.h"
#include "base/platform.h"
#include "comm/reduce.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool gwi_entries_bytes(uint64_t n, uint32_t dtype, size_t *ret_n_bytes)
{
    if (dtype >= GW_N_DTYPES || n > PTRDIFF_MAX / 2 / gwi_dtype_bytes((gw_dtype)dtype))
        return false;
    *ret_n_bytes = (size_t)n * gwi_dtype_bytes((gw_dtype)dtype);
    return true;
}

const char *gwi_entries_text(uint64_t n, uint32_t dtype, char *text, size_t room)
{
    snprintf(text, room, "%" PRIu64 " %s of %s", n, n == 1 ? "entry" : "entries",
             gwi_dtype_name((gw_dtype)dtype));
    return text;
}

/* What is wrong with an envelope, or NULL. */
static const char *fault_of(const gwi_envelope *e, size_t total, int size, size_t *ret_n_bytes)
{
    if (e->kind != GWI_WHOLE && e->kind != GWI_APART)
        return "its kind is unknown";
    if (e->tag < 0 || e->tag > GWI_TAG_MAX)
        return "its tag is out of range";
    if (e->source < 0 || e->source >= size)
        return "its source is no rank";
    if (!gwi_entries_bytes(e->n, e->dtype, ret_n_bytes))
        return "it has entries of an unknown type, or more than memory holds";
    if (e->kind == GWI_APART && *ret_n_bytes == 0)
        return "nothing is to follow it";
    if (total != sizeof *e + (e->kind == GWI_WHOLE ? *ret_n_bytes : 0))
        return "its length does not fit its entries";
    return NULL;
}

int gwi_envelope_read(const void *bytes, size_t n_bytes, size_t total, int rank, int size,
                      gwi_envelope *ret_envelope, size_t *ret_n_bytes)
{
    gwi_envelope e = {0};
    size_t payload = 0;
    const char *fault = "it is shorter than an envelope";

    if (gwi_likely(n_bytes >= sizeof e)) {
        memcpy(&e, bytes, sizeof e);
        fault = fault_of(&e, total, size, &payload);
    }
    if (gwi_unlikely(fault != NULL))
        return gwi_fail(GW_EBROKEN,
                        "rank %d sent a message that makes no sense: %s; something overwrote its "
                        "memory, or it runs another version of Godwit",
                        rank, fault);
    *ret_envelope = e;
    *ret_n_bytes = payload;
    return 0;
}
