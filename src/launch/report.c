/* report.c - the words about a job that did not end well. */
#include "launch/report.h"

#include <stdlib.h>
#include <string.h>

/* How a rank ended, as one number; equal numbers are told together. */
enum { WELL = 0, STOPPED = -1, SIGNALLED = 1000 };

static int ending(const gwi_rank *rank)
{
    if (!gwi_rank_failed(rank))
        return WELL;
    if (rank->asked)
        return STOPPED;
    return rank->signal != 0 ? SIGNALLED + rank->signal : rank->code;
}

static void write_signal(FILE *to, int sig)
{
    const char *name = gwi_signal_name(sig);

    fprintf(to, "killed by signal %d (%s)", sig, *name != '\0' ? name : strsignal(sig));
}

/* "rank 3", "ranks 0, 1 and 3", "ranks 0-6 and 9". */
static void write_ranks(FILE *to, const int *list, int n)
{
    fputs(n == 1 ? "rank " : "ranks ", to);
    for (int i = 0, last; i < n; i = last + 1) {
        last = i;
        while (last + 1 < n && list[last + 1] == list[last] + 1)
            last++;
        if (last - i < 2) /* a pair reads better as two */
            last = i;
        if (i > 0)
            fputs(last == n - 1 ? " and " : ", ", to);
        fprintf(to, "%d", list[i]);
        if (last > i)
            fprintf(to, "-%d", list[last]);
    }
}

static void write_words(FILE *to, const gwi_rank *rank)
{
    bool on_stdout = rank->err.words.n_lines == 0;
    const gwi_words *words = on_stdout ? &rank->out.words : &rank->err.words;
    size_t n = words->n_lines < GWI_WORDS_LINES ? words->n_lines : GWI_WORDS_LINES;

    if (n == 0) {
        fputs("    it has printed nothing\n", to);
        return;
    }
    fprintf(to, "    its last words%s:\n", on_stdout ? ", on stdout" : "");
    for (size_t i = words->n_lines - n; i < words->n_lines; i++) {
        size_t slot = i % GWI_WORDS_LINES;
        fputs("    | ", to);
        fwrite(words->text[slot], 1, words->len[slot], to);
        fputc('\n', to);
    }
}

/* The ranks that ended in the way `how`, but for `first`.  Returns how many. */
static int find_ranks(const gwi_rank *ranks, int n_ranks, int first, int how, int *ret_list)
{
    int n = 0;

    for (int i = 0; i < n_ranks; i++)
        if (i != first && ending(&ranks[i]) == how)
            ret_list[n++] = i;
    return n;
}

static void write_group(FILE *to, const int *list, int n, int how)
{
    const char *were = n == 1 ? "was" : "were";

    write_ranks(to, list, n);
    if (how == STOPPED) {
        fprintf(to, " %s stopped by godwit run", were);
    } else if (how > SIGNALLED) {
        fprintf(to, " %s ", were);
        write_signal(to, how - SIGNALLED);
    } else {
        fprintf(to, " ended with exit code %d", how);
    }
}

/* What became of the others, the same endings together, in the order of ranks. */
static void write_others(FILE *to, const gwi_rank *ranks, int n_ranks, int first, int *list)
{
    const char *before = "godwit run: afterwards ";

    for (int i = 0; i < n_ranks; i++) {
        int how = ending(&ranks[i]);
        if (how == WELL || i == first)
            continue;
        int n = find_ranks(ranks, n_ranks, first, how, list);
        if (list[0] != i)
            continue; /* told already */
        fputs(before, to);
        write_group(to, list, n, how);
        before = "; ";
    }
    if (*before == ';')
        fputc('\n', to);
}

void gwi_report_failure(FILE *to, const gwi_rank *ranks, int n_ranks, int first)
{
    const gwi_rank *rank = &ranks[first];
    int *list = calloc((size_t)n_ranks, sizeof list[0]);

    fprintf(to, "godwit run: rank %d of %d failed: ", first, n_ranks);
    if (rank->signal != 0)
        write_signal(to, rank->signal);
    else
        fprintf(to, "exit code %d", rank->code);
    if (rank->signal == SIGKILL)
        fputs("; if nobody did that, the machine was short of memory", to);
    fputc('\n', to);
    write_words(to, rank);
    if (list != NULL)
        write_others(to, ranks, n_ranks, first, list);
    free(list);
}

void gwi_report_stop(FILE *to, const gwi_rank *ranks, int n_ranks, int sig)
{
    int *list = calloc((size_t)n_ranks, sizeof list[0]);
    int n = 0;

    for (int i = 0; list != NULL && i < n_ranks; i++)
        if (ranks[i].asked && ranks[i].signal == SIGKILL)
            list[n++] = i;
    fprintf(to, "godwit run: stopped by %s", gwi_signal_name(sig));
    if (n > 0) {
        fputs("; ", to);
        write_ranks(to, list, n);
        fputs(" had to be killed", to);
    }
    fputc('\n', to);
    free(list);
}
