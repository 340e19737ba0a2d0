#include "template/texts.h"

#include "template/print.h"
#include "template/unicode.h"

static uint32_t to_case(uint32_t code, mo_jcase to, bool first)
{
    switch (to) {
    case MO_CASE_LOWER: return mo_code_lower(code);
    case MO_CASE_UPPER: return mo_code_upper(code);
    case MO_CASE_SWAPPED: return mo_code_upper(code) == code ? mo_code_lower(code) : mo_code_upper(code);
    default: return first ? mo_code_upper(code) : mo_code_lower(code);
    }
}

mo_jstring mo_text_case(mo_work *w, mo_jstring s, mo_jcase to)
{
    mo_jbuffer *out = mo_jbuffer_new(w, s.length);
    const bool input = mo_jstring_is_input(w, s);
    bool first = true;
    for (size_t at = 0, bytes; at < s.length; at += bytes) {
        const uint32_t code = mo_jstring_code(s, at, &bytes);
        if (code == 0xDF &&
            (to == MO_CASE_UPPER || (first && to >= MO_CASE_TITLE))) { /* becomes two characters */
            mo_jbuffer_add(w, out, to == MO_CASE_TITLE || to == MO_CASE_CAPITAL ? "Ss" : "SS", 2, input);
        } else {
            mo_jbuffer_add_code(w, out, to_case(code, to, first), input);
        }
        first = to == MO_CASE_TITLE && !mo_code_is_letter(code);
    }
    return mo_jbuffer_view(out);
}

mo_jstring mo_text_replace(mo_work *w, mo_jstring s, mo_jstring old, mo_jstring new, int64_t count)
{
    mo_jbuffer *out = mo_jbuffer_new(w, s.length);
    size_t at = 0;
    while (count != 0) {
        size_t found;
        if (old.length == 0) { /* inserts before every character and at the end */
            mo_jbuffer_add_string(w, out, new);
            if (at >= s.length) {
                return mo_jbuffer_view(out);
            }
            mo_jstring_code(s, at, &found);
            mo_jbuffer_add_string(w, out, mo_jstring_part(s, at, found));
            at += found;
        } else {
            const int64_t place = mo_jstring_find(w, s, old, at);
            if (place < 0) {
                break;
            }
            mo_jbuffer_add_string(w, out, mo_jstring_part(s, at, (size_t)place - at));
            mo_jbuffer_add_string(w, out, new);
            at = (size_t)place + old.length;
        }
        count -= count > 0;
    }
    mo_jbuffer_add_string(w, out, mo_jstring_part(s, at, s.length - at));
    return mo_jbuffer_view(out);
}

mo_jstring mo_text_pad(mo_work *w, mo_jstring s, int64_t width, mo_jstring fill, bool left, bool right)
{
    const int64_t missing = width - (int64_t)mo_jstring_characters(w, s);
    if (missing <= 0) {
        return s;
    }
    const int64_t before = left && right ? missing / 2 + (missing & width & 1) : left ? missing : 0;
    mo_jbuffer *out = mo_jbuffer_new(w, s.length);
    for (int64_t i = 0; i < missing; i++) {
        if (i == before) {
            mo_jbuffer_add_string(w, out, s);
        }
        mo_jbuffer_add_string(w, out, fill);
    }
    if (before == missing) {
        mo_jbuffer_add_string(w, out, s);
    }
    return mo_jbuffer_view(out);
}

static bool ends_line(uint32_t code)
{
    return (code >= '\n' && code <= '\r') || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

mo_jlist *mo_text_lines(mo_work *w, mo_jstring s, bool keep_ends)
{
    mo_jlist *lines = mo_jlist_new(w, MO_SHAPE_LIST, 0);
    size_t begin = 0;
    mo_work_spend(w, MO_SCAN_STEPS(s.length));
    for (size_t at = 0, bytes; at < s.length;) {
        const uint32_t code = mo_jstring_code(s, at, &bytes);
        const size_t end = at;
        at += bytes;
        if (!ends_line(code)) {
            continue;
        }
        at += code == '\r' && at < s.length && mo_jstring_data(s)[at] == '\n';
        mo_jlist_add(w, lines, mo_jv_string(mo_jstring_part(s, begin, (keep_ends ? at : end) - begin)));
        begin = at;
    }
    if (begin < s.length) {
        mo_jlist_add(w, lines, mo_jv_string(mo_jstring_part(s, begin, s.length - begin)));
    }
    return lines;
}

mo_jstring mo_text_join(mo_work *w, mo_jstring separator, const mo_jlist *items)
{
    mo_jbuffer *out = mo_jbuffer_new(w, 0);
    for (uint32_t i = 0; i < items->count; i++) {
        if (i) {
            mo_jbuffer_add_string(w, out, separator);
        }
        mo_print_str(w, out, items->items[i]);
    }
    return mo_jbuffer_view(out);
}
