/* hosts_test.c - ranks are grouped by machine and cut into nodes. */
#include "fabric/mpi/hosts.h"
#include "base/test.h"

#include <string.h>

/* `layout` has a letter per rank, the same for ranks of one host. */
static gwi_hosts make(const char *layout, int rank, int node_size)
{
    gwi_host_id ids[64];
    gwi_hosts hosts;
    int size = (int)strlen(layout);

    for (int r = 0; r < size; r++)
        ids[r] = (gwi_host_id){{5, (uint64_t)layout[r]}};
    assert_int_equal(gwi_hosts_init(&hosts, ids, size, rank, node_size), 0);
    return hosts;
}

static void expect_place(const gwi_hosts *h, int rank, int node, int local_rank, int local_size)
{
    const gwi_place *p = &h->places[rank];

    assert_int_equal(p->rank, rank);
    assert_int_equal(p->size, h->size);
    assert_int_equal(p->node, node);
    assert_int_equal(p->local_rank, local_rank);
    assert_int_equal(p->local_size, local_size);
}

static void one_host_is_as_without_mpi(void **state)
{
    (void)state;
    gwi_hosts h = make("aaaaa", 3, 2);

    assert_int_equal(h.n, 1);
    assert_int_equal(h.n_here, 5);
    for (int rank = 0; rank < 5; rank++) {
        gwi_place plain = gwi_place_of(rank, 5, 2);
        assert_memory_equal(&h.places[rank], &plain, sizeof plain);
        assert_int_equal(h.here[rank], rank);
        assert_int_equal(h.index[rank], rank);
    }
    gwi_hosts_fini(&h);
}

static void a_node_never_spans_hosts(void **state)
{
    (void)state;
    gwi_hosts h = make("aaabb", 4, 2);

    assert_int_equal(h.n, 2);
    assert_int_equal(h.places[0].nodes, 3);
    expect_place(&h, 0, 0, 0, 2);
    expect_place(&h, 1, 0, 1, 2);
    expect_place(&h, 2, 1, 0, 1);
    expect_place(&h, 3, 2, 0, 2);
    expect_place(&h, 4, 2, 1, 2);
    assert_int_equal(h.n_here, 2);
    assert_int_equal(h.here[0], 3);
    assert_int_equal(h.here[1], 4);
    gwi_hosts_fini(&h);
}

static void ranks_of_a_host_need_not_follow_each_other(void **state)
{
    (void)state;
    gwi_hosts h = make("zyzyz", 2, 5);

    assert_int_equal(h.n, 2);
    assert_int_equal(h.places[0].nodes, 2);
    expect_place(&h, 0, 0, 0, 3);
    expect_place(&h, 1, 1, 0, 2);
    expect_place(&h, 2, 0, 1, 3);
    expect_place(&h, 3, 1, 1, 2);
    expect_place(&h, 4, 0, 2, 3);
    assert_int_equal(h.host[3], 1);
    assert_int_equal(h.n_here, 3);
    assert_int_equal(h.here[2], 4);
    gwi_hosts_fini(&h);
}

static void a_process_is_on_the_same_host_as_itself(void **state)
{
    (void)state;
    gwi_host_id a = gwi_host_id_get(), b = gwi_host_id_get();

    assert_memory_equal(&a, &b, sizeof a);
    assert_true(a.word[0] != a.word[1]);
}

GWI_TESTS(cmocka_unit_test(one_host_is_as_without_mpi), cmocka_unit_test(a_node_never_spans_hosts),
          cmocka_unit_test(ranks_of_a_host_need_not_follow_each_other),
          cmocka_unit_test(a_process_is_on_the_same_host_as_itself))
