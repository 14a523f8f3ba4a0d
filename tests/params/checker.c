/* checker.c - looks for an order that explains a history.
 *
 * What a pull saw is a set, and for each worker how many of its pushes since.  All between
 * one set and the next is a stretch.
 *
 *   C1  The pulls of a stretch form a chain: of any two, one saw all that the other did.
 *   C2  The pushes of a worker that a stretch shows are numbered without a gap; those before
 *       them came before the set.  No push shows in two stretches.
 *   C3  On the way from one pull of the chain to the next just the pushes come that the next
 *       one shows in addition.  Their order does not matter: nobody looked.
 *   C4  When all pulls of a stretch are done, whatever is never shown may come at once, since
 *       that hides nothing from anybody: pushes that no stretch shows, sets that no pull shows.
 *
 * So a stretch runs by itself, or cannot run now.  What is left to choose is which of the
 * sets that are next for their workers comes next.  A choice after which nothing goes on is
 * taken back; how far each worker had come then is remembered, and not tried again.        */
#include "checker.h"
#include "base/hash.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { PUSH, SET, PULL };

struct event {
    enum kind kind;
    int64_t number; /* of the push or set; of a pull: which of the pulls */
};

struct pull {
    int worker, event;                                              /* where it is */
    int64_t set;                                                    /* what it saw last */
    int64_t n_shown;                                                /* in all */
    int64_t first[CHECKER_MAX_WORKERS], shown[CHECKER_MAX_WORKERS]; /* pushes since, by worker */
};

struct worker {
    struct event *events;
    int n_events, room;
    int64_t n_pushes;
    int64_t *stretch_of; /* by number of push: the set after which it shows, -1: nowhere */
};

struct stretch {
    int worker;                         /* who set; -1: nobody */
    int n_pulls, n_from;                /* `sorted[n_from]` and on */
    int64_t first[CHECKER_MAX_WORKERS]; /* the first push shown, 0: none */
};

struct history {
    int n_workers;
    struct worker workers[CHECKER_MAX_WORKERS];
    struct pull *pulls;
    int n_pulls, room;
    struct pull **sorted; /* by stretch, then along the chain */
    struct stretch *stretches;
    int64_t n_sets; /* the highest number */
    char *reason;   /* of a refusal */
    size_t reason_room;
};

/* How far each worker has come. */
struct place {
    int event[CHECKER_MAX_WORKERS];
    int64_t pushes[CHECKER_MAX_WORKERS];
};

/* recording */

static void *must(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

struct history *history_new(int n_workers)
{
    struct history *h = must(calloc(1, sizeof *h));

    assert(n_workers >= 1 && n_workers <= CHECKER_MAX_WORKERS);
    h->n_workers = n_workers;
    return h;
}

void history_free(struct history *h)
{
    if (h == NULL)
        return;
    for (int w = 0; w < h->n_workers; w++) {
        free(h->workers[w].events);
        free(h->workers[w].stretch_of);
    }
    free(h->pulls);
    free(h->sorted);
    free(h->stretches);
    free(h);
}

size_t history_entries(int n_workers)
{
    return 2 * (size_t)n_workers + 1;
}

void history_push_vector(int n_workers, int worker, int64_t number, double *ret_vector)
{
    memset(ret_vector, 0, history_entries(n_workers) * sizeof *ret_vector);
    ret_vector[2 * worker] = 1;
    ret_vector[2 * worker + 1] = (double)number;
}

void history_set_vector(int n_workers, int64_t id, double *ret_vector)
{
    memset(ret_vector, 0, history_entries(n_workers) * sizeof *ret_vector);
    ret_vector[2 * n_workers] = (double)id;
}

static int add(struct worker *worker, enum kind kind, int64_t number)
{
    if (worker->n_events == worker->room) {
        worker->room = 2 * worker->room + 16;
        worker->events = must(
            realloc(worker->events, (size_t)worker->room * sizeof *worker->events));
    }
    worker->events[worker->n_events] = (struct event){kind, number};
    return worker->n_events++;
}

void history_add_push(struct history *h, int worker)
{
    add(&h->workers[worker], PUSH, ++h->workers[worker].n_pushes);
}

void history_add_set(struct history *h, int worker, int64_t id)
{
    add(&h->workers[worker], SET, id);
    if (id > h->n_sets)
        h->n_sets = id;
}

/* A whole number, or -1. */
static int64_t whole(double value)
{
    return value >= 0 && value < 0x1p53 && value == (double)(int64_t)value ? (int64_t)value : -1;
}

/* What a pull saw of a worker: so many pushes, whose numbers have this sum.  -1 as `first` if
 * that can be no run of numbers. */
static void read_run(const double *pair, int64_t *ret_shown, int64_t *ret_first)
{
    int64_t n = whole(pair[0]), sum = whole(pair[1]);

    *ret_shown = n;
    if (n <= 0 || sum < 0)
        *ret_first = n == 0 && sum == 0 ? 0 : -1;
    else /* n numbers from f on have the sum n (2f + n - 1) / 2 */
        *ret_first = 2 * sum % n == 0 && (2 * sum / n - n + 1) % 2 == 0 && 2 * sum / n - n + 1 >= 2
                         ? (2 * sum / n - n + 1) / 2
                         : -1;
}

void history_add_pull(struct history *h, int worker, const double *vector)
{
    if (h->n_pulls == h->room) {
        h->room = 2 * h->room + 16;
        h->pulls = must(realloc(h->pulls, (size_t)h->room * sizeof *h->pulls));
    }
    struct pull *pull = &h->pulls[h->n_pulls];
    *pull = (struct pull){.worker = worker, .set = whole(vector[2 * h->n_workers])};
    for (int w = 0; w < h->n_workers; w++) {
        read_run(&vector[2 * w], &pull->shown[w], &pull->first[w]);
        pull->n_shown += pull->shown[w];
    }
    pull->event = add(&h->workers[worker], PULL, h->n_pulls++);
}

/* sorting out what was seen */

__attribute__((format(printf, 2, 3))) static bool refuse(struct history *h, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(h->reason, h->reason_room, format, args);
    va_end(args);
    return false;
}

static bool find_sets(struct history *h)
{
    h->stretches = must(calloc((size_t)h->n_sets + 1, sizeof *h->stretches));
    for (int64_t s = 0; s <= h->n_sets; s++)
        h->stretches[s].worker = -1;
    for (int w = 0; w < h->n_workers; w++)
        for (int e = 0; e < h->workers[w].n_events; e++) {
            const struct event *event = &h->workers[w].events[e];
            if (event->kind != SET)
                continue;
            if (event->number < 1 || h->stretches[event->number].worker >= 0)
                return refuse(h, "set number %lld is there twice, or none",
                              (long long)event->number);
            h->stretches[event->number].worker = w;
        }
    return true;
}

/* Each pull by itself. */
static bool check_pull(struct history *h, const struct pull *pull)
{
    if (pull->set < 0 || pull->set > h->n_sets ||
        (pull->set > 0 && h->stretches[pull->set].worker < 0))
        return refuse(h, "operation %d of worker %d saw a set that nobody made", pull->event,
                      pull->worker);
    for (int w = 0; w < h->n_workers; w++)
        if (pull->first[w] < 0 || pull->first[w] + pull->shown[w] - 1 > h->workers[w].n_pushes)
            return refuse(h,
                          "operation %d of worker %d saw what no run of pushes of worker %d makes: "
                          "one is missing, there twice, or there in part",
                          pull->event, pull->worker, w);
    return true;
}

static int compare_pulls(const void *a, const void *b)
{
    const struct pull *p = *(struct pull *const *)a, *q = *(struct pull *const *)b;

    if (p->set != q->set)
        return p->set < q->set ? -1 : 1;
    return p->n_shown < q->n_shown ? -1 : p->n_shown > q->n_shown;
}

static bool show_push(struct history *h, int worker, int64_t number, int64_t set)
{
    int64_t *stretch = &h->workers[worker].stretch_of[number];

    if (*stretch >= 0 && *stretch != set)
        return refuse(h, "push %lld of worker %d was seen after set %lld and after set %lld",
                      (long long)number, worker, (long long)*stretch, (long long)set);
    *stretch = set;
    return true;
}

/* C1 and C2, for a pull and the one before it in the chain, or NULL. */
static bool link_pull(struct history *h, const struct pull *before, const struct pull *pull)
{
    struct stretch *stretch = &h->stretches[pull->set];

    for (int w = 0; w < h->n_workers; w++) {
        int64_t known = before == NULL ? 0 : before->shown[w];
        if (pull->shown[w] < known)
            return refuse(h,
                          "operation %d of worker %d and operation %d of worker %d saw pushes "
                          "in opposite orders",
                          before->event, before->worker, pull->event, pull->worker);
        if (pull->shown[w] == 0)
            continue;
        if (stretch->first[w] != 0 && stretch->first[w] != pull->first[w])
            return refuse(h,
                          "operation %d of worker %d saw another first push of worker %d after "
                          "set %lld than others did",
                          pull->event, pull->worker, w, (long long)pull->set);
        stretch->first[w] = pull->first[w];
        for (int64_t i = known; i < pull->shown[w]; i++)
            if (!show_push(h, w, pull->first[w] + i, pull->set))
                return false;
    }
    return true;
}

static bool sort_pulls(struct history *h)
{
    h->sorted = must(calloc((size_t)h->n_pulls + 1, sizeof *h->sorted));
    for (int w = 0; w < h->n_workers; w++) {
        struct worker *worker = &h->workers[w];
        worker->stretch_of = must(calloc((size_t)worker->n_pushes + 1, sizeof *worker->stretch_of));
        for (int64_t p = 0; p <= worker->n_pushes; p++)
            worker->stretch_of[p] = -1;
    }
    for (int i = 0; i < h->n_pulls; i++) {
        if (!check_pull(h, &h->pulls[i]))
            return false;
        h->sorted[i] = &h->pulls[i];
    }
    qsort(h->sorted, (size_t)h->n_pulls, sizeof *h->sorted, compare_pulls);
    for (int i = 0; i < h->n_pulls; i++) {
        struct stretch *stretch = &h->stretches[h->sorted[i]->set];
        if (stretch->n_pulls++ == 0)
            stretch->n_from = i;
        if (!link_pull(h, i > stretch->n_from ? h->sorted[i - 1] : NULL, h->sorted[i]))
            return false;
    }
    return true;
}

/* the search */

static const struct event *next_event(const struct history *h, const struct place *at, int w)
{
    const struct worker *worker = &h->workers[w];

    return at->event[w] < worker->n_events ? &worker->events[at->event[w]] : NULL;
}

/* C3: let the pushes come that the pull shows, since `base`. */
static bool push_up_to(const struct history *h, struct place *at, const struct place *base,
                       const struct pull *pull)
{
    for (int w = 0; w < h->n_workers; w++)
        while (at->pushes[w] - base->pushes[w] < pull->shown[w]) {
            const struct event *event = next_event(h, at, w);
            if (event == NULL || event->kind != PUSH)
                return false;
            at->event[w]++;
            at->pushes[w]++;
        }
    return true;
}

static bool saw_the_same(const struct history *h, const struct pull *a, const struct pull *b)
{
    return a->set == b->set &&
           memcmp(a->shown, b->shown, (size_t)h->n_workers * sizeof *a->shown) == 0;
}

/* All pulls that saw the state as it is now.  Returns how many. */
static int pull_now(const struct history *h, struct place *at, const struct pull *pull)
{
    const struct event *event;
    int n = 0;

    for (int w = 0; w < h->n_workers; w++)
        while ((event = next_event(h, at, w)) != NULL && event->kind == PULL &&
               saw_the_same(h, &h->pulls[event->number], pull)) {
            at->event[w]++;
            n++;
        }
    return n;
}

/* C4 */
static void let_come_what_nobody_sees(const struct history *h, struct place *at)
{
    const struct event *event;

    for (int w = 0; w < h->n_workers; w++)
        while ((event = next_event(h, at, w)) != NULL &&
               ((event->kind == PUSH && h->workers[w].stretch_of[event->number] < 0) ||
                (event->kind == SET && h->stretches[event->number].n_pulls == 0))) {
            at->event[w]++;
            at->pushes[w] += event->kind == PUSH;
        }
}

/* From just after the set to where only another set helps.  False: it cannot be now. */
static bool run_stretch(const struct history *h, struct place *at, int64_t set)
{
    const struct stretch *stretch = &h->stretches[set];
    const struct place base = *at;

    for (int w = 0; w < h->n_workers; w++)
        if (stretch->first[w] != 0 && stretch->first[w] != base.pushes[w] + 1)
            return false;
    for (int i = 0; i < stretch->n_pulls;) {
        const struct pull *pull = h->sorted[stretch->n_from + i];
        int n = 0;
        while (i < stretch->n_pulls && saw_the_same(h, h->sorted[stretch->n_from + i], pull)) {
            i++;
            n++;
        }
        if (!push_up_to(h, at, &base, pull) || pull_now(h, at, pull) != n)
            return false;
    }
    let_come_what_nobody_sees(h, at);
    return true;
}

static bool at_the_end(const struct history *h, const struct place *at)
{
    for (int w = 0; w < h->n_workers; w++)
        if (at->event[w] < h->workers[w].n_events)
            return false;
    return true;
}

/* A choice of the search: where it was made, and whose set is to be tried next. */
struct choice {
    struct place at;
    int worker;
};

static uint64_t hash_of(const struct history *h, const struct place *at)
{
    return gwi_hash_bytes(at->event, (size_t)h->n_workers * sizeof *at->event, 0);
}

/* Try the sets that are next, in turn; the place after the first that works, or false. */
static bool try_sets(const struct history *h, struct choice *choice, gwi_hash *seen,
                     struct place *ret_place)
{
    while (choice->worker < h->n_workers) {
        int w = choice->worker++;
        struct place place = choice->at;
        const struct event *event = next_event(h, &place, w);
        if (event == NULL || event->kind != SET)
            continue;
        place.event[w]++;
        if (!run_stretch(h, &place, event->number) || gwi_hash_get(seen, hash_of(h, &place), NULL))
            continue;
        *ret_place = place;
        return true;
    }
    return false;
}

static bool no_order(struct history *h, const struct place *furthest)
{
    char places[512] = "";
    size_t n = 0;

    for (int w = 0; w < h->n_workers && n < sizeof places - 32; w++)
        n += (size_t)snprintf(places + n, sizeof places - n, "%s%d of %d", w > 0 ? ", " : "",
                              furthest->event[w], h->workers[w].n_events);
    return refuse(h, "no order explains all; the longest that was found ends after operations %s",
                  places);
}

static int64_t length_of(const struct history *h, const struct place *at)
{
    int64_t sum = 0;

    for (int w = 0; w < h->n_workers; w++)
        sum += at->event[w];
    return sum;
}

static bool search(struct history *h)
{
    struct choice *stack = must(malloc(((size_t)h->n_sets + 1) * sizeof *stack));
    struct place at = {0}, furthest = {0};
    gwi_hash seen;
    int64_t depth = 0;
    bool found;

    gwi_hash_init(&seen);
    if (!run_stretch(h, &at, 0))
        depth = -1;
    else
        stack[0] = (struct choice){.at = at};
    furthest = at;
    while (!(found = depth >= 0 && at_the_end(h, &stack[depth].at)) && depth >= 0) {
        if (!try_sets(h, &stack[depth], &seen, &at)) {
            depth--;
            continue;
        }
        if (gwi_hash_put(&seen, hash_of(h, &at), 1) < 0)
            abort();
        if (length_of(h, &at) > length_of(h, &furthest))
            furthest = at;
        stack[++depth] = (struct choice){.at = at};
    }
    gwi_hash_fini(&seen);
    free(stack);
    return found ? true : no_order(h, &furthest);
}

bool history_check(struct history *h, char *ret_reason, size_t room)
{
    assert(h->sorted == NULL && h->stretches == NULL); /* once */
    h->reason = ret_reason;
    h->reason_room = room;
    return find_sets(h) && sort_pulls(h) && search(h);
}
