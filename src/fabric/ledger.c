/* ledger.c - asking the ranks, and the table of their answers. */
#include "fabric/ledger.h"
#include "base/error.h"

#include <string.h>

#define PATIENCE_NS (500 * GWI_MS)

const char *gwi_op_text(gwi_op op)
{
    static const char *const texts[GWI_N_OPS] = {
#define TEXT(name, text) [GWI_OP_##name] = text,
        GWI_OPS(TEXT)
#undef TEXT
    };

    return texts[op];
}

/* answering */

static void answer(gwi_witness *w, uint32_t asked)
{
    gwi_entry *e = w->entry;
    union {
        char text[GWI_WHERE_BYTES];
        uint64_t words[GWI_WHERE_BYTES / 8];
    } where = {{0}};

    w->where(w->ctx, where.text, sizeof where.text);
    uint32_t version = atomic_load_explicit(&e->version, memory_order_relaxed);
    /* Odd before the words and even after them; pairs with read_where(). */
    atomic_store_explicit(&e->version, version + 1, memory_order_seq_cst);
    for (size_t i = 0; i < GWI_WHERE_BYTES / 8; i++)
        atomic_store_explicit(&e->where[i], where.words[i], memory_order_seq_cst);
    atomic_store_explicit(&e->version, version + 2, memory_order_seq_cst);
    atomic_store_explicit(&e->answered, asked, memory_order_release);
}

/* The figures of now. */
static void fill_board(gwi_witness *w, uint32_t asked)
{
    uint64_t figures[GWI_N_FIGURES];

    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < GWI_N_PANELS; i++)
        if (w->panels[i].figures != NULL) {
            w->panels[i].figures(w->panels[i].ctx, figures);
            gwi_panel_write(&w->entry->board.panels[i], figures);
        }
    pthread_mutex_unlock(&w->lock);
    atomic_store_explicit(&w->entry->board.answered, asked, memory_order_release);
}

void gwi_witness_add(gwi_witness *w, gwi_figures *figures, void *ctx)
{
    int i = 0;

    pthread_mutex_lock(&w->lock);
    while (i < GWI_N_PANELS && w->panels[i].figures != NULL)
        i++;
    if (i < GWI_N_PANELS) {
        w->panels[i].figures = figures;
        w->panels[i].ctx = ctx;
    } else {
        atomic_fetch_add(&w->entry->board.left_out, 1);
    }
    pthread_mutex_unlock(&w->lock);
}

void gwi_witness_remove(gwi_witness *w, gwi_figures *figures, void *ctx)
{
    static const uint64_t nothing[GWI_N_FIGURES];
    int i = 0;

    pthread_mutex_lock(&w->lock);
    while (i < GWI_N_PANELS && (w->panels[i].figures != figures || w->panels[i].ctx != ctx))
        i++;
    if (i < GWI_N_PANELS) {
        w->panels[i].figures = NULL;
        gwi_panel_write(&w->entry->board.panels[i], nothing);
    } else {
        atomic_fetch_sub(&w->entry->board.left_out, 1);
    }
    pthread_mutex_unlock(&w->lock);
}

static void *witness_main(void *arg)
{
    gwi_witness *w = arg;
    gwi_entry *e = w->entry;

    while (!atomic_load(&w->stop)) {
        uint32_t seen = atomic_load(&e->bell.rung);
        uint32_t wanted = atomic_load(&e->board.asked);
        if (wanted != atomic_load_explicit(&e->board.answered, memory_order_relaxed))
            fill_board(w, wanted);
        uint32_t asked = atomic_load(&e->asked);
        if (asked != atomic_load_explicit(&e->answered, memory_order_relaxed))
            answer(w, asked);
        else if (!atomic_load(&w->stop))
            gwi_bell_sleep(&e->bell, seen);
    }
    return NULL;
}

int gwi_witness_start(gwi_witness *w, gwi_entry *entry, gwi_where *where, void *ctx)
{
    w->entry = entry;
    w->where = where;
    w->ctx = ctx;
    pthread_mutex_init(&w->lock, NULL);
    memset(w->panels, 0, sizeof w->panels);
    atomic_store(&w->stop, 0);
    int err = gwi_thread_start("godwit-witness", witness_main, w, &w->thread);
    if (err == 0)
        atomic_store(&entry->has_witness, 1);
    return err;
}

void gwi_witness_stop(gwi_witness *w)
{
    atomic_store(&w->entry->has_witness, 0);
    atomic_store(&w->stop, 1);
    gwi_bell_ring_sleepers(&w->entry->bell);
    gwi_thread_join(w->thread);
    pthread_mutex_destroy(&w->lock);
}

/* asking */

static int can_answer(const gwi_ledger_row *row)
{
    return row->entry != NULL && row->fate == NULL && atomic_load(&row->entry->has_witness);
}

static int has_answered(const gwi_ledger_row *row)
{
    uint32_t answered = atomic_load_explicit(&row->entry->answered, memory_order_acquire);

    /* Later questions are answered together with ours. */
    return (int32_t)(answered - row->question) >= 0;
}

/* Give the text to the caller, or say that nothing is known. */
static void read_where(const gwi_ledger_row *row, char *text)
{
    uint64_t words[GWI_WHERE_BYTES / 8];
    uint32_t before, after;
    int tries = 1000; /* a witness that was killed while it wrote never ends */

    if (!can_answer(row) || !has_answered(row)) {
        snprintf(text, GWI_WHERE_BYTES, "%s",
                 can_answer(row) ? "does not answer (busy in native code?)" : "");
        return;
    }
    do {
        before = atomic_load_explicit(&row->entry->version, memory_order_seq_cst);
        for (size_t i = 0; i < GWI_WHERE_BYTES / 8; i++)
            words[i] = atomic_load_explicit(&row->entry->where[i], memory_order_seq_cst);
        after = atomic_load_explicit(&row->entry->version, memory_order_seq_cst);
    } while ((before != after || before % 2 != 0) && --tries > 0);
    if (tries == 0)
        return;
    memcpy(text, words, GWI_WHERE_BYTES);
    text[GWI_WHERE_BYTES - 1] = '\0';
}

static void ask(gwi_ledger_row *row)
{
    if (!can_answer(row))
        return;
    row->question = atomic_fetch_add(&row->entry->asked, 1) + 1;
    gwi_bell_ring_sleepers(&row->entry->bell);
}

static void wait_for_answer(const gwi_ledger_row *row, int64_t deadline_ns)
{
    while (can_answer(row) && !has_answered(row) && gwi_now_ns() < deadline_ns)
        gwi_nap_ns(GWI_MS);
}

/* the table */

static void print_row(FILE *to, const gwi_ledger_row *row)
{
    char what[64] = "", where[GWI_WHERE_BYTES] = "";
    gwi_entry *e = row->entry;

    fprintf(to, "\n  %4d  %8d", row->rank, row->pid);
    if (e == NULL) {
        fprintf(to, "  on another machine");
        return;
    }
    uint32_t op = atomic_load_explicit(&e->op, memory_order_relaxed) % GWI_N_OPS;
    int peer = atomic_load_explicit(&e->peer, memory_order_relaxed);
    double seconds = (double)(gwi_coarse_ns() -
                              atomic_load_explicit(&e->since_ns, memory_order_relaxed)) /
                     1e9;
    int inside = atomic_load_explicit(&e->inside, memory_order_relaxed) != 0;

    snprintf(what, sizeof what, peer >= 0 ? "%s%s rank %d" : "%s%s",
             op == GWI_OP_NOTHING          ? ""
             : inside && row->fate == NULL ? "in "
                                           : "after ",
             gwi_op_text(op), peer);
    read_where(row, where);
    fprintf(to, "  %-24s  %8llu  %7.1f s  %s%s%s", what,
            (unsigned long long)atomic_load_explicit(&e->calls, memory_order_relaxed),
            seconds > 0 ? seconds : 0, row->fate != NULL ? row->fate : "",
            row->fate != NULL && where[0] != '\0' ? ", " : "", where);
}

void gwi_ledger_print(FILE *to, gwi_ledger_row *rows, int n)
{
    int64_t deadline_ns = gwi_deadline_ns(PATIENCE_NS);

    for (int i = 0; i < n; i++)
        ask(&rows[i]);
    fprintf(to, "  rank   process  operation                     call        for  where");
    for (int i = 0; i < n; i++) {
        wait_for_answer(&rows[i], deadline_ns);
        print_row(to, &rows[i]);
    }
}
