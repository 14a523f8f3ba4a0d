/* manifest.c - writing and reading checkpoint.json. */
#include "params/manifest.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT "godwit checkpoint"
#define VERSION 1
#define MOST_RANKS 99999

void gwi_manifest_part_name(const gwi_manifest *m, int rank, char *ret_name, size_t room)
{
    snprintf(ret_name, room, "save-%s/part-%05d.safetensors", m->save, rank);
}

/* Digits, hyphens and hexadecimal digits: nothing that could lead elsewhere. */
int gwi_manifest_is_id(const char *text)
{
    static const char form[] = "dddddddd-dddddd-xxxxxxxx";

    if (strlen(text) != strlen(form))
        return 0;
    for (size_t i = 0; form[i] != 0; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
        if (form[i] == 'd' ? !digit : form[i] == 'x' ? !(digit || letter) : c != form[i])
            return 0;
    }
    return 1;
}

/* writing */

static void print_entries(const gwi_manifest *m, FILE *to)
{
    char name[96];

    fprintf(to,
            "{\n\"format\": \"%s\",\n\"version\": %d,\n\"save\": \"%s\",\n\"created\": \"%s\",\n"
            "\"godwit\": \"%s\",\n\"num_keys\": %lld,\n\"dtype\": \"%s\",\n\"ranks\": %d,\n"
            "\"nodes\": %d,\n\"lengths\": [",
            FORMAT, VERSION, m->save, m->created, m->library, (long long)m->n_keys,
            m->dtype == GW_F32 ? "float32" : "float64", m->ranks, m->nodes);
    for (size_t i = 0; i < m->n_lengths; i++)
        fprintf(to, "%s{\"length\": %lld, \"keys\": %lld}", i == 0 ? "" : ", ",
                (long long)m->lengths[i].length, (long long)m->lengths[i].n_keys);
    fprintf(to, "],\n\"parts\": [");
    for (size_t i = 0; i < m->n_parts; i++) {
        const gwi_manifest_part *p = &m->parts[i];
        gwi_manifest_part_name(m, p->rank, name, sizeof name);
        fprintf(to,
                "%s\n{\"file\": \"%s\", \"rank\": %d, \"node\": %d, \"keys\": %lld, "
                "\"bytes\": %lld, \"crc32c\": \"%08x\"}",
                i == 0 ? "" : ",", name, p->rank, p->node, (long long)p->n_keys,
                (long long)p->n_bytes, (unsigned)p->crc);
    }
    fprintf(to, "],\n\"meta\": %s", m->meta);
}

#define TAIL ",\n\"crc32c\": \"%08x\"\n}\n"
#define TAIL_BYTES (strlen(TAIL) - strlen("%08x") + 8)

int gwi_manifest_print(const gwi_manifest *m, char **ret_text, size_t *ret_bytes)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *to = open_memstream(&text, &n_bytes);

    if (to == NULL)
        return gwi_fail(GW_ENOMEM, "a list of %zu parts", m->n_parts);
    print_entries(m, to);
    fflush(to);
    if (!ferror(to))
        fprintf(to, TAIL, (unsigned)gwi_crc32c(0, text, n_bytes));
    int failed = ferror(to);
    if (fclose(to) != 0 || failed) {
        free(text);
        return gwi_fail(GW_ENOMEM, "a list of %zu parts", m->n_parts);
    }
    *ret_text = text;
    *ret_bytes = n_bytes;
    return 0;
}

/* reading */

static int read_int(gwi_json *j, int64_t least, int64_t most)
{
    int64_t value = gwi_json_number(j);

    if (value < least || value > most) {
        gwi_json_refuse(j, "a number is out of range");
        return 0;
    }
    return (int)value;
}

static void read_text(gwi_json *j, char *ret_text, size_t room, const char *must_be)
{
    gwi_json_text(j, ret_text, room);
    if (j->problem == NULL && must_be != NULL && strcmp(ret_text, must_be) != 0)
        gwi_json_refuse(j, "a text is not what it should be");
}

static uint32_t read_crc(gwi_json *j)
{
    char text[16];
    char *end = NULL;

    gwi_json_text(j, text, sizeof text);
    unsigned long value = strtoul(text, &end, 16);
    if (strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8 || *end != 0)
        gwi_json_refuse(j, "a checksum was expected, 8 hexadecimal digits");
    return (uint32_t)value;
}

/* Room for one more at the end of a list. */
static void *grow(gwi_json *j, void *list, size_t n, size_t item_bytes)
{
    if (n != 0 && (n & (n - 1)) != 0)
        return list;
    void *grown = realloc(list, (n == 0 ? 1 : 2 * n) * item_bytes);

    if (grown == NULL)
        gwi_json_refuse(j, "there is not enough memory for it");
    return grown != NULL ? grown : list;
}

static void read_part(gwi_json *j, const gwi_manifest *m, gwi_manifest_part *part)
{
    char name[16], file[96] = "", expected[96];
    unsigned seen = 0, now;

    *part = (gwi_manifest_part){0};
    for (int n = gwi_json_object(j); gwi_json_member(j, &n, name, sizeof name); seen |= now) {
        now = strcmp(name, "file") == 0     ? 1
              : strcmp(name, "rank") == 0   ? 2
              : strcmp(name, "node") == 0   ? 4
              : strcmp(name, "keys") == 0   ? 8
              : strcmp(name, "bytes") == 0  ? 16
              : strcmp(name, "crc32c") == 0 ? 32
                                            : 0;
        if (now == 0 || seen & now)
            gwi_json_refuse(j, "a part has an entry of an unknown name, or twice");
        else if (now == 1)
            read_text(j, file, sizeof file, NULL);
        else if (now == 2)
            part->rank = read_int(j, 0, MOST_RANKS);
        else if (now == 4)
            part->node = read_int(j, 0, MOST_RANKS);
        else if (now == 8)
            part->n_keys = gwi_json_number(j);
        else if (now == 16)
            part->n_bytes = gwi_json_number(j);
        else
            part->crc = read_crc(j);
    }
    gwi_manifest_part_name(m, part->rank, expected, sizeof expected);
    if (seen != 63 || strcmp(file, expected) != 0)
        gwi_json_refuse(j, "a part lacks an entry, or has a name that no part has");
}

static void read_parts(gwi_json *j, gwi_manifest *m)
{
    for (int n = gwi_json_array(j); gwi_json_element(j, &n); m->n_parts++) {
        m->parts = grow(j, m->parts, m->n_parts, sizeof *m->parts);
        if (j->problem != NULL)
            return;
        read_part(j, m, &m->parts[m->n_parts]);
        if (m->n_parts > 0 && m->parts[m->n_parts].rank <= m->parts[m->n_parts - 1].rank)
            gwi_json_refuse(j, "the parts are not in the order of ranks");
    }
}

static void read_lengths(gwi_json *j, gwi_manifest *m)
{
    char name[16];

    for (int n = gwi_json_array(j); gwi_json_element(j, &n); m->n_lengths++) {
        m->lengths = grow(j, m->lengths, m->n_lengths, sizeof *m->lengths);
        if (j->problem != NULL || m->n_lengths == GWI_MAX_CLASSES) {
            gwi_json_refuse(j, "too many lengths");
            return;
        }
        gwi_manifest_length *l = &m->lengths[m->n_lengths];
        *l = (gwi_manifest_length){0};
        for (int k = gwi_json_object(j); gwi_json_member(j, &k, name, sizeof name);)
            if (strcmp(name, "length") == 0)
                l->length = gwi_json_number(j);
            else if (strcmp(name, "keys") == 0)
                l->n_keys = gwi_json_number(j);
            else
                gwi_json_refuse(j, "a length has an entry of an unknown name");
        if (l->length < 1 || l->length > GWI_MAX_LENGTH || l->n_keys < 1)
            gwi_json_refuse(j, "a length is out of range");
    }
}

static void read_meta(gwi_json *j, gwi_manifest *m)
{
    const char *value = NULL;
    size_t n = gwi_json_skip(j, &value);

    if (j->problem != NULL)
        return;
    m->meta = *value == '{' && n <= GWI_META_MOST ? malloc(n + 1) : NULL;
    if (m->meta == NULL) {
        gwi_json_refuse(j, "meta is no object, or too large");
        return;
    }
    memcpy(m->meta, value, n);
    m->meta[n] = 0;
}

static void read_dtype(gwi_json *j, gwi_manifest *m)
{
    char text[16];

    gwi_json_text(j, text, sizeof text);
    m->dtype = strcmp(text, "float32") == 0 ? GW_F32 : GW_F64;
    if (m->dtype == GW_F64 && strcmp(text, "float64") != 0)
        gwi_json_refuse(j, "another dtype than float32 and float64");
}

/* The entries in the order in which they are written: each once, and none unknown. */
static const char *const entries[] = {"format",   "version", "save",  "created", "godwit",
                                      "num_keys", "dtype",   "ranks", "nodes",   "lengths",
                                      "parts",    "meta",    "crc32c"};
#define N_ENTRIES (sizeof entries / sizeof *entries)

static void read_entry(gwi_json *j, gwi_manifest *m, size_t which)
{
    char text[32];

    switch (which) {
    case 0:
        read_text(j, text, sizeof text, FORMAT);
        break;
    case 1:
        if (read_int(j, 0, INT_MAX) != VERSION)
            gwi_json_refuse(j, "it was written by a newer version of Godwit");
        break;
    case 2:
        read_text(j, m->save, sizeof m->save, NULL);
        if (!gwi_manifest_is_id(m->save))
            gwi_json_refuse(j, "save is no name of a save");
        break;
    case 3:
        read_text(j, m->created, sizeof m->created, NULL);
        break;
    case 4:
        read_text(j, m->library, sizeof m->library, NULL);
        break;
    case 5:
        m->n_keys = gwi_json_number(j);
        break;
    case 6:
        read_dtype(j, m);
        break;
    case 7:
        m->ranks = read_int(j, 1, MOST_RANKS + 1);
        break;
    case 8:
        m->nodes = read_int(j, 1, MOST_RANKS + 1);
        break;
    case 9:
        read_lengths(j, m);
        break;
    case 10:
        read_parts(j, m);
        break;
    case 11:
        read_meta(j, m);
        break;
    default:
        read_crc(j);
    }
}

/* The numbers of keys add up. */
static int adds_up(const gwi_manifest *m)
{
    uint64_t by_length = 0, by_part = 0, n = (uint64_t)m->n_keys;

    for (size_t i = 0; i < m->n_lengths && by_length <= n; i++)
        by_length += (uint64_t)m->lengths[i].n_keys;
    for (size_t i = 0; i < m->n_parts && by_part <= n; i++)
        by_part += (uint64_t)m->parts[i].n_keys;
    return by_length == n && by_part == n && n > 0;
}

static int check_sum(const char *text, size_t n_bytes)
{
    char tail[64];

    if (n_bytes < TAIL_BYTES)
        return gwi_fail(GW_EINVAL, "it is truncated");
    size_t n = n_bytes - TAIL_BYTES;
    snprintf(tail, sizeof tail, TAIL, (unsigned)gwi_crc32c(0, text, n));
    if (memcmp(text + n, tail, TAIL_BYTES) != 0)
        return gwi_fail(GW_EINVAL, "it is damaged or truncated: its checksum is not that of its "
                                   "text");
    return 0;
}

int gwi_manifest_parse(const char *text, size_t n_bytes, gwi_manifest *ret_m)
{
    gwi_manifest m = {0};
    gwi_json j = gwi_json_of(text, n_bytes);
    char name[16];
    size_t which = 0;
    int err = check_sum(text, n_bytes);

    if (err < 0)
        return err;
    for (int n = gwi_json_object(&j); gwi_json_member(&j, &n, name, sizeof name); which++)
        if (which == N_ENTRIES || strcmp(name, entries[which]) != 0)
            gwi_json_refuse(&j, "an entry of another name was expected");
        else
            read_entry(&j, &m, which);
    gwi_json_end(&j);
    if (which < N_ENTRIES)
        gwi_json_refuse(&j, "it lacks an entry");
    if (j.problem == NULL && !adds_up(&m))
        gwi_json_refuse(&j, "its numbers of keys do not add up");
    if (j.problem != NULL) {
        gwi_manifest_fini(&m);
        return gwi_fail(GW_EINVAL, "it makes no sense at byte %zu: %s", (size_t)(j.at - j.begin),
                        j.problem);
    }
    *ret_m = m;
    return 0;
}

/* The whole file with a 0 behind it. */
static int read_file(int fd, const char *path, char **ret_text, size_t *ret_bytes)
{
    off_t size = lseek(fd, 0, SEEK_END);
    size_t n = 0;

    if (size < 0 || (uint64_t)size > GWI_MANIFEST_MOST)
        return gwi_fail(GW_EINVAL, "%s: it has %lld bytes, which no such file has", path,
                        (long long)size);
    char *text = malloc((size_t)size + 1);
    if (text == NULL)
        return gwi_fail(GW_ENOMEM, "%s, %lld bytes", path, (long long)size);
    while (n < (size_t)size) {
        ssize_t got = pread(fd, text + n, (size_t)size - n, (off_t)n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    text[n] = 0;
    *ret_text = text;
    *ret_bytes = n;
    return 0;
}

int gwi_manifest_read(const char *dir, gwi_manifest *ret_m, char **ret_text, int *ret_is_none)
{
    char path[PATH_MAX], *text = NULL;
    size_t n = 0;

    if (ret_is_none != NULL)
        *ret_is_none = 0;
    snprintf(path, sizeof path, "%s/%s", dir, GWI_MANIFEST_FILE);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (ret_is_none != NULL)
            *ret_is_none = errno == ENOENT;
        return errno == ENOENT ? gwi_fail(GW_ESYS, "there is no checkpoint in '%s': it has no %s",
                                          dir, GWI_MANIFEST_FILE)
                               : gwi_fail(GW_ESYS, "cannot read %s: %s", path, strerror(errno));
    }
    int err = read_file(fd, path, &text, &n);
    close(fd);
    if (err == 0) {
        err = gwi_manifest_parse(text, n, ret_m);
        if (err < 0)
            gwi_fail(err, "%s: %s", path, gw_last_error());
    }
    if (err == 0 && ret_text != NULL)
        *ret_text = text;
    else
        free(text);
    return err;
}

void gwi_manifest_fini(gwi_manifest *m)
{
    free(m->lengths);
    free(m->parts);
    free(m->meta);
    *m = (gwi_manifest){0};
}
