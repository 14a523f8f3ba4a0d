/* spread.h - how keys are spread over nodes, and on each node over channels.
 *
 * Keys are at home on the nodes in turn, and those of a node in its channels in turn; a
 * channel is the share of one agent.  Within a channel the keys are numbered without gaps,
 * so that what is kept for each takes no more room than it must.
 *
 *     key 0 1 2 3 4 5 6 7 8 ...     on 2 nodes with 2 channels
 *     node 0 1 0 1 0 1 0 1 0
 *     channel 0 0 1 1 0 0 1 1 0
 *     place 0 0 0 0 1 1 1 1 2       among those of its node and channel              */
#ifndef GWI_PARAMS_SPREAD_H
#define GWI_PARAMS_SPREAD_H

#include <stddef.h>
#include <stdint.h>

typedef struct gwi_spread {
    int node, nodes; /* this one, of how many */
    int channels;    /* of each */
    /* log2 of the numbers, or -1: a division takes as long as the rest of a note's handling, and
     * most jobs have 2, 4, 8 ... nodes */
    int node_shift, channel_shift;
} gwi_spread;

static inline int gwi_spread_shift(int n)
{
    return (n & (n - 1)) == 0 ? __builtin_ctz((unsigned)n) : -1;
}

static inline gwi_spread gwi_spread_of(int node, int nodes, int channels)
{
    return (gwi_spread){node, nodes, channels, gwi_spread_shift(nodes), gwi_spread_shift(channels)};
}

static inline int gwi_spread_home(const gwi_spread *s, int64_t key)
{
    return (int)(s->node_shift >= 0 ? key & (s->nodes - 1) : key % s->nodes);
}

/* The how-manieth of its home. */
static inline int64_t gwi_spread_turn(const gwi_spread *s, int64_t key)
{
    return s->node_shift >= 0 ? key >> s->node_shift : key / s->nodes;
}

static inline int gwi_spread_channel(const gwi_spread *s, int64_t key)
{
    int64_t turn = gwi_spread_turn(s, key);

    return (int)(s->channel_shift >= 0 ? turn & (s->channels - 1) : turn % s->channels);
}

/* The how-manieth of its home and channel. */
static inline int64_t gwi_spread_place(const gwi_spread *s, int64_t key)
{
    int64_t turn = gwi_spread_turn(s, key);

    return s->channel_shift >= 0 ? turn >> s->channel_shift : turn / s->channels;
}

static inline size_t gwi_spread_n_places(const gwi_spread *s, int64_t n_keys)
{
    return (size_t)(n_keys / s->nodes / s->channels + 1);
}

/* How many keys are at home here, in a channel. */
static inline int64_t gwi_spread_n_home(const gwi_spread *s, int channel, int64_t n_keys)
{
    int64_t turns = (n_keys - s->node + s->nodes - 1) / s->nodes;

    return (turns - channel + s->channels - 1) / s->channels;
}

/* The how-manieth of its channel, whatever its home; and the reverse. */
static inline int64_t gwi_spread_index(const gwi_spread *s, int64_t key)
{
    return s->channels == 1 ? key : gwi_spread_place(s, key) * s->nodes + gwi_spread_home(s, key);
}

static inline int64_t gwi_spread_key(const gwi_spread *s, int channel, int64_t index)
{
    return (index / s->nodes * s->channels + channel) * s->nodes + index % s->nodes;
}

static inline int64_t gwi_spread_n_indices(const gwi_spread *s, int64_t n_keys)
{
    return (int64_t)gwi_spread_n_places(s, n_keys) * s->nodes;
}

#endif
