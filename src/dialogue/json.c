/* Json: small machines over bytes. */
#include "dialogue/json.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void mo_json_escape(mo_bytes *to, char c)
{
    char text[8];
    switch (c) {
    case '"': mo_bytes_add(to, "\\\"", 2); break;
    case '\\': mo_bytes_add(to, "\\\\", 2); break;
    case '\n': mo_bytes_add(to, "\\n", 2); break;
    case '\r': mo_bytes_add(to, "\\r", 2); break;
    case '\t': mo_bytes_add(to, "\\t", 2); break;
    default:
        if ((unsigned char)c < 0x20) {
            snprintf(text, sizeof text, "\\u%04x", (unsigned)(unsigned char)c);
            mo_bytes_add(to, text, 6);
        } else {
            mo_bytes_add(to, &c, 1);
        }
    }
}

void mo_json_quote(mo_bytes *to, mo_text text)
{
    mo_bytes_add(to, "\"", 1);
    for (size_t i = 0; i < text.length; i++) {
        mo_json_escape(to, text.data[i]);
    }
    mo_bytes_add(to, "\"", 1);
}

/* ---- Strings that are read ---- */

static void add_code(mo_bytes *to, uint32_t c)
{
    char u[4];
    mo_bytes_add(to, u, mo_utf8_encode(c, u));
}

/* A half of a pair that stays alone becomes U+FFFD. */
static void drop_high(mo_json_string *s, mo_bytes *to)
{
    if (s->high) {
        add_code(to, 0xFFFD);
        s->high = 0;
    }
}

static void end_code(mo_json_string *s, mo_bytes *to)
{
    const uint32_t c = s->code;
    if (c >= 0xDC00 && c < 0xE000 && s->high) {
        add_code(to, 0x10000 + ((s->high - 0xD800) << 10) + (c - 0xDC00));
        s->high = 0;
        return;
    }
    drop_high(s, to);
    if (c >= 0xD800 && c < 0xDC00) {
        s->high = c;
    } else {
        add_code(to, c >= 0xDC00 && c < 0xE000 ? 0xFFFD : c);
    }
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static void put_escape(mo_json_string *s, char c, mo_bytes *to)
{
    static const char from[] = "nrtbf", codes[] = "\n\r\t\b\f";
    s->escaped = false;
    if (c == 'u') {
        s->digits = 4;
        s->code = 0;
        return;
    }
    const char *at = memchr(from, c, sizeof from - 1);
    drop_high(s, to);
    mo_bytes_add(to, at ? codes + (at - from) : &c, 1);
}

bool mo_json_string_put(mo_json_string *s, char c, mo_bytes *to)
{
    if (s->digits > 0) {
        if (hex(c) >= 0) {
            s->code = s->code << 4 | (uint32_t)hex(c);
            if (--s->digits == 0) {
                end_code(s, to);
            }
            return false;
        }
        s->digits = 0; /* a broken escape is left out */
    }
    if (s->escaped) {
        put_escape(s, c, to);
        return false;
    }
    if (c == '\\') {
        s->escaped = true;
        return false;
    }
    drop_high(s, to);
    if (c == '"') {
        return true;
    }
    mo_bytes_add(to, &c, 1);
    return false;
}

/* ---- Values that pass ---- */

static void keep(mo_bytes *to, const char *data, size_t n)
{
    if (to) {
        mo_bytes_add(to, data, n);
    }
}

static void put_in_string(mo_json_scan *s, char c, mo_bytes *to)
{
    if (s->escaped) {
        s->escaped = false;
        if (mo_json_among(c, "\"\\/bfnrtu")) {
            keep(to, "\\", 1);
            keep(to, &c, 1);
            return;
        } /* otherwise the backslash is left out */
    } else if (c == '\\') {
        s->escaped = true; /* kept when it is known to be right */
        return;
    } else if (c == '"') {
        s->in_string = false;
        keep(to, &c, 1);
        return;
    }
    if (to) {
        if ((unsigned char)c < 0x20) {
            mo_json_escape(to, c);
        } else {
            mo_bytes_add(to, &c, 1);
        }
    }
}

mo_json_step mo_json_scan_put(mo_json_scan *s, char c, mo_bytes *to)
{
    if (s->in_string) {
        put_in_string(s, c, to);
        return !s->in_string && s->depth == 0 ? MO_JSON_END : MO_JSON_MORE;
    }
    if (s->scalar && (mo_json_is_space(c) || mo_json_among(c, ",}]:"))) {
        return MO_JSON_BEFORE;
    }
    if (!s->begun && mo_json_is_space(c)) {
        return MO_JSON_MORE;
    }
    s->begun = true;
    keep(to, &c, 1);
    switch (c) {
    case '"': s->in_string = true; break;
    case '{':
    case '[': s->depth++; break;
    case '}':
    case ']': s->depth -= s->depth > 0; return s->depth == 0 ? MO_JSON_END : MO_JSON_MORE;
    default: s->scalar = s->depth == 0;
    }
    return MO_JSON_MORE;
}
