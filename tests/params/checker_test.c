/* checker_test.c - the checker finds every kind of wrong history, and accepts the right ones.
 *
 * By examples made by hand, and by comparing it with a search through all orders on small
 * histories drawn by lot.                                                               */
#include "checker.h"
#include "base/random.h"
#include "base/test.h"

#include <stdio.h>
#include <string.h>

#define MAX_EVENTS 8 /* of a worker, in what is drawn by lot */
#define MAX_N 4      /* workers, there */

/* A key that is just a variable. */
struct variable {
    int n_workers;
    double entries[2 * MAX_N + 1];
    int64_t pushes[MAX_N], n_sets;
};

static void push_to(struct variable *v, int worker)
{
    double add[2 * MAX_N + 1];

    history_push_vector(v->n_workers, worker, ++v->pushes[worker], add);
    for (size_t i = 0; i < history_entries(v->n_workers); i++)
        v->entries[i] += add[i];
}

/* Examples: each letter is an operation, in the order in which they happened.  "A+" worker A
 * pushes, "A=" sets, "A?" pulls, "A!" pulls what was remembered with "@". */
struct story {
    struct history *history;
    struct variable now, then;
};

static struct story begin(int n_workers)
{
    struct story s = {.history = history_new(n_workers)};

    s.now.n_workers = n_workers;
    return s;
}

static void tell(struct story *s, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == ' ')
            continue;
        if (*text == '@') {
            s->then = s->now;
            continue;
        }
        int worker = *text++ - 'A';
        if (*text == '+') {
            push_to(&s->now, worker);
            history_add_push(s->history, worker);
        } else if (*text == '=') {
            history_set_vector(s->now.n_workers, ++s->now.n_sets, s->now.entries);
            history_add_set(s->history, worker, s->now.n_sets);
        } else {
            history_add_pull(s->history, worker, *text == '?' ? s->now.entries : s->then.entries);
        }
    }
}

static char reason[1024];

static bool end(struct story *s)
{
    bool explained = history_check(s->history, reason, sizeof reason);

    history_free(s->history);
    s->history = NULL;
    return explained;
}

static void must_be_right(int n_workers, const char *text)
{
    struct story s = begin(n_workers);

    tell(&s, text);
    if (!end(&s))
        fail_msg("'%s' was refused: %s", text, reason);
}

static void must_be_wrong(int n_workers, const char *text, const char *words)
{
    struct story s = begin(n_workers);

    tell(&s, text);
    if (end(&s))
        fail_msg("'%s' was accepted", text);
    if (strstr(reason, words) == NULL)
        fail_msg("'%s' does not say '%s'", reason, words);
}

static void what_happened_in_one_order_is_right(void **state)
{
    (void)state;
    must_be_right(1, "");
    must_be_right(1, "A?");
    must_be_right(1, "A+ A? A+ A? A= A? A+ A?");
    must_be_right(2, "A+ B? B+ A? A= B? B+ A? B= A? B?");
    must_be_right(3, "A+ B+ C? A= C? B+ C? B= C+ A? A= B=");
    must_be_right(4, "A= B= C= D= A? B? C? D? A+ B+ C+ D+ A? B? C? D?");
}

/* There is no clock: an old value is right if it may have come earlier. */
static void a_late_look_by_somebody_who_did_nothing_is_right(void **state)
{
    (void)state;
    must_be_right(2, "@ A+ B!");
    must_be_right(2, "A+ @ A= B! B?");
    must_be_right(3, "A= @ A+ B+ C! C?");
}

static void sets_are_put_into_the_order_that_was_seen(void **state)
{
    (void)state;
    must_be_right(3, "A= @ B= C? B? ");
    must_be_right(2, "A= @ B= A? B?");
    /* Nobody's order but the other one: B's set came first. */
    struct story s = begin(3);
    tell(&s, "A= @ B= ");
    history_add_pull(s.history, 2, s.now.entries);
    history_add_pull(s.history, 2, s.then.entries);
    assert_true(end(&s));
}

static void a_lost_update_is_found(void **state)
{
    (void)state;
    struct story s = begin(2);
    double lost[5] = {1, 1, 0, 0, 0}; /* B's push is gone, though B itself looks */

    tell(&s, "A+ B+");
    history_add_pull(s.history, 1, lost);
    assert_false(end(&s));

    s = begin(2);
    double gap[5] = {2, 1 + 3, 0, 0, 0}; /* pushes 1 and 3 of A without 2 */
    tell(&s, "A+ A+ A+");
    history_add_pull(s.history, 1, gap);
    assert_true(!end(&s)); /* a sum of 4 would be 1 + 3, which is no run */
}

static void an_update_applied_twice_is_found(void **state)
{
    (void)state;
    struct story s = begin(2);
    double twice[5] = {2, 2, 0, 0, 0};

    tell(&s, "A+");
    history_add_pull(s.history, 1, twice);
    assert_false(end(&s));

    s = begin(2);
    double more[5] = {3, 6, 0, 0, 0}; /* 1 + 2 + 3, but there were two */
    tell(&s, "A+ A+");
    history_add_pull(s.history, 1, more);
    assert_false(end(&s));
}

static void a_torn_value_is_found(void **state)
{
    (void)state;
    const double torn[][5] = {
        {1, 0, 0, 0, 0},  /* counted, but not yet added */
        {0, 1, 0, 0, 0},  /* the other way round */
        {2, 1, 0, 0, 0},  /* half of the second push */
        {1, 1, 0, 0, 1},  /* a set that has not cleared all */
        {0, 0, 0, 0, 2},  /* a set that is none */
        {.5, 1, 0, 0, 0}, /* nonsense */
        {-1, -1, 0, 0, 0}, {0, 0, 0, 0, 1e300},
    };

    for (size_t i = 0; i < sizeof torn / sizeof *torn; i++) {
        struct story s = begin(2);
        tell(&s, "A+ A+ A=");
        history_add_pull(s.history, 1, torn[i]);
        if (end(&s))
            fail_msg("torn value number %zu was accepted", i);
    }
}

static void a_value_from_before_ones_own_write_is_found(void **state)
{
    (void)state;
    must_be_wrong(1, "@ A+ A!", "no order");
    must_be_wrong(2, "B+ @ A+ A!", "no order");
    must_be_wrong(2, "B+ @ A= A!", "no order");
    must_be_wrong(2, "A= A+ @ B? B+ B!", "no order");
    must_be_right(2, "A= A+ @ B+ B!"); /* B's push may have come before the set */
}

static void a_value_older_than_one_already_seen_is_found(void **state)
{
    (void)state;
    must_be_wrong(2, "@ A+ B? B!", "no order");
    must_be_wrong(2, "A+ @ A= B? B!", "no order");
    must_be_wrong(2, "A= @ A= B? B!", "no order");
}

static void two_readers_who_see_opposite_orders_are_found(void **state)
{
    (void)state;
    struct story s = begin(4);
    double a[9] = {1, 1}, b[9] = {0, 0, 1, 1};

    tell(&s, "A+ B+");
    history_add_pull(s.history, 2, a); /* C: A's push without B's */
    history_add_pull(s.history, 3, b); /* D: B's without A's */
    assert_false(end(&s));
    assert_non_null(strstr(reason, "opposite orders"));

    s = begin(4); /* the same with sets */
    tell(&s, "A= @ B= C! C? D? D!");
    assert_false(end(&s));
    assert_non_null(strstr(reason, "no order"));
}

static void a_value_that_comes_back_after_a_set_is_found(void **state)
{
    (void)state;
    must_be_wrong(2, "A+ @ B= B? B!", "no order");
    struct story s = begin(2);
    double back[5] = {1, 1, 0, 0, 1}; /* A's push before the set shows after it as well */
    tell(&s, "A+ B? B=");
    history_add_pull(s.history, 1, back);
    assert_false(end(&s));
    assert_non_null(strstr(reason, "was seen after set"));
}

static void long_histories_are_decided_quickly(void **state)
{
    (void)state;
    struct story s = begin(4);
    gwi_random random;
    char text[] = "A+";

    gwi_random_init(&random, 1, 0);
    for (int i = 0; i < 100000; i++) {
        text[0] = (char)('A' + gwi_random_below(&random, 4));
        uint64_t what = gwi_random_below(&random, 20);
        text[1] = what == 0 ? '=' : what < 10 ? '+' : '?';
        tell(&s, text);
    }
    assert_true(end(&s));
}

/* by lot, against a search through all orders */

struct trial {
    int n_workers, n_events[MAX_N];
    char kind[MAX_N][MAX_EVENTS]; /* '+', '=', '?' */
    double vector[MAX_N][MAX_EVENTS][2 * MAX_N + 1];
    int64_t id[MAX_N][MAX_EVENTS];
};

/* Let random workers go on until all are through; the values are those of that order. */
static void draw(struct trial *t, gwi_random *random)
{
    struct variable v = {.n_workers = 2 + (int)gwi_random_below(random, MAX_N - 1)};
    int left = 4 + (int)gwi_random_below(random, 10);

    *t = (struct trial){.n_workers = v.n_workers};
    while (left-- > 0) {
        int w = (int)gwi_random_below(random, (uint64_t)v.n_workers), e = t->n_events[w];
        uint64_t what = gwi_random_below(random, 8);
        if (e == MAX_EVENTS)
            continue;
        t->kind[w][e] = what == 0 ? '=' : what < 4 ? '+' : '?';
        if (t->kind[w][e] == '+') {
            push_to(&v, w);
        } else if (t->kind[w][e] == '=') {
            t->id[w][e] = ++v.n_sets;
            history_set_vector(v.n_workers, v.n_sets, v.entries);
        } else {
            memcpy(t->vector[w][e], v.entries, sizeof v.entries);
        }
        t->n_events[w]++;
    }
}

/* Something that might go wrong: a pull gets what another one got, or an entry too much. */
static void spoil(struct trial *t, gwi_random *random)
{
    int w = (int)gwi_random_below(random, (uint64_t)t->n_workers);
    int u = (int)gwi_random_below(random, (uint64_t)t->n_workers);

    if (t->n_events[w] == 0 || t->n_events[u] == 0)
        return;
    int e = (int)gwi_random_below(random, (uint64_t)t->n_events[w]);
    int f = (int)gwi_random_below(random, (uint64_t)t->n_events[u]);
    if (t->kind[w][e] != '?')
        return;
    if (t->kind[u][f] == '?')
        memcpy(t->vector[w][e], t->vector[u][f], sizeof t->vector[w][e]);
    else if (gwi_random_below(random, 4) == 0)
        t->vector[w][e][gwi_random_below(random, history_entries(t->n_workers))] += 1;
}

static bool explain(const struct trial *t, int *at, struct variable v)
{
    bool ended = true;

    for (int w = 0; w < t->n_workers; w++) {
        int e = at[w];
        struct variable next = v;
        if (e == t->n_events[w])
            continue;
        ended = false;
        if (t->kind[w][e] == '+')
            push_to(&next, w);
        else if (t->kind[w][e] == '=')
            history_set_vector(t->n_workers, t->id[w][e], next.entries);
        else if (memcmp(t->vector[w][e], v.entries, sizeof v.entries) != 0)
            continue;
        at[w]++;
        bool found = explain(t, at, next);
        at[w]--;
        if (found)
            return true;
        if (t->kind[w][e] == '?')
            return false; /* it changes nothing, so it may as well come now */
    }
    return ended;
}

static bool check(const struct trial *t)
{
    struct history *h = history_new(t->n_workers);

    for (int w = 0; w < t->n_workers; w++)
        for (int e = 0; e < t->n_events[w]; e++)
            if (t->kind[w][e] == '+')
                history_add_push(h, w);
            else if (t->kind[w][e] == '=')
                history_add_set(h, w, t->id[w][e]);
            else
                history_add_pull(h, w, t->vector[w][e]);
    bool right = history_check(h, reason, sizeof reason);
    history_free(h);
    return right;
}

static void the_checker_agrees_with_a_search_through_all_orders(void **state)
{
    (void)state;
    const uint64_t seed = 1;
    int n_right = 0, n_wrong = 0;

    for (uint64_t i = 0; i < 20000; i++) {
        struct trial t;
        gwi_random random;
        gwi_random_init(&random, seed, i);
        draw(&t, &random);
        assert_true(check(&t));
        for (uint64_t n = 1 + gwi_random_below(&random, 6); n > 0; n--)
            spoil(&t, &random);
        struct variable v = {.n_workers = t.n_workers};
        int at[MAX_N] = {0};
        bool expected = explain(&t, at, v), got = check(&t);
        if (got != expected)
            fail_msg("seed %llu, trial %llu: the checker says %d, all orders say %d (%s)",
                     (unsigned long long)seed, (unsigned long long)i, got, expected, reason);
        n_right += expected;
        n_wrong += !expected;
    }
    assert_true(n_right > 2000 && n_wrong > 2000); /* or it shows nothing */
}

GWI_TESTS(cmocka_unit_test(what_happened_in_one_order_is_right),
          cmocka_unit_test(a_late_look_by_somebody_who_did_nothing_is_right),
          cmocka_unit_test(sets_are_put_into_the_order_that_was_seen),
          cmocka_unit_test(a_lost_update_is_found),
          cmocka_unit_test(an_update_applied_twice_is_found),
          cmocka_unit_test(a_torn_value_is_found),
          cmocka_unit_test(a_value_from_before_ones_own_write_is_found),
          cmocka_unit_test(a_value_older_than_one_already_seen_is_found),
          cmocka_unit_test(two_readers_who_see_opposite_orders_are_found),
          cmocka_unit_test(a_value_that_comes_back_after_a_set_is_found),
          cmocka_unit_test(long_histories_are_decided_quickly),
          cmocka_unit_test(the_checker_agrees_with_a_search_through_all_orders))
