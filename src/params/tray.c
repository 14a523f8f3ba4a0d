/* tray.c - rings of orders, and the slots that lead to them. */
#include "params/tray.h"

#include <assert.h>

/* Orders lie in one piece.  One that does not fit before the end is preceded by a filler. */
#define FILLER UINT32_MAX

static size_t round_up(size_t n)
{
    return (n + GWI_LINE - 1) / GWI_LINE * GWI_LINE;
}

static gwi_order *order_at(const gwi_tray *tray, size_t position)
{
    return (gwi_order *)(void *)(tray->base + position % tray->n_bytes);
}

gwi_order *gwi_tray_take(gwi_tray *tray, size_t n_bytes)
{
    size_t need = round_up(n_bytes), to_end = tray->n_bytes - tray->head % tray->n_bytes;
    size_t filler = need > to_end ? to_end : 0;

    assert(need <= tray->n_bytes / 2);
    if (tray->head + filler + need - tray->tail > tray->n_bytes)
        return NULL;
    if (filler > 0) {
        gwi_order *skipped = order_at(tray, tray->head);
        skipped->kind = FILLER;
        skipped->n_bytes = (uint32_t)filler;
        tray->head += filler;
    }
    gwi_order *order = order_at(tray, tray->head);
    tray->head += need;
    atomic_store_explicit(&order->done, 0, memory_order_relaxed);
    order->n_bytes = (uint32_t)need;
    return order;
}

void gwi_tray_give_back_oldest(gwi_tray *tray)
{
    if (order_at(tray, tray->tail)->kind == FILLER)
        tray->tail += order_at(tray, tray->tail)->n_bytes;
    tray->tail += order_at(tray, tray->tail)->n_bytes;
}

/* Each place says whose turn it is there: `number` empty, number + 1 full, and
 * number + GWI_SLOT_PLACES empty again for the next lap; both counted from 0 in each place. */
int gwi_slot_drop(gwi_slot *slot, uint32_t seat, uint64_t at)
{
    uint64_t number = atomic_load_explicit(&slot->dropped, memory_order_relaxed);
    struct gwi_slot_place *place;

    for (;;) {
        place = &slot->place[number % GWI_SLOT_PLACES];
        uint64_t lap = number / GWI_SLOT_PLACES;
        /* Acquire pairs with the release in pick(): what lay here was read. */
        uint64_t turn = atomic_load_explicit(&place->turn, memory_order_acquire);
        if (turn == 2 * lap) {
            if (atomic_compare_exchange_weak_explicit(&slot->dropped, &number, number + 1,
                                                      memory_order_relaxed, memory_order_relaxed))
                break;
        } else if (turn < 2 * lap) {
            return 0;
        } else {
            number = atomic_load_explicit(&slot->dropped, memory_order_relaxed);
        }
    }
    place->seat = seat;
    place->at = at;
    /* Pairs with pick().  Sequentially consistent, because a bell is rung behind it. */
    atomic_store_explicit(&place->turn, 2 * (number / GWI_SLOT_PLACES) + 1, memory_order_seq_cst);
    return 1;
}

int gwi_slot_pick(gwi_slot *slot, uint32_t *ret_seat, uint64_t *ret_at)
{
    struct gwi_slot_place *place = &slot->place[slot->picked % GWI_SLOT_PLACES];
    uint64_t lap = slot->picked / GWI_SLOT_PLACES;

    if (atomic_load_explicit(&place->turn, memory_order_seq_cst) != 2 * lap + 1)
        return 0;
    *ret_seat = place->seat;
    *ret_at = place->at;
    atomic_store_explicit(&place->turn, 2 * lap + 2, memory_order_release);
    slot->picked++;
    return 1;
}
