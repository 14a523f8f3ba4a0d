/* wire.c - writing and reading frames and notes. */
#include "fabric/mpi/wire.h"

#include <string.h>

enum kind { DATA = 1, ABANDON = 2 };

static void write_head(unsigned char *frame, enum kind kind, uint64_t total, uint64_t offset)
{
    memcpy(frame, &(uint64_t){total << 8 | kind}, 8);
    memcpy(frame + 8, &offset, 8);
}

static size_t next_part(const gwi_outgoing *out)
{
    size_t rest = out->n_bytes - out->sent;

    return rest < GWI_WIRE_PART ? rest : GWI_WIRE_PART;
}

size_t gwi_wire_next(const gwi_outgoing *out)
{
    return GWI_WIRE_HEAD + next_part(out);
}

void gwi_wire_write(gwi_outgoing *out, void *ret_frame)
{
    size_t n = next_part(out);

    write_head(ret_frame, DATA, out->n_bytes, out->sent);
    if (n > 0)
        memcpy((unsigned char *)ret_frame + GWI_WIRE_HEAD,
               (const unsigned char *)out->bytes + out->sent, n);
    out->begun = 1;
    out->sent += n;
}

void gwi_wire_write_abandon(void *ret_frame)
{
    write_head(ret_frame, ABANDON, 0, 0);
}

/* What is wrong with a frame, or NULL. */
static const char *fault_of(const gwi_wire *wire, uint64_t kind, const gwi_piece *p)
{
    size_t rest = wire->total - wire->offset;

    if (kind == ABANDON)
        return rest > 0 && p->total == 0 && p->offset == 0 && p->n_bytes == 0
                   ? NULL
                   : "it takes back a message that never began";
    if (kind != DATA)
        return "its kind is unknown";
    if (rest == 0 && p->offset != 0)
        return "it goes on with a message that never began";
    if (rest > 0 && (p->offset != wire->offset || p->total != wire->total))
        return "it does not go on where the message under way stopped";
    if (p->n_bytes > GWI_WIRE_PART || p->n_bytes > p->total - p->offset ||
        (p->n_bytes == 0 && p->total != 0))
        return "its part does not fit its message";
    return NULL;
}

static int broken(int source, const char *fault)
{
    return gwi_fail(
        GW_EBROKEN,
        "rank %d sent a frame by MPI that makes no sense: %s; the job must be started anew", source,
        fault);
}

int gwi_wire_read(const gwi_wire *wire, int source, const void *frame, size_t n_bytes,
                  gwi_piece *ret_piece)
{
    const unsigned char *bytes = frame;
    uint64_t head, offset;

    if (n_bytes < GWI_WIRE_HEAD)
        return broken(source, "it is shorter than its head");
    memcpy(&head, bytes, 8);
    memcpy(&offset, bytes + 8, 8);
    gwi_piece piece = {
        .source = source,
        .total = head >> 8,
        .offset = offset,
        .bytes = bytes + GWI_WIRE_HEAD,
        .n_bytes = n_bytes - GWI_WIRE_HEAD,
        .abandoned = (head & 0xff) == ABANDON,
    };
    const char *fault = fault_of(wire, head & 0xff, &piece);
    if (fault != NULL)
        return broken(source, fault);
    *ret_piece = piece;
    return 0;
}

void gwi_wire_pass(gwi_wire *wire, const gwi_piece *piece)
{
    *wire = (gwi_wire){.total = piece->total, .offset = piece->offset + piece->n_bytes};
}

int gwi_note_read(int source, const void *bytes, size_t n_bytes, gwi_note *ret_note)
{
    gwi_note note;

    if (n_bytes != sizeof note)
        return broken(source, "it holds a note of another length");
    memcpy(&note, bytes, sizeof note);
    if (note.kind != GWI_NOTE_BARRIER && note.kind != GWI_NOTE_LEFT)
        return broken(source, "it holds a note of an unknown kind");
    *ret_note = note;
    return 0;
}
