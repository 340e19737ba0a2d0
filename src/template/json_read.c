/* The reader of json.h. */
#include <stdlib.h>

#include "template/json.h"
#include "template/print.h"
#include "template/unicode.h"

typedef struct reader {
    mo_work *w;
    const char *text, *what;
    size_t at, length;
    bool input;
} reader;

static __attribute__((noreturn)) void wrong(reader *r, const char *why)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < r->at && i < r->length; i++) {
        column = r->text[i] == '\n' ? 1 : column + 1;
        line += r->text[i] == '\n';
    }
    mo_work_fail(r->w, MO_EINVAL, "%s is not JSON: line %zu, column %zu (byte %zu): %s", r->what, line,
                 column, r->at, why);
}

static int next(const reader *r)
{
    return r->at < r->length ? (uint8_t)r->text[r->at] : -1;
}

static void skip_blanks(reader *r)
{
    while (r->at < r->length && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at]) {
        r->at++;
    }
}

static uint32_t read_hex(reader *r)
{
    uint32_t code = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const int c = next(r), low = c | 32;
        if (c >= '0' && c <= '9') {
            code = code * 16 + (uint32_t)(c - '0');
        } else if (c > 0 && low >= 'a' && low <= 'f') {
            code = code * 16 + (uint32_t)(low - 'a' + 10);
        } else {
            wrong(r, "expected four hexadecimal digits after \\u");
        }
    }
    return code;
}

static void read_escape(reader *r, mo_jbuffer *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const int c = next(r);
    const char *p = c > 0 ? strchr(from, c) : NULL;
    r->at++;
    if (p) {
        mo_jbuffer_add(r->w, out, &to[p - from], 1, r->input);
        return;
    }
    if (c != 'u') {
        wrong(r, "unknown escape");
    }
    uint32_t code = read_hex(r);
    if (code >= 0xD800 && code <= 0xDBFF && r->at + 1 < r->length && r->text[r->at] == '\\' &&
        r->text[r->at + 1] == 'u') {
        const size_t before = r->at;
        r->at += 2;
        const uint32_t low = read_hex(r);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        } else {
            r->at = before;
        }
    }
    mo_jbuffer_add_code(r->w, out, code, r->input);
}

static mo_jstring read_string(reader *r)
{
    const size_t begin = ++r->at;
    mo_jbuffer *out = NULL; /* created at the first escape */
    size_t kept = begin;
    for (;;) {
        const int c = next(r);
        if (c < 0) {
            wrong(r, "unterminated string");
        }
        if (c == '"' || c == '\\') {
            if (c == '"' && !out) {
                break;
            }
            out = out ? out : mo_jbuffer_new(r->w, 0);
            mo_jbuffer_add(r->w, out, r->text + kept, r->at - kept, r->input);
            if (c == '"') {
                break;
            }
            r->at++;
            read_escape(r, out);
            kept = r->at;
            continue;
        }
        if (c < 0x20) {
            wrong(r, "control character in a string");
        }
        const size_t bytes = mo_utf8_length((const uint8_t *)r->text + r->at, r->length - r->at);
        if (bytes == 0) {
            wrong(r, "invalid UTF-8 in a string");
        }
        r->at += bytes;
    }
    const size_t end = r->at++;
    mo_work_spend(r->w, (end - begin) / 64);
    if (out) {
        out->fixed = true;
        return mo_jbuffer_view(out);
    }
    return mo_jstring_new(r->w, r->text + begin, end - begin, r->input);
}

static size_t digits(reader *r)
{
    const size_t begin = r->at;
    while (next(r) >= '0' && next(r) <= '9') {
        r->at++;
    }
    if (r->at == begin) {
        wrong(r, "expected a digit in a number");
    }
    return r->at - begin;
}

static mo_jv read_number(reader *r)
{
    const size_t begin = r->at;
    bool real = false;
    r->at += next(r) == '-';
    const int first = next(r);
    if (digits(r) > 1 && first == '0') {
        wrong(r, "a number starts with 0");
    }
    if (next(r) == '.') {
        real = true;
        r->at++;
        digits(r);
    }
    if (next(r) == 'e' || next(r) == 'E') {
        real = true;
        r->at++;
        r->at += next(r) == '+' || next(r) == '-';
        digits(r);
    }
    const mo_jstring text = mo_jstring_new(r->w, r->text + begin, r->at - begin, false);
    const char *c = mo_jstring_text(r->w, text);
    if (real) {
        return mo_jv_real(mo_float_read(c));
    }
    if (text.length > 18) { /* may exceed 64 bits */
        int64_t value = 0;
        bool over = false;
        for (const char *p = c + (*c == '-'); *p && !over; p++) {
            over = __builtin_mul_overflow(value, 10, &value) ||
                   (*c == '-' ? __builtin_sub_overflow(value, *p - '0', &value)
                              : __builtin_add_overflow(value, *p - '0', &value));
        }
        return over ? (mo_jv){.kind = MO_J_BIG, .as.string = text} : mo_jv_int(value);
    }
    return mo_jv_int(strtoll(c, NULL, 10));
}

static mo_jv read_value(reader *r);

static mo_jv read_list(reader *r)
{
    mo_jlist *list = mo_jlist_new(r->w, MO_SHAPE_LIST, 0);
    r->at++;
    skip_blanks(r);
    if (next(r) == ']') {
        r->at++;
        return mo_jv_list(list);
    }
    for (;;) {
        mo_jlist_add(r->w, list, read_value(r));
        skip_blanks(r);
        const int c = next(r);
        if (c != ',' && c != ']') {
            wrong(r, "expected a comma or ]");
        }
        r->at++;
        if (c == ']') {
            return mo_jv_list(list);
        }
    }
}

static mo_jv read_dict(reader *r)
{
    mo_jdict *dict = mo_jdict_new(r->w, 0);
    r->at++;
    skip_blanks(r);
    if (next(r) == '}') {
        r->at++;
        return mo_jv_dict(dict);
    }
    for (;;) {
        skip_blanks(r);
        if (next(r) != '"') {
            wrong(r, "expected a key in quotes");
        }
        const mo_jstring key = read_string(r);
        skip_blanks(r);
        if (next(r) != ':') {
            wrong(r, "expected a colon after a key");
        }
        r->at++;
        mo_jdict_set(r->w, dict, mo_jv_string(key), read_value(r));
        skip_blanks(r);
        const int c = next(r);
        if (c != ',' && c != '}') {
            wrong(r, "expected a comma or }");
        }
        r->at++;
        if (c == '}') {
            return mo_jv_dict(dict);
        }
    }
}

static bool take_word(reader *r, const char *word)
{
    const size_t n = strlen(word);
    if (r->length - r->at < n || memcmp(r->text + r->at, word, n) != 0) {
        return false;
    }
    r->at += n;
    return true;
}

static mo_jv read_value(reader *r)
{
    mo_work_spend(r->w, 1);
    mo_work_down(r->w);
    skip_blanks(r);
    const int c = next(r);
    mo_jv v = MO_JV_NONE;
    if (c == '{') {
        v = read_dict(r);
    } else if (c == '[') {
        v = read_list(r);
    } else if (c == '"') {
        v = mo_jv_string(read_string(r));
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        v = read_number(r);
    } else if (take_word(r, "true")) {
        v = mo_jv_bool(true);
    } else if (take_word(r, "false")) {
        v = mo_jv_bool(false);
    } else if (!take_word(r, "null")) {
        wrong(r, c < 0 ? "unexpected end" : "expected a value");
    }
    mo_work_up(r->w);
    return v;
}

mo_jv mo_json_read(mo_work *w, const char *json, size_t length, bool input, const char *what)
{
    reader r = {.w = w, .text = json, .what = what, .length = length, .input = input};
    mo_work_spend(w, length / 64);
    const mo_jv v = read_value(&r);
    skip_blanks(&r);
    if (r.at < length) {
        wrong(&r, "unexpected data after the value");
    }
    return v;
}

typedef struct trial {
    const char *json;
    size_t length;
    bool input;
    mo_jv value;
} trial;

static void try_body(mo_work *w, void *user)
{
    trial *t = user;
    t->value = mo_json_read(w, t->json, t->length, t->input, "it");
}

bool mo_json_try(mo_work *w, const char *json, size_t length, bool input, mo_jv *out)
{
    trial t = {.json = json, .length = length, .input = input};
    mo_error err;
    mo_work inner = *w;
    inner.err = &err;
    const bool ok = mo_work_try(&inner, try_body, &t);
    w->bytes = inner.bytes;
    w->steps = inner.steps;
    if (!ok && inner.status != MO_EINVAL) {
        mo_work_fail(w, inner.status, "%s", err.detail);
    }
    *out = t.value;
    return ok;
}
