/* report.h - the last lines of a launch: what went wrong, told once. */
#ifndef GWI_LAUNCH_REPORT_H
#define GWI_LAUNCH_REPORT_H

#include "launch/rank.h"

#include <stdio.h>

/* Rank `first` failed first: how, its last words, and what became of the rest. */
void gwi_report_failure(FILE *to, const gwi_rank *ranks, int n_ranks, int first);

/* The job was stopped from outside by signal `sig`. */
void gwi_report_stop(FILE *to, const gwi_rank *ranks, int n_ranks, int sig);

#endif
