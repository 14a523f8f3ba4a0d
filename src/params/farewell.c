/* farewell.c - the last note of an agent, to many. */
#include "params/farewell.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

int gwi_farewell_init(gwi_farewell *farewell, uint64_t opening, int lane, const int *ranks,
                      int nodes)
{
    *farewell = (gwi_farewell){.note = {.kind = GWI_NOTE_FAILED, .key = -1}, .nodes = nodes};
    farewell->out = calloc((size_t)nodes, sizeof *farewell->out);
    if (farewell->out == NULL)
        return gwi_fail(GW_ENOMEM, "an agent among %d nodes", nodes);
    int err = gwi_frame_begin(&farewell->frame, opening);
    if (err < 0)
        return err;
    farewell->sentence = gwi_frame_room(&farewell->frame, &farewell->note, GWI_SENTENCE_BYTES);
    if (farewell->sentence == NULL)
        return GW_ENOMEM;
    for (int n = 0; n < nodes; n++)
        farewell->out[n] = (gwi_outgoing){
            .peer = ranks[n], .lane = lane, .bytes = farewell->frame.bytes};
    return 0;
}

void gwi_farewell_fini(gwi_farewell *farewell)
{
    gwi_frame_fini(&farewell->frame);
    free(farewell->out);
    *farewell = (gwi_farewell){.out = NULL};
}

void gwi_farewell_write(gwi_farewell *farewell, gwi_fabric *fabric, int err, const char *sentence)
{
    size_t n_bytes = strnlen(sentence, GWI_SENTENCE_BYTES);

    farewell->note.node = fabric->place.node;
    farewell->note.n = (uint32_t)err;
    memcpy(farewell->sentence, sentence, n_bytes);
    gwi_frame_cut(&farewell->frame, &farewell->note, farewell->sentence, n_bytes);
    for (int n = 0; n < farewell->nodes; n++) {
        gwi_outgoing *out = &farewell->out[n];
        int sees_it = err == GW_EPEER && fabric->ops->shares(fabric, out->peer);
        if (n != fabric->place.node && !sees_it)
            out->n_bytes = farewell->frame.n_bytes;
    }
}

int gwi_farewell_send(gwi_farewell *farewell, gwi_fabric *fabric)
{
    int n_left = 0;

    for (int n = 0; n < farewell->nodes; n++) {
        gwi_outgoing *out = &farewell->out[n];
        if (out->n_bytes == 0)
            continue;
        int done = fabric->ops->send(fabric, out);
        if (done < 0)
            fabric->ops->abandon(fabric, out);
        if (done != 0)
            out->n_bytes = 0;
        n_left += done == 0;
    }
    return n_left;
}

void gwi_farewell_give_up(gwi_farewell *farewell, gwi_fabric *fabric)
{
    for (int n = 0; n < farewell->nodes; n++) {
        gwi_outgoing *out = &farewell->out[n];
        if (out->n_bytes > 0)
            fabric->ops->abandon(fabric, out);
        out->n_bytes = 0;
    }
}
