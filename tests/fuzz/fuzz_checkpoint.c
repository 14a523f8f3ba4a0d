/* fuzz_checkpoint.c - whatever is in checkpoint.json or in the head of a part, reading it is safe,
 * and what is let in adds up.
 *
 * The first byte says what the rest is: a list of parts (whose sum is made right, or nobody would
 * look further), the head of a part, or JSON.                                           */
#include "fuzz.h"

#include "base/crc32c.h"
#include "base/json.h"
#include "params/manifest.h"
#include "params/part.h"

#define SAVE "20261116-101500-3f2a9c71"

static void read_list(const char *text, size_t n)
{
    char *whole = malloc(n + 64);
    gwi_manifest m;
    int64_t by_part = 0;

    memcpy(whole, text, n);
    int tail = snprintf(whole + n, 64, ",\n\"crc32c\": \"%08x\"\n}\n",
                        (unsigned)gwi_crc32c(0, text, n));
    char *exact = malloc(n + (size_t)tail); /* a look beyond is noticed */
    memcpy(exact, whole, n + (size_t)tail);
    if (gwi_manifest_parse(exact, n + (size_t)tail, &m) == 0) {
        REQUIRE(gwi_manifest_is_id(m.save) && m.meta != NULL && m.meta[0] == '{');
        for (size_t i = 0; i < m.n_parts; i++) {
            REQUIRE(m.parts[i].n_keys >= 0 && m.parts[i].n_bytes >= 0);
            by_part += m.parts[i].n_keys;
        }
        REQUIRE(by_part == m.n_keys);
        char *again = NULL;
        size_t again_bytes = 0;
        REQUIRE(gwi_manifest_print(&m, &again, &again_bytes) == 0);
        free(again);
        gwi_manifest_fini(&m);
    }
    free(exact);
    free(whole);
}

static void read_head(const char *head, size_t n, uint64_t data_bytes)
{
    uint64_t n_bytes = GWI_SAFETENSORS_HEAD + n + data_bytes;
    gwi_part_file part;

    if (gwi_part_parse(head, n, n_bytes, SAVE, &part) < 0)
        return;
    uint64_t keys = 0, bytes = part.head_bytes, item = gwi_safetensors_item(part.dtype);
    for (size_t c = 0; c < part.n_classes; c++) {
        const gwi_part_class *class = &part.classes[c];
        REQUIRE(class->keys_at >= part.head_bytes && class->values_at >= part.head_bytes);
        REQUIRE(class->keys_at + class->n_keys * 8 <= n_bytes);
        REQUIRE(class->values_at + class->n_keys * class->length * item <= n_bytes);
        keys += class->n_keys;
        bytes += class->n_keys * (8 + class->length * item);
    }
    REQUIRE(keys == part.n_keys && bytes == n_bytes);
    gwi_part_fini(&part);
}

static void read_json(const char *text, size_t n)
{
    gwi_json j = gwi_json_of(text, n);
    const char *value;
    size_t length = gwi_json_skip(&j, &value);

    gwi_json_end(&j);
    REQUIRE(j.at >= j.begin && j.at <= j.end);
    if (j.problem == NULL)
        REQUIRE(length > 0 && value >= text && value + length <= text + n);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input in = {bytes, n_bytes};
    unsigned what = (unsigned)next_number(&in, 1) % 3;
    uint64_t data_bytes = what == 1 ? next_number(&in, 2) : 0;
    size_t n;
    char *text = (char *)next_bytes(&in, n_bytes, &n);

    if (what == 0)
        read_list(text, n);
    else if (what == 1)
        read_head(text, n, data_bytes);
    else
        read_json(text, n);
    free(text);
    return 0;
}

static void plant_kind(char kind, const char *text)
{
    char seed[2048];

    seed[0] = kind;
    size_t n = strlen(text);
    memcpy(seed + 1, text, n);
    plant(seed, n + 1);
}

static void plant_seeds(void)
{
    char head[1024];

    plant_kind(
        0,
        "{\n\"format\": \"godwit checkpoint\",\n\"version\": 1,\n\"save\": \"" SAVE "\",\n"
        "\"created\": \"2026-11-16T10:15:00Z\",\n\"godwit\": \"0.1.0\",\n\"num_keys\": 5,\n"
        "\"dtype\": \"float32\",\n\"ranks\": 2,\n\"nodes\": 1,\n"
        "\"lengths\": [{\"length\": 4, \"keys\": 3}, {\"length\": 2, \"keys\": 2}],\n\"parts\": [\n"
        "{\"file\": \"save-" SAVE
        "/part-00000.safetensors\", \"rank\": 0, \"node\": 0, \"keys\": 3, "
        "\"bytes\": 100, \"crc32c\": \"0123abcd\"},\n"
        "{\"file\": \"save-" SAVE
        "/part-00001.safetensors\", \"rank\": 1, \"node\": 0, \"keys\": 2, "
        "\"bytes\": 100, \"crc32c\": \"00000000\"}],\n\"meta\": {\"a\": [1, \"\\u00e9\"]}");
    /* 40 and 56 bytes of arrays follow these heads */
    int n = snprintf(
        head, sizeof head,
        "%c%c%c{\"__metadata__\":{\"format\":\"godwit checkpoint part 1\",\"save\":\"" SAVE
        "\"},\"keys\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
        "\"values\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]}}  ",
        1, 40, 0);
    plant(head, (size_t)n);
    n = snprintf(head, sizeof head,
                 "%c%c%c{\"__metadata__\":{\"save\":\"" SAVE
                 "\"},\"keys.1\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                 "\"keys.4\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[8,16]},"
                 "\"values.1\":{\"dtype\":\"F64\",\"shape\":[1,1],\"data_offsets\":[16,24]},"
                 "\"values.4\":{\"dtype\":\"F64\",\"shape\":[1,4],\"data_offsets\":[24,56]}}",
                 1, 56, 0);
    plant(head, (size_t)n);
    plant_kind(2, "{\"a\": [1, -2.5e+3, true, null, \"\\ud83d\\ude00\"], \"b\": {\"c\": []}}");
}
