/* ledger_test.c - what a rank does is written down, and witnesses answer. */
#include "fabric/ledger.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

static char *table_of(gwi_ledger_row *rows, int n)
{
    char *text = NULL;
    size_t n_bytes;
    FILE *to = open_memstream(&text, &n_bytes);

    gwi_ledger_print(to, rows, n);
    fclose(to);
    return text;
}

static void expect(gwi_ledger_row *rows, int n, const char *words)
{
    char *text = table_of(rows, n);

    if (strstr(text, words) == NULL)
        fail_msg("no '%s' in:\n%s", words, text);
    free(text);
}

static void an_entry_tells_the_call_a_rank_is_in_or_was_in_last(void **state)
{
    (void)state;
    gwi_entry entry = {0};
    gwi_ledger_row row = {.rank = 3, .pid = 4711, .entry = &entry};

    gwi_ledger_init(&entry);
    expect(&row, 1, "3      4711  no call yet                      0      0.0 s");
    int64_t now = gwi_ledger_enter(&entry, GWI_OP_RECV, 7);
    assert_true(gwi_now_ns() - now < GWI_SECOND);
    expect(&row, 1, "in recv from rank 7");
    gwi_ledger_leave(&entry);
    expect(&row, 1, "after recv from rank 7");
    gwi_ledger_enter(&entry, GWI_OP_BARRIER, -1);
    expect(&row, 1, "in barrier ");
    expect(&row, 1, " 2  "); /* the second call */
    row.fate = "died";
    expect(&row, 1, "after barrier");
    expect(&row, 1, "died");
}

static void a_rank_elsewhere_has_a_row_too(void **state)
{
    (void)state;
    gwi_ledger_row row = {.rank = 3, .pid = 0};

    expect(&row, 1, "on another machine");
}

static void tell(void *ctx, char *text, size_t room)
{
    snprintf(text, room, "program.py:%d in main", ++*(int *)ctx);
}

static void a_witness_answers_every_question_anew(void **state)
{
    (void)state;
    gwi_entry entries[2] = {{0}};
    gwi_witness witness;
    int line = 10;
    gwi_ledger_row rows[] = {{.rank = 0, .entry = &entries[0]}, {.rank = 1, .entry = &entries[1]}};

    assert_int_equal(gwi_witness_start(&witness, &entries[0], tell, &line), 0);
    expect(rows, 2, "program.py:11 in main");
    expect(rows, 2, "program.py:12 in main");
    gwi_witness_stop(&witness);
    char *text = table_of(rows, 2);
    assert_null(strstr(text, "program.py"));
    free(text);
}

static void *ask_often(void *arg)
{
    for (int i = 0; i < 50; i++)
        free(table_of(arg, 1));
    return NULL;
}

static void several_may_ask_at_once(void **state)
{
    (void)state;
    gwi_entry entry = {0};
    gwi_witness witness;
    gwi_thread threads[3];
    gwi_ledger_row rows[3];
    int line = 0;

    assert_int_equal(gwi_witness_start(&witness, &entry, tell, &line), 0);
    for (int i = 0; i < 3; i++) {
        rows[i] = (gwi_ledger_row){.rank = 0, .entry = &entry};
        assert_int_equal(gwi_thread_start("asker", ask_often, &rows[i], &threads[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        gwi_thread_join(threads[i]);
    gwi_ledger_row row = {.rank = 0, .entry = &entry};
    expect(&row, 1, "program.py:");
    gwi_witness_stop(&witness);
}

static void a_witness_that_was_killed_while_it_wrote_is_not_waited_for(void **state)
{
    (void)state;
    gwi_entry entry = {.version = 1, .answered = 1, .has_witness = 1};
    gwi_ledger_row row = {.rank = 5, .entry = &entry};

    expect(&row, 1, "no call yet");
}

static void never(void *ctx, char *text, size_t room)
{
    (void)text, (void)room;
    gwi_bell_sleep(ctx, 0);
}

static void a_witness_that_cannot_answer_is_not_waited_for_long(void **state)
{
    (void)state;
    gwi_entry entry = {0};
    gwi_witness witness;
    gwi_bell stuck = {0};
    gwi_ledger_row row = {.rank = 0, .entry = &entry};

    assert_int_equal(gwi_witness_start(&witness, &entry, never, &stuck), 0);
    int64_t start = gwi_now_ns();
    expect(&row, 1, "does not answer");
    assert_true(gwi_now_ns() - start < 3 * GWI_SECOND);
    gwi_bell_ring_sleepers(&stuck);
    gwi_witness_stop(&witness);
}

/* the board */

static void give_figures(void *ctx, uint64_t *ret_figures)
{
    uint64_t *n = ctx;

    for (int i = 0; i < GWI_N_FIGURES; i++)
        ret_figures[i] = *n;
    ++*n;
}

static void ask_for_figures(gwi_entry *entry)
{
    uint32_t asked = atomic_fetch_add(&entry->board.asked, 1) + 1;

    gwi_bell_ring_sleepers(&entry->bell);
    for (int i = 0; i < 5000 && atomic_load(&entry->board.answered) != asked; i++)
        gwi_nap_ns(GWI_MS);
    assert_int_equal(atomic_load(&entry->board.answered), asked);
}

static void figures_are_gathered_when_somebody_asks(void **state)
{
    (void)state;
    gwi_entry entry = {0};
    gwi_witness witness;
    uint64_t first = 10, second = 20, f[GWI_N_FIGURES];
    int lines = 0;

    gwi_ledger_init(&entry);
    assert_int_equal(gwi_witness_start(&witness, &entry, tell, &lines), 0);
    gwi_witness_add(&witness, give_figures, &first);
    gwi_witness_add(&witness, give_figures, &second);
    assert_int_equal(gwi_panel_read(&entry.board.panels[0], f), 0); /* nobody has asked */
    ask_for_figures(&entry);
    ask_for_figures(&entry);
    assert_int_equal(gwi_panel_read(&entry.board.panels[0], f), 1);
    assert_int_equal(f[GWI_FIGURE_opening], 11);
    assert_int_equal(gwi_panel_read(&entry.board.panels[1], f), 1);
    assert_int_equal(f[GWI_N_FIGURES - 1], 21);
    gwi_witness_remove(&witness, give_figures, &first);
    assert_int_equal(gwi_panel_read(&entry.board.panels[0], f), 0);
    ask_for_figures(&entry);
    assert_int_equal(first, 12); /* nobody asks it any more */
    assert_int_equal(second, 23);
    assert_int_equal(lines, 0); /* nor for the line, which may need Python */
    gwi_witness_stop(&witness);
}

static void more_than_the_board_holds_is_counted(void **state)
{
    (void)state;
    gwi_entry entry = {0};
    gwi_witness witness = {.entry = &entry, .lock = PTHREAD_MUTEX_INITIALIZER};
    uint64_t n[GWI_N_PANELS + 2] = {0};

    for (int i = 0; i < GWI_N_PANELS + 2; i++)
        gwi_witness_add(&witness, give_figures, &n[i]);
    assert_int_equal(atomic_load(&entry.board.left_out), 2);
    gwi_witness_remove(&witness, give_figures, &n[GWI_N_PANELS]);
    assert_int_equal(atomic_load(&entry.board.left_out), 1);
    gwi_witness_remove(&witness, give_figures, &n[0]);
    assert_int_equal(atomic_load(&entry.board.left_out), 1);
}

static void a_panel_whose_writer_was_killed_is_not_read(void **state)
{
    (void)state;
    gwi_panel panel = {0};
    uint64_t f[GWI_N_FIGURES] = {1};

    gwi_panel_write(&panel, f);
    assert_int_equal(gwi_panel_read(&panel, f), 1);
    atomic_fetch_add(&panel.version, 1);
    assert_int_equal(gwi_panel_read(&panel, f), 0);
}

GWI_TESTS(cmocka_unit_test(figures_are_gathered_when_somebody_asks),
          cmocka_unit_test(more_than_the_board_holds_is_counted),
          cmocka_unit_test(a_panel_whose_writer_was_killed_is_not_read),
          cmocka_unit_test(an_entry_tells_the_call_a_rank_is_in_or_was_in_last),
          cmocka_unit_test(a_rank_elsewhere_has_a_row_too),
          cmocka_unit_test(a_witness_answers_every_question_anew),
          cmocka_unit_test(several_may_ask_at_once),
          cmocka_unit_test(a_witness_that_was_killed_while_it_wrote_is_not_waited_for),
          cmocka_unit_test(a_witness_that_cannot_answer_is_not_waited_for_long))
