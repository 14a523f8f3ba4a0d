/* note.c - frames, written and read. */
#include "params/note.h"
#include "base/error.h"
#include "base/platform.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t padded(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

static int make_room(gwi_frame *frame, size_t more)
{
    size_t need = frame->n_bytes + more, capacity = frame->capacity == 0 ? 256 : frame->capacity;

    if (need <= frame->capacity)
        return 0;
    while (capacity < need)
        capacity *= 2;
    unsigned char *bytes = realloc(frame->bytes, capacity);
    if (bytes == NULL)
        return gwi_fail(GW_ENOMEM, "a message of %zu bytes", need);
    frame->bytes = bytes;
    frame->capacity = capacity;
    return 0;
}

int gwi_frame_begin(gwi_frame *frame, uint64_t opening)
{
    int err = make_room(frame, sizeof opening);

    if (err < 0)
        return err;
    memcpy(frame->bytes, &opening, sizeof opening);
    frame->n_bytes = sizeof opening;
    return 0;
}

void *gwi_frame_room(gwi_frame *frame, gwi_note *note, size_t n_bytes)
{
    size_t whole = gwi_note_bytes(n_bytes);

    if (gwi_unlikely(make_room(frame, whole) < 0))
        return NULL;
    note->n_bytes = (uint32_t)n_bytes;
    unsigned char *to = frame->bytes + frame->n_bytes;
    memcpy(to, note, sizeof *note);
    memset(to + sizeof *note + n_bytes, 0, padded(n_bytes) - n_bytes);
    frame->n_bytes += whole;
    return to + sizeof *note;
}

void gwi_frame_cut(gwi_frame *frame, gwi_note *note, void *room, size_t n_bytes)
{
    assert(n_bytes <= note->n_bytes);
    frame->n_bytes = (size_t)((unsigned char *)room - sizeof *note - frame->bytes);
    gwi_frame_room(frame, note, n_bytes); /* which there is */
}

int gwi_frame_add(gwi_frame *frame, gwi_note *note, const void *part, size_t part_bytes,
                  const void *part2, size_t part2_bytes)
{
    unsigned char *to = gwi_frame_room(frame, note, part_bytes + part2_bytes);

    if (to == NULL)
        return GW_ENOMEM;
    if (part_bytes > 0)
        memcpy(to, part, part_bytes);
    if (part2_bytes > 0)
        memcpy(to + part_bytes, part2, part2_bytes);
    return 0;
}

void gwi_frame_fini(gwi_frame *frame)
{
    free(frame->bytes);
    *frame = (gwi_frame){0};
}

int gwi_frame_next(const unsigned char *bytes, size_t n_bytes, size_t *at, gwi_note *ret_note,
                   const unsigned char **ret_payload)
{
    if (*at == n_bytes)
        return 0;
    if (n_bytes - *at < sizeof *ret_note)
        return gwi_fail(GW_EBROKEN, "a frame of %zu bytes ends within a note at %zu", n_bytes, *at);
    memcpy(ret_note, bytes + *at, sizeof *ret_note);
    size_t left = n_bytes - *at - sizeof *ret_note;
    if (ret_note->kind >= GWI_N_NOTES || padded(ret_note->n_bytes) > left)
        return gwi_fail(GW_EBROKEN, "a note of kind %u with %u bytes, where %zu are left",
                        ret_note->kind, ret_note->n_bytes, left);
    *ret_payload = bytes + *at + sizeof *ret_note;
    *at += gwi_note_bytes(ret_note->n_bytes);
    return 1;
}

const char *gwi_note_name(int kind)
{
#define NAME(name) #name,
    static const char *const names[] = {GWI_NOTES(NAME)};
#undef NAME

    return kind >= 0 && kind < GWI_N_NOTES ? names[kind] : "?";
}
