/* turns.h - what an agent did, for a trace.
 *
 * An agent has up to a hundred thousand turns a second.  Those that follow each other
 * closely become one span, with how many keys moved, were copied, told and so on in all of
 * them; so a trace has some tens of spans for each of the tracer's pauses.            */
#ifndef GWI_PARAMS_TURNS_H
#define GWI_PARAMS_TURNS_H

#include "params/node.h"

typedef struct gwi_turns gwi_turns;

/* NULL if nobody traces, which is fine for the others. */
gwi_turns *gwi_turns_open(uint64_t opening);

/* `stats`: in the end, what was counted outside of turns included; borrowed for the call. */
void gwi_turns_close(gwi_turns *turns, const gwi_node_stats *stats);

/* A turn is over that began at `began_ns`; `busy`: it did something.  `stats` are those of now,
 * borrowed for the call. */
void gwi_turns_add(gwi_turns *turns, const gwi_node_stats *stats, int64_t began_ns, int busy);

#endif
