/* post.c - notes to other nodes and from them, in frames. */
#include "params/engine.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define LANE GWI_LANE_PARAMS

void gwi_send(gwi_node *node, int to, gwi_note *note, const void *part, size_t part_bytes,
              const void *part2, size_t part2_bytes)
{
    gwi_frame *frame = &node->links[to].collecting;
    size_t before = frame->n_bytes;

    if (gwi_frame_add(frame, note, part, part_bytes, part2, part2_bytes) < 0) {
        gwi_fail_node(node, GW_ENOMEM);
        return;
    }
    if (to != node->id) {
        node->stats.bytes += frame->n_bytes - before;
        node->stats.value_bytes += part_bytes;
    }
}

static int read_frame(gwi_node *node, int from, const unsigned char *bytes, size_t n_bytes)
{
    const unsigned char *payload;
    gwi_note note;
    size_t at = 0;
    int more;

    while ((more = gwi_frame_next(bytes, n_bytes, &at, &note, &payload)) > 0 && node->err == 0)
        gwi_handle(node, from, &note, payload);
    return more < 0 ? gwi_fail_node(node, more) : node->err;
}

/* What we say to ourselves is heard in order, after what is being heard. */
static void hear_ourselves(gwi_node *node)
{
    gwi_link *self = &node->links[node->id];

    while (self->collecting.n_bytes > 0 && node->err == 0) {
        gwi_frame frame = self->collecting;
        self->collecting = self->sending;
        self->collecting.n_bytes = 0;
        read_frame(node, node->id, frame.bytes, frame.n_bytes);
        frame.n_bytes = 0;
        self->sending = frame;
    }
}

struct delivery {
    gwi_node *node;
    int n;
};

static int take_piece(void *ctx, const gwi_piece *piece)
{
    struct delivery *d = ctx;
    gwi_frame *coming = &d->node->links[piece->source].coming;

    d->n++;
    if (piece->abandoned) {
        coming->n_bytes = 0;
        return 0;
    }
    if (piece->total > coming->capacity) {
        unsigned char *bytes = realloc(coming->bytes, piece->total);
        if (bytes == NULL)
            return gwi_fail(GW_ENOMEM, "a message of %zu bytes", piece->total);
        coming->bytes = bytes;
        coming->capacity = piece->total;
    }
    memcpy(coming->bytes + piece->offset, piece->bytes, piece->n_bytes);
    coming->n_bytes = piece->offset + piece->n_bytes;
    if (coming->n_bytes < piece->total)
        return 0;
    coming->n_bytes = 0;
    d->node->stats.received++;
    return read_frame(d->node, piece->source, coming->bytes, piece->total);
}

static int send_to(gwi_node *node, gwi_fabric *fabric, int to)
{
    gwi_link *link = &node->links[to];
    int sent = 0;

    for (;;) {
        if (!link->under_way) {
            if (link->collecting.n_bytes == 0)
                return sent;
            gwi_frame empty = link->sending;
            empty.n_bytes = 0;
            link->sending = link->collecting;
            link->collecting = empty;
            link->out = (gwi_outgoing){.peer = to,
                                       .lane = LANE,
                                       .bytes = link->sending.bytes,
                                       .n_bytes = link->sending.n_bytes};
            link->under_way = 1;
            node->stats.messages++;
        }
        int done = fabric->ops->send(fabric, &link->out);
        if (done < 0)
            return gwi_fail_node(node, done);
        if (done == 0)
            return sent;
        link->under_way = 0;
        sent = 1;
    }
}

int gwi_post_step(gwi_node *node, gwi_fabric *fabric)
{
    struct delivery d = {node, 0};
    int busy = 0, err;

    hear_ourselves(node);
    err = fabric->ops->poll(fabric, LANE, -1, take_piece, &d);
    if (err < 0)
        return gwi_fail_node(node, err);
    hear_ourselves(node);
    for (int n = 0; n < node->nodes && node->err == 0; n++)
        if (n != node->id)
            busy |= send_to(node, fabric, n);
    return d.n > 0 || busy;
}
