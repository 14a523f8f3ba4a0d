/* json.c - a reader of JSON that trusts nothing. */
#include "base/json.h"

#include <string.h>

gwi_json gwi_json_of(const void *bytes, size_t n_bytes)
{
    return (gwi_json){bytes, bytes, (const char *)bytes + n_bytes, NULL};
}

void gwi_json_refuse(gwi_json *j, const char *problem)
{
    if (j->problem == NULL)
        j->problem = problem;
}

static void pass_space(gwi_json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t'))
        j->at++;
}

/* The next character that counts, or 0. */
static char next(gwi_json *j)
{
    pass_space(j);
    return j->problem == NULL && j->at < j->end ? *j->at : 0;
}

static int take(gwi_json *j, char c)
{
    if (next(j) != c || c == 0)
        return 0;
    j->at++;
    return 1;
}

static void expect(gwi_json *j, char c, const char *problem)
{
    if (!take(j, c))
        gwi_json_refuse(j, problem);
}

/* texts */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Four hexadecimal digits. */
static uint32_t take_unit(gwi_json *j)
{
    uint32_t unit = 0;

    for (int i = 0; i < 4; i++) {
        int digit = j->at < j->end ? hex(*j->at) : -1;
        if (digit < 0) {
            gwi_json_refuse(j, "four hexadecimal digits are missing after \\u");
            return 0;
        }
        unit = unit << 4 | (uint32_t)digit;
        j->at++;
    }
    return unit;
}

/* What follows \u; characters beyond the first 65,536 come as a pair. */
static uint32_t take_code(gwi_json *j)
{
    uint32_t code = take_unit(j);

    if (code >= 0xd800 && code < 0xdc00) {
        if (j->end - j->at < 2 || j->at[0] != '\\' || j->at[1] != 'u') {
            gwi_json_refuse(j, "half of a character");
            return 0;
        }
        j->at += 2;
        uint32_t low = take_unit(j);
        if (low < 0xdc00 || low >= 0xe000)
            gwi_json_refuse(j, "half of a character");
        return 0x10000 + ((code - 0xd800) << 10) + ((low - 0xdc00) & 0x3ff);
    }
    if (code >= 0xdc00 && code < 0xe000)
        gwi_json_refuse(j, "half of a character");
    return code;
}

static size_t encode(uint32_t code, char *ret_bytes)
{
    if (code < 0x80) {
        ret_bytes[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        ret_bytes[i] = (char)(0x80 | (code & 0x3f));
    ret_bytes[0] = (char)((0xf00u >> n & 0xff) | code);
    return n;
}

/* How many bytes the character at `at` has; 0: it is not valid UTF-8. */
static size_t character(const char *at, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)*at;
    size_t n = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;

    if (n == 1)
        return 1;
    if (n == 0 || first >= 0xf8 || n > left)
        return 0;
    uint32_t code = first & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | ((unsigned char)at[i] & 0x3f);
    }
    return code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : n;
}

/* One character of a text, as bytes.  Returns how many. */
static size_t take_character(gwi_json *j, char *ret_bytes)
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";

    if (*j->at == '\\') {
        const char *found = j->end - j->at > 1 && j->at[1] != 0 ? strchr(escapes, j->at[1]) : NULL;
        if (found != NULL) {
            ret_bytes[0] = meant[found - escapes];
            j->at += 2;
            return 1;
        }
        if (j->end - j->at < 2 || j->at[1] != 'u') {
            gwi_json_refuse(j, "an escape that does not exist");
            return 0;
        }
        j->at += 2;
        return encode(take_code(j), ret_bytes);
    }
    size_t n = character(j->at, (size_t)(j->end - j->at));
    if (n == 0 || (unsigned char)*j->at < 0x20) {
        gwi_json_refuse(j, n == 0 ? "a text that is not UTF-8" : "a control character in a text");
        return 0;
    }
    memcpy(ret_bytes, j->at, n);
    j->at += n;
    return n;
}

/* `ret_text` may be NULL: then it is only looked at. */
static void take_text(gwi_json *j, char *ret_text, size_t room)
{
    size_t length = 0;

    expect(j, '"', "a text was expected");
    while (j->problem == NULL && j->at < j->end && *j->at != '"') {
        char bytes[4];
        size_t n = take_character(j, bytes);
        if (j->problem == NULL && ret_text != NULL &&
            (n >= room - length || memchr(bytes, 0, n) != NULL)) {
            gwi_json_refuse(j, "a text that is too long, or has a character 0");
            break;
        }
        if (j->problem == NULL && ret_text != NULL)
            memcpy(ret_text + length, bytes, n);
        length += n;
    }
    if (j->problem == NULL && j->at == j->end)
        gwi_json_refuse(j, "a text does not end");
    j->at += j->problem == NULL;
    if (ret_text != NULL && room > 0)
        ret_text[j->problem == NULL ? length : 0] = 0;
}

void gwi_json_text(gwi_json *j, char *ret_text, size_t room)
{
    take_text(j, ret_text, room);
}

/* numbers */

static int is_digit(const gwi_json *j)
{
    return j->at < j->end && *j->at >= '0' && *j->at <= '9';
}

static void take_digits(gwi_json *j)
{
    if (!is_digit(j))
        gwi_json_refuse(j, "a digit was expected");
    while (is_digit(j))
        j->at++;
}

int64_t gwi_json_number(gwi_json *j)
{
    int64_t value = 0;

    next(j);
    if (j->problem == NULL && !is_digit(j))
        gwi_json_refuse(j, "a whole number was expected");
    if (j->problem == NULL && *j->at == '0' && j->end - j->at > 1 && j->at[1] >= '0' &&
        j->at[1] <= '9')
        gwi_json_refuse(j, "a number begins with 0");
    while (j->problem == NULL && is_digit(j)) {
        int digit = *j->at - '0';
        if (value > (INT64_MAX - digit) / 10)
            gwi_json_refuse(j, "a number is too large");
        else
            value = 10 * value + digit;
        j->at++;
    }
    if (j->problem == NULL && j->at < j->end && strchr(".eE", *j->at) != NULL && *j->at != 0)
        gwi_json_refuse(j, "a whole number was expected");
    return j->problem == NULL ? value : 0;
}

static void skip_number(gwi_json *j)
{
    j->at += *j->at == '-';
    if (is_digit(j) && *j->at == '0')
        j->at++;
    else
        take_digits(j);
    if (j->at < j->end && *j->at == '.') {
        j->at++;
        take_digits(j);
    }
    if (j->problem == NULL && j->at < j->end && (*j->at == 'e' || *j->at == 'E')) {
        j->at++;
        j->at += j->at < j->end && (*j->at == '+' || *j->at == '-');
        take_digits(j);
    }
}

/* objects and arrays */

int gwi_json_object(gwi_json *j)
{
    expect(j, '{', "an object was expected");
    return 0;
}

int gwi_json_array(gwi_json *j)
{
    expect(j, '[', "an array was expected");
    return 0;
}

/* Whether something comes before the closing bracket; the comma is passed. */
static int one_more(gwi_json *j, int *n, char close)
{
    if (j->problem != NULL || take(j, close))
        return 0;
    if (*n > 0)
        expect(j, ',', "a comma or a closing bracket was expected");
    *n = 1;
    return j->problem == NULL;
}

int gwi_json_member(gwi_json *j, int *n, char *ret_name, size_t room)
{
    if (!one_more(j, n, '}'))
        return 0;
    take_text(j, ret_name, room);
    expect(j, ':', "a colon was expected");
    return j->problem == NULL;
}

int gwi_json_element(gwi_json *j, int *n)
{
    return one_more(j, n, ']');
}

static int skip_word(gwi_json *j, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(j->end - j->at) < n || memcmp(j->at, word, n) != 0)
        return 0;
    j->at += n;
    return 1;
}

static void skip(gwi_json *j, int depth)
{
    char first = next(j);
    int n = 0;

    if (depth > GWI_JSON_DEPTH) {
        gwi_json_refuse(j, "too many brackets in each other");
    } else if (first == '{') {
        for (n = gwi_json_object(j); gwi_json_member(j, &n, NULL, 0);)
            skip(j, depth + 1);
    } else if (first == '[') {
        for (n = gwi_json_array(j); gwi_json_element(j, &n);)
            skip(j, depth + 1);
    } else if (first == '"') {
        take_text(j, NULL, 0);
    } else if (first == '-' || (first >= '0' && first <= '9')) {
        skip_number(j);
    } else if (first == 0 ||
               (!skip_word(j, "true") && !skip_word(j, "false") && !skip_word(j, "null"))) {
        gwi_json_refuse(j, "a value was expected");
    }
}

size_t gwi_json_skip(gwi_json *j, const char **ret_value)
{
    next(j);
    const char *from = j->at;
    skip(j, 1);
    if (ret_value != NULL)
        *ret_value = from;
    return j->problem == NULL ? (size_t)(j->at - from) : 0;
}

void gwi_json_end(gwi_json *j)
{
    pass_space(j);
    if (j->at != j->end)
        gwi_json_refuse(j, "something follows the end");
}
