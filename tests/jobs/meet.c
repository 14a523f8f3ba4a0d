/* meet.c - a rank that talks to the ranks 1, 2, 4, 8, ... places away, and says so. */
#include <godwit/world.h>

#include <stdio.h>

static int talk(gw_world *world, const gw_world_info *me)
{
    for (int step = 1; step < me->size; step *= 2) {
        int to = (me->rank + step) % me->size, from = (me->rank - step + me->size) % me->size;
        int heard;
        size_t n;
        int err = gw_world_send(world, to, &me->rank, sizeof me->rank);
        if (err == 0)
            err = gw_world_recv(world, from, &heard, sizeof heard, &n);
        if (err < 0)
            return err;
        if (n != sizeof heard || heard != from)
            return GW_EDISAGREE;
    }
    return gw_world_barrier(world);
}

int main(void)
{
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    gw_world_info me = {.size_bytes = sizeof me};
    gw_world *world;

    if (gw_world_join(&opt, &world) < 0 || gw_world_get_info(world, &me) < 0 ||
        talk(world, &me) < 0) {
        fprintf(stderr, "%s\n", gw_last_error());
        return 1;
    }
    printf("met %d\n", me.rank);
    gw_world_close(world);
    return 0;
}
