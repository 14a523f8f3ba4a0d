/* deliveries.c - how many messages a second the simulation delivers on one core.
 *
 *     deliveries [millions of messages per line]
 *
 * Every rank sends short messages to ranks drawn at random, on four lanes, and
 * answers some of what it gets, as a protocol would.  The limit is what was
 * promised: 1 M deliveries a second.  The exit code is 1 if that is missed, 2 if it failed. */
#include "base/clock.h"
#include "base/random.h"
#include "fabric/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMISED 1e6
#define LANES 4
#define PER_TURN 4

struct talker {
    gwi_random random;
    uint64_t to_send;
    uint64_t *to_come; /* messages of all talkers that have not arrived */
    gwi_outgoing out;
    unsigned char bytes[56];
};

static int take(void *ctx, const gwi_piece *piece)
{
    struct talker *t = ctx;

    t->bytes[0] = ((const unsigned char *)piece->bytes)[0];
    *t->to_come -= piece->offset + piece->n_bytes == piece->total;
    return 0;
}

static void address(struct talker *t, int size)
{
    uint64_t bits = gwi_random_u64(&t->random);

    t->out = (gwi_outgoing){
        .peer = (int)((bits >> 32) % (uint64_t)size),
        .lane = (int)(bits % LANES),
        .bytes = t->bytes,
        .n_bytes = 8 + (bits >> 8) % 48,
    };
}

static int talk(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct talker *t = state;

    (void)now_ns;
    for (int i = 0; i < PER_TURN && t->to_send > 0; i++) {
        if (t->out.bytes == NULL)
            address(t, f->place.size);
        int done = f->ops->send(f, &t->out);
        if (done < 0)
            return done;
        if (done == 0)
            break;
        t->out.bytes = NULL;
        t->to_send--;
    }
    for (int lane = 0; lane < LANES; lane++) {
        int err = f->ops->poll(f, lane, -1, take, t);
        if (err < 0)
            return err;
    }
    return *t->to_come == 0;
}

static int run(gwi_sim *sim, int size, uint64_t n_messages)
{
    static struct talker talkers[GWI_SIM_MAX];
    static void *states[GWI_SIM_MAX];
    uint64_t each = n_messages / (uint64_t)size, to_come = each * (uint64_t)size;

    for (int rank = 0; rank < size; rank++) {
        talkers[rank] = (struct talker){.to_send = each, .to_come = &to_come};
        gwi_random_init(&talkers[rank].random, 1, (uint64_t)rank);
        states[rank] = &talkers[rank];
    }
    return gwi_sim_run(sim, talk, states, 0);
}

/* Returns deliveries a second, or an error. */
static double measure(int size, uint64_t n_messages)
{
    gwi_sim *sim;
    int err = gwi_sim_new(&(gwi_sim_options){.seed = 1, .size = size}, &sim);

    if (err < 0)
        return err;
    int64_t start = gwi_now_ns();
    err = run(sim, size, n_messages);
    double seconds = (double)(gwi_now_ns() - start) / 1e9;
    double rate = (double)gwi_sim_delivered(sim) / seconds;
    gwi_sim_free(sim);
    return err < 0 ? err : rate;
}

int main(int argc, char **argv)
{
    static const int sizes[] = {8, 16, 64, 256};
    double millions = argc > 1 ? atof(argv[1]) : 4;
    int missed = 0;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        double rate = measure(sizes[i], (uint64_t)(millions * 1e6));
        if (rate < 0) {
            fprintf(stderr, "%s\n", gw_last_error());
            return 2;
        }
        printf("%4d ranks  %6.2f M deliveries/s  %5.2f x what was promised\n", sizes[i], rate / 1e6,
               rate / PROMISED);
        missed |= sizes[i] <= 64 && rate < PROMISED;
    }
    return missed;
}
