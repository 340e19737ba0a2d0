#include "grammar/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/charset.h"

enum { DEPTH = 40 };

static const char no_memory[] = "out of memory";

typedef struct regex {
    const uint8_t *p;
    mo_bytes *out;
    const char *any;
    int depth;
    const char *why; /* NULL: no error so far */
    bool malformed;
} regex;

static bool cannot(regex *r, const char *why)
{
    r->why = r->why ? r->why : why;
    return false;
}

static bool wrong(regex *r, const char *why)
{
    r->malformed |= !r->why;
    return cannot(r, why);
}

/* ---- Sets of characters ---- */

static bool add(regex *r, mo_charset *set, uint32_t low, uint32_t high)
{
    return mo_charset_add(set, low, high) || cannot(r, no_memory);
}

/* \d \w \s and their opposites. */
static bool add_named(regex *r, mo_charset *set, char name)
{
    mo_charset own = {0};
    bool ok = true;
    switch (name | 0x20) {
    case 'd': ok = add(r, &own, '0', '9'); break;
    case 'w':
        ok = add(r, &own, '0', '9') && add(r, &own, 'a', 'z') && add(r, &own, 'A', 'Z') &&
             add(r, &own, '_', '_');
        break;
    default:
        ok = add(r, &own, '\t', '\r') && add(r, &own, ' ', ' ') && add(r, &own, 0xA0, 0xA0) &&
             add(r, &own, 0x2028, 0x2029) && add(r, &own, 0xFEFF, 0xFEFF);
    }
    ok = ok && mo_charset_settle(&own, name < 'a');
    for (size_t i = 0; i < own.count && ok; i++) {
        ok = add(r, set, own.ranges[i].low, own.ranges[i].high);
    }
    mo_charset_free(&own);
    return ok;
}

static bool read_hex(regex *r, int digits, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++, r->p++) {
        const int c = *r->p;
        const int value = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (value < 0) {
            return wrong(r, "an escape has too few hexadecimal digits");
        }
        *out = *out << 4 | (uint32_t)value;
    }
    return true;
}

/* After a backslash: reads one character, or adds a named set (*named). */
static bool read_escape(regex *r, mo_charset *set, bool in_class, uint32_t *c, bool *named)
{
    const uint8_t e = *r->p;
    *named = false;
    if (e == '\0') {
        return wrong(r, "it ends with a backslash");
    }
    r->p++;
    switch (e) {
    case 'd':
    case 'D':
    case 'w':
    case 'W':
    case 's':
    case 'S': *named = true; return add_named(r, set, (char)e);
    case 'n': *c = '\n'; return true;
    case 't': *c = '\t'; return true;
    case 'r': *c = '\r'; return true;
    case 'f': *c = '\f'; return true;
    case 'v': *c = '\v'; return true;
    case '0': *c = 0; return true;
    case 'x': return read_hex(r, 2, c);
    case 'u':
        if (*r->p == '{') {
            return cannot(r, "\\u{...} is not supported");
        }
        return read_hex(r, 4, c);
    case 'b':
        if (in_class) {
            *c = '\b';
            return true;
        }
        return cannot(r, "word boundaries are not supported");
    default:
        if ((e >= '1' && e <= '9') || e == 'k') {
            return cannot(r, "backreferences are not supported");
        }
        if ((e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z')) {
            return cannot(r, "this escape is not supported");
        }
        if (e >= 0x80) {
            return wrong(r, "unknown escape: a backslash before a letter");
        }
        *c = e;
        return true;
    }
}

static bool read_plain(regex *r, uint32_t *c)
{
    const size_t n = mo_utf8_length(r->p, strlen((const char *)r->p));
    if (n == 0) {
        return wrong(r, "it is not valid UTF-8");
    }
    *c = mo_utf8_decode(r->p, n);
    r->p += n;
    return true;
}

static bool read_class(regex *r, mo_charset *set)
{
    const bool inverted = *r->p == '^';
    r->p += inverted;
    while (*r->p != ']') {
        uint32_t low = 0, high;
        bool named = false, ok;
        if (*r->p == '\0') {
            return wrong(r, "unterminated character class");
        }
        if (*r->p == '\\') {
            r->p++;
            ok = read_escape(r, set, true, &low, &named);
        } else {
            ok = read_plain(r, &low);
        }
        if (!ok) {
            return false;
        }
        if (named) {
            continue;
        }
        high = low;
        if (r->p[0] == '-' && r->p[1] != ']' && r->p[1] != '\0') {
            const uint8_t *dash = r->p++;
            if (*r->p == '\\') {
                r->p++;
                ok = read_escape(r, set, true, &high, &named);
            } else {
                ok = read_plain(r, &high);
            }
            if (!ok) {
                return false;
            }
            if (named) { /* [a-\d] is three members */
                if (!add(r, set, '-', '-')) {
                    return false;
                }
                r->p = dash + 1;
                high = low;
            }
        }
        if (high < low) {
            return wrong(r, "a range ends before it starts");
        }
        if (!add(r, set, low, high)) {
            return false;
        }
    }
    r->p++;
    return mo_charset_settle(set, inverted) || cannot(r, no_memory);
}

/* ---- Writing ---- */

/* Characters that are escaped in a JSON string. */
static const struct {
    uint32_t c;
    const char *text;
} escaped[] = {
    {'"', "\"\\\\\\\"\""}, {'\\', "\"\\\\\\\\\""}, {'\b', "\"\\\\b\""}, {'\f', "\"\\\\f\""},
    {'\n', "\"\\\\n\""},   {'\r', "\"\\\\r\""},    {'\t', "\"\\\\t\""},
};

static void write_range(regex *r, uint32_t low, uint32_t high)
{
    mo_writer_class_character(r->out, low);
    if (high > low) {
        mo_bytes_print(r->out, "-");
        mo_writer_class_character(r->out, high);
    }
}

/* Writes a finished set: its literal characters and its escapes. */
static void write_set(regex *r, const mo_charset *set)
{
    mo_bytes_print(r->out, "([");
    for (size_t i = 0; i < set->count; i++) {
        uint32_t low = set->ranges[i].low, high = set->ranges[i].high;
        low = low < 0x20 ? 0x20 : low;
        for (uint32_t stop = '"'; stop != 0 && low <= high; stop = stop == '"' ? '\\' : 0) {
            if (low <= stop && stop <= high) {
                if (low < stop) {
                    write_range(r, low, stop - 1);
                }
                low = stop + 1;
            }
        }
        if (low <= high) {
            write_range(r, low, high);
        }
    }
    mo_bytes_print(r->out, "]");
    for (size_t i = 0; i < sizeof escaped / sizeof *escaped; i++) {
        if (mo_charset_has(set, escaped[i].c)) {
            mo_bytes_print(r->out, " | %s", escaped[i].text);
        }
    }
    mo_bytes_print(r->out, ")");
}

/* ---- Structure ---- */

static bool read_alternatives(regex *r, bool top);

static bool read_count(regex *r, long *out)
{
    char *end;
    if (*r->p < '0' || *r->p > '9') {
        return false;
    }
    *out = strtol((const char *)r->p, &end, 10);
    *out = *out > 1000000 ? 1000000 : *out;
    r->p = (const uint8_t *)end;
    return true;
}

static bool read_quantifier(regex *r)
{
    long min, max;
    switch (*r->p) {
    case '*':
    case '+':
    case '?': mo_bytes_print(r->out, "%c", *r->p++); break;
    case '{':
        r->p++;
        if (!read_count(r, &min)) {
            return wrong(r, "expected a number of repetitions after {");
        }
        mo_bytes_print(r->out, "{%ld", min);
        if (*r->p == ',') {
            r->p++;
            mo_bytes_print(r->out, ",");
            if (read_count(r, &max)) {
                if (max < min) {
                    return wrong(r, "the maximum of a repetition is below its minimum");
                }
                mo_bytes_print(r->out, "%ld", max);
            }
        }
        if (*r->p++ != '}') {
            return wrong(r, "expected } after a number of repetitions");
        }
        mo_bytes_print(r->out, "}");
        break;
    default: return true;
    }
    r->p += *r->p == '?'; /* a lazy quantifier matches the same texts */
    return true;
}

static bool read_group(regex *r)
{
    if (++r->depth > DEPTH) {
        return wrong(r, "too many open parentheses");
    }
    if (r->p[0] == '?') {
        if (r->p[1] == ':') {
            r->p += 2;
        } else if (r->p[1] == '<' && r->p[2] != '=' && r->p[2] != '!') {
            while (*r->p && *r->p != '>') {
                r->p++;
            }
            r->p += *r->p == '>';
        } else {
            return cannot(r, "lookahead and lookbehind are not supported");
        }
    }
    mo_bytes_print(r->out, "(");
    if (!read_alternatives(r, false)) {
        return false;
    }
    if (*r->p != ')') {
        return wrong(r, "a parenthesis is not closed");
    }
    r->p++;
    r->depth--;
    mo_bytes_print(r->out, ")");
    return true;
}

static bool read_atom(regex *r)
{
    mo_charset set = {0};
    uint32_t c = 0;
    bool named = false, ok = true;
    const uint8_t first = *r->p;
    if (first == '(') {
        r->p++;
        return read_group(r);
    }
    if (first == '[') {
        r->p++;
        ok = read_class(r, &set);
    } else if (first == '.') {
        r->p++;
        ok = add(r, &set, '\n', '\n') && add(r, &set, '\r', '\r') && add(r, &set, 0x2028, 0x2029) &&
             mo_charset_settle(&set, true);
    } else if (first == '*' || first == '+' || first == '?') {
        return wrong(r, "there is nothing to repeat");
    } else if (first == '^' || first == '$') {
        return cannot(r, "^ and $ are supported only at the ends");
    } else {
        if (first == '\\') {
            r->p++;
            ok = read_escape(r, &set, false, &c, &named);
        } else {
            ok = read_plain(r, &c);
        }
        ok = ok && (named || add(r, &set, c, c)) && mo_charset_settle(&set, false);
    }
    if (ok) {
        write_set(r, &set);
    }
    mo_charset_free(&set);
    return ok || cannot(r, no_memory);
}

static bool read_sequence(regex *r, bool top)
{
    bool begins = false, ends = false, some = false;
    if (top && *r->p == '^') {
        begins = true;
        r->p++;
    }
    if (top && !begins) {
        mo_bytes_print(r->out, "%s* ", r->any);
    }
    while (*r->p && *r->p != '|' && *r->p != ')') {
        if (top && *r->p == '$' && (r->p[1] == '\0' || r->p[1] == '|')) {
            ends = true;
            r->p++;
            break;
        }
        some = true;
        if (!read_atom(r) || !read_quantifier(r)) {
            return false;
        }
        mo_bytes_print(r->out, " ");
    }
    if (!some) {
        mo_bytes_print(r->out, "\"\" ");
    }
    if (top && !ends) {
        mo_bytes_print(r->out, "%s*", r->any);
    }
    return true;
}

static bool read_alternatives(regex *r, bool top)
{
    if (!read_sequence(r, top)) {
        return false;
    }
    while (*r->p == '|') {
        r->p++;
        mo_bytes_print(r->out, "| ");
        if (!read_sequence(r, top)) {
            return false;
        }
    }
    return true;
}

bool mo_regex_write(const char *pattern, const char *any, mo_bytes *out, const char **why, bool *malformed)
{
    regex r = {.p = (const uint8_t *)pattern, .out = out, .any = any};
    bool ok = read_alternatives(&r, true);
    if (ok && *r.p == ')') {
        ok = wrong(&r, "unmatched closing parenthesis");
    }
    *why = r.why == no_memory ? NULL : r.why;
    *malformed = r.malformed;
    return ok;
}
