/* fuzz_hello.c - no packet makes a meeting believe what cannot be.
 *
 * The first byte says whether the rest comes to a gatherer (a hello, an obituary)
 * or from one (an answer), which rank reads it, and whether a descriptor came
 * along.                                                                     */
#include "fuzz.h"

#include "base/error.h"
#include "fabric/host/hello.h"

enum { LAYOUT = 77, SIZE = 6, NODE_SIZE = 2, SENDER = 4711, GATHERER = 12 };

static gwi_hello hello_of(int rank)
{
    gwi_job job = {.rank = rank, .size = SIZE, .node_size = NODE_SIZE};
    gwi_hello hello = gwi_hello_of(&job, LAYOUT);

    hello.pid = SENDER; /* the same in every run */
    hello.start = 1;
    return hello;
}

static void try_hello(const gwi_hello *mine, const uint8_t *packet, size_t n_bytes)
{
    gwi_hello got = {.rank = -3};
    char why[GWI_HELLO_WHY_BYTES];

    memset(why, 'x', sizeof why);
    int good = gwi_hello_read(mine, packet, n_bytes, SENDER, &got, why);
    REQUIRE(memchr(why, '\0', sizeof why) != NULL || good);
    if (!good) {
        REQUIRE(why[0] != '\0');
        return;
    }
    REQUIRE(n_bytes == sizeof got && memcmp(packet, &got, sizeof got) == 0);
    REQUIRE(got.magic == mine->magic && got.layout == LAYOUT && got.pid == SENDER);
    REQUIRE(got.size == SIZE && got.node_size == NODE_SIZE && got.rank >= -1 && got.rank < SIZE);
}

static void try_obituary(const gwi_hello *mine, const uint8_t *packet, size_t n_bytes)
{
    gwi_obituary got = {.rank = -3};

    if (gwi_obituary_read(mine, packet, n_bytes, &got))
        REQUIRE(n_bytes == sizeof got && memcmp(packet, &got, sizeof got) == 0 && got.rank >= 0 &&
                got.rank < SIZE);
    else
        REQUIRE(got.rank == -3);
}

static void try_answer(const gwi_hello *mine, const uint8_t *packet, size_t n_bytes,
                       int has_descriptor)
{
    gwi_answer got = {.rank = -3};
    int status = gwi_answer_read(mine, packet, n_bytes, has_descriptor, GATHERER, &got);

    if (status < 0) {
        REQUIRE(gw_errname(status)[0] != '?' && gw_last_error()[0] != '\0' && got.rank == -3);
        return;
    }
    REQUIRE(status == GWI_NOTED || (status == GWI_WELCOME && has_descriptor));
    REQUIRE(n_bytes == sizeof got && got.status == status);
    REQUIRE(got.rank >= (status == GWI_NOTED ? -1 : 0) && got.rank < SIZE);
    REQUIRE(status == GWI_NOTED || mine->rank < 0 || got.rank == mine->rank);
    REQUIRE(memchr(got.text, '\0', sizeof got.text) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input in = {bytes, n_bytes};
    unsigned how = (unsigned)next_number(&in, 1);
    size_t n;
    uint8_t *packet = next_bytes(&in, in.left, &n);
    static gwi_hello mine[2];

    if (mine[0].magic == 0) {
        mine[0] = hello_of(-1);
        mine[1] = hello_of(3);
    }
    if (how & 1) {
        try_answer(&mine[how >> 1 & 1], packet, n, how >> 2 & 1);
    } else {
        try_hello(&mine[how >> 1 & 1], packet, n);
        try_obituary(&mine[how >> 1 & 1], packet, n);
    }
    free(packet);
    return 0;
}

static void plant_answer(char how, int status, int rank, const char *text)
{
    struct {
        char how;
        char packet[sizeof(gwi_answer)];
    } seed = {.how = how};
    gwi_answer answer = {.status = status, .rank = rank};

    snprintf(answer.text, sizeof answer.text, "%s", text);
    memcpy(seed.packet, &answer, sizeof answer);
    plant(&seed, sizeof seed);
}

/* An answer whose text has no end. */
static void plant_endless(int32_t status)
{
    char seed[1 + sizeof(gwi_answer)];

    memset(seed, 'x', sizeof seed);
    seed[0] = 1;
    memcpy(seed + 1, (int32_t[]){status, 0}, 8);
    plant(seed, sizeof seed);
}

static void plant_seeds(void)
{
    struct {
        char how;
        char packet[sizeof(gwi_hello)];
    } seed = {0};

    for (int rank = -1; rank <= SIZE; rank++) {
        gwi_hello hello = hello_of(rank);
        memcpy(seed.packet, &hello, sizeof hello);
        plant(&seed, sizeof seed);
    }
    plant(&seed, sizeof seed - 1);
    gwi_obituary obituary = gwi_obituary_of(2, SENDER);
    memcpy(seed.packet, &obituary, sizeof obituary);
    plant(&seed, 1 + sizeof obituary);
    plant_answer(1, GWI_NOTED, 0, "");
    plant_answer(5, GWI_WELCOME, 3, "");
    plant_answer(7, GWI_WELCOME, 3, "");
    plant_answer(1, GW_EDISAGREE, 0, "rank 2 was refused");
    plant_endless(GWI_NOTED);
    plant_endless(GW_EDISAGREE);
}
