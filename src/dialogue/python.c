/* Python: keyword arguments, one after the other. */
#include "dialogue/python.h"

#include "dialogue/json.h"
#include "dialogue/tools.h"
#include "dialogue/value.h"

/* The first of the stops outside of quotes and brackets, or the end. */
static size_t find(mo_text t, size_t at, const char *stops)
{
    char quote = 0;
    int depth = 0;
    for (; at < t.length; at++) {
        const char c = t.data[at];
        if (quote) {
            at += c == '\\';
            quote = c == quote ? 0 : quote;
        } else if (depth == 0 && mo_json_among(c, stops)) {
            return at;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (mo_json_among(c, "([{")) {
            depth++;
        } else if (mo_json_among(c, ")]}")) {
            depth--;
        }
    }
    return t.length;
}

bool mo_python_scan_put(mo_python_scan *s, char c)
{
    s->length++;
    if (!s->open) {
        s->open = c == '(';
        s->open_at = s->length - 1;
    } else if (s->escaped) {
        s->escaped = false;
    } else if (s->quote) {
        s->escaped = c == '\\';
        s->quote = c == s->quote ? 0 : s->quote;
    } else if (c == '"' || c == '\'') {
        s->quote = c;
    } else if (mo_json_among(c, "([{")) {
        s->depth++;
    } else if (mo_json_among(c, ")]}")) {
        return s->depth-- == 0 && c == ')';
    }
    return false;
}

static mo_text trimmed(mo_text t)
{
    for (; t.length > 0 && mo_json_is_space(t.data[0]); t.data++, t.length--) {
    }
    for (; t.length > 0 && mo_json_is_space(t.data[t.length - 1]); t.length--) {
    }
    return t;
}

/* A literal in either kind of quotes. */
static void add_string(mo_bytes *to, mo_text t)
{
    mo_bytes read = {0};
    mo_json_string s = {0};
    for (size_t i = 1; i + 1 < t.length; i++) {
        if (t.data[i] == '"' && !s.escaped) { /* stands for itself in single quotes */
            mo_bytes_add(&read, "\"", 1);
        } else {
            mo_json_string_put(&s, t.data[i], &read);
        }
    }
    mo_json_quote(to, mo_bytes_text(&read));
    to->failed |= read.failed;
    mo_bytes_free(&read);
}

void mo_python_arguments(mo_bytes *to, mo_text text)
{
    bool first = true;
    mo_bytes_add(to, "{", 1);
    for (size_t at = 0; at < text.length;) {
        const size_t end = find(text, at, ",");
        const mo_text one = {text.data + at, end - at};
        const size_t equals = find(one, 0, "=");
        at = end + 1;
        if (equals == one.length) {
            continue;
        }
        const mo_text key = trimmed((mo_text){one.data, equals});
        const mo_text value = trimmed((mo_text){one.data + equals + 1, one.length - equals - 1});
        mo_bytes_add(to, ",", first ? 0 : 1);
        first = false;
        mo_json_quote(to, key);
        mo_bytes_add(to, ":", 1);
        if (value.length >= 2 && mo_json_among(value.data[0], "\"'") &&
            value.data[value.length - 1] == value.data[0]) {
            add_string(to, value);
        } else {
            mo_value_add(to, value,
                         MO_TYPE_NUMBER | MO_TYPE_BOOLEAN | MO_TYPE_NULL | MO_TYPE_OBJECT | MO_TYPE_ARRAY);
        }
    }
    mo_bytes_add(to, "}", 1);
}
