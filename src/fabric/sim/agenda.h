/* agenda.h - what happens next: numbered items, each at most once, by their time.
 *
 * A heap with four children per entry that knows where each item is, so that an
 * item's time can be changed.  All memory is taken at the start.              */
#ifndef GWI_FABRIC_SIM_AGENDA_H
#define GWI_FABRIC_SIM_AGENDA_H

#include <stdint.h>

typedef struct gwi_agenda_entry {
    int64_t at_ns;
    uint32_t item;
} gwi_agenda_entry;

typedef struct gwi_agenda {
    gwi_agenda_entry *entries; /* no child is earlier than its parent */
    uint32_t *where;           /* by item: its index in `entries` and 1; 0: not in */
    uint32_t n, n_items;
} gwi_agenda;

/* Items are 0 .. n_items - 1. */
int gwi_agenda_init(gwi_agenda *a, uint32_t n_items);
void gwi_agenda_fini(gwi_agenda *a);

/* Put an item in, or give it another time. */
void gwi_agenda_put(gwi_agenda *a, uint32_t item, int64_t at_ns);

/* Take an item out, if it is in. */
void gwi_agenda_drop(gwi_agenda *a, uint32_t item);

/* Take the earliest entry out.  Returns 1, or 0 if there is none. */
int gwi_agenda_take(gwi_agenda *a, gwi_agenda_entry *ret_entry);

/* Check the order and the index of each item. */
int gwi_agenda_valid(const gwi_agenda *a);

#endif
