/* fuzz_options.c - whatever the environment holds is a job that can be, or an error.
 *
 * The input is lines.  The first byte of a line chooses a variable, the rest of
 * it is the variable's text.                                                 */
#include "fuzz.h"

#include "base/error.h"
#include "base/option.h"
#include "fabric/job.h"

#include <ctype.h>
#include <limits.h>

static const char *const variables[] = {
    "GODWIT_JOB",           "GODWIT_RANK",          "GODWIT_SIZE", "GODWIT_NODE_SIZE",
    "GODWIT_TIMEOUT",       "TORCHELASTIC_RUN_ID",  "RANK",        "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",     "MASTER_ADDR",          "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE",    "PMI_RANK",
    "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",         "PMIX_RANK",
};

enum { N_VARIABLES = sizeof variables / sizeof variables[0] };

static void set_variables(struct input *in)
{
    for (int i = 0; i < N_VARIABLES; i++)
        unsetenv(variables[i]);
    while (in->left > 0) {
        const char *name = variables[next_number(in, 1) % N_VARIABLES];
        const uint8_t *end = memchr(in->at, '\n', in->left);
        size_t n;
        char *line = (char *)next_bytes(in, end != NULL ? (size_t)(end - in->at) : in->left, &n);
        char *text = strndup(line, n);
        REQUIRE(setenv(name, text, 1) == 0);
        next_number(in, 1); /* the end of the line */
        free(text);
        free(line);
    }
}

/* What a whole number is, said once more: blanks, a sign, digits. */
static int is_int_between(const char *text, long low, long high)
{
    long value = 0;
    int negative, digits = 0;

    while (isspace((unsigned char)*text))
        text++;
    negative = *text == '-';
    text += *text == '-' || *text == '+';
    for (; isdigit((unsigned char)*text); text++, digits++)
        value = value > 10L * INT_MAX ? value : value * 10 + (*text - '0');
    value = negative ? -value : value;
    return digits > 0 && *text == '\0' && value >= low && value <= high;
}

static void try_parser(const char *text)
{
    static const struct {
        int low, high;
    } ranges[] = {{0, 4095}, {1, 4096}, {INT_MIN, INT_MAX}, {5, 5}};

    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        int low = ranges[i].low, high = ranges[i].high, value = 12345;
        int err = gwi_parse_int("it", text, low, high, &value);
        REQUIRE((err == 0) == is_int_between(text, low, high));
        REQUIRE(err == 0 ? value >= low && value <= high : err == GW_EINVAL && value == 12345);
        REQUIRE(err == 0 || value == 12345);
    }
}

static void try_options(void)
{
    gw_option_info info = {.size = sizeof info};
    int n = 0;

    for (; gw_option_get(n, &info) == 0; n++) {
        const char *text = getenv(info.name);
        REQUIRE(info.given == (text != NULL && text[0] != '\0'));
        REQUIRE(memchr(info.value, '\0', sizeof info.value) != NULL);
        REQUIRE(memchr(info.problem, '\0', sizeof info.problem) != NULL);
        REQUIRE(!info.given || strncmp(info.value, text, sizeof info.value - 1) == 0);
        REQUIRE(info.given || info.problem[0] == '\0');
    }
    REQUIRE(n >= GWI_N_OPTIONS);
}

static void try_job(void)
{
    gw_world_options options = GW_WORLD_OPTIONS_INIT;
    gwi_job job;

    memset(&job, 'x', sizeof job);
    int err = gwi_job_find(&options, &job);
    if (err < 0) {
        REQUIRE(gw_errname(err)[0] != '?' && gw_last_error()[0] != '\0');
        return;
    }
    REQUIRE(job.size >= 1 && job.size <= GWI_MAX_SIZE);
    REQUIRE(job.rank >= -1 && job.rank < job.size);
    REQUIRE(job.node_size >= 1 && job.node_size <= job.size);
    REQUIRE(job.timeout_ns > 0 || getenv("GODWIT_TIMEOUT") != NULL);
    REQUIRE(job.timeout_ns >= 0 && job.name[0] != '\0');
    REQUIRE(memchr(job.name, '\0', sizeof job.name) != NULL);
    REQUIRE(memchr(job.reason, '\0', sizeof job.reason) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input in = {bytes, n_bytes};
    char *text = strndup((const char *)bytes, n_bytes);

    try_parser(text);
    free(text);
    set_variables(&in);
    try_options();
    try_job();
    return 0;
}

static void plant_text(const char *text)
{
    plant(text, strlen(text));
}

static void plant_seeds(void)
{
    plant_text(" -12");
    plant_text("2147483648");
    plant_text("\x13job\n\x01"
               "1\n\x02"
               "4\n\x03"
               "2\n\x04"
               "2.5");
    plant_text("\x05run\n\x06"
               "1\n\x07"
               "4\n\x08"
               "4\n\x09host\n\x0a"
               "29500\n\x0b"
               "0");
    plant_text("\x0c"
               "1\n\x0d"
               "0");
    plant_text("\x0e"
               "4\n\x0f"
               "3");
    plant_text("\x10"
               "4\n\x11"
               "3\n\x12"
               "3");
    plant_text("\x04"
               "1e400\n\x04"
               "0x1p-70\n\x04nan");
}
