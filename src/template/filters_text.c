/* Filters that make texts. */
#include "template/json.h"
#include "template/print.h"
#include "template/run.h"
#include "template/texts.h"
#include "template/unicode.h"

static mo_jstring text_of(mo_jrun *r, mo_jv v)
{
    return mo_jv_str(r->w, v);
}

static mo_jv f_upper(MO_JPARAMETERS)
{
    return mo_jv_string(mo_text_case(r->w, text_of(r, self), MO_CASE_UPPER));
}

static mo_jv f_lower(MO_JPARAMETERS)
{
    return mo_jv_string(mo_text_case(r->w, text_of(r, self), MO_CASE_LOWER));
}

static mo_jv f_capitalize(MO_JPARAMETERS)
{
    return mo_jv_string(mo_text_case(r->w, text_of(r, self), MO_CASE_CAPITAL));
}

/* Words begin after white space and after - ( { [ <, unlike in str.title(). */
static mo_jv f_title(MO_JPARAMETERS)
{
    const mo_jstring s = text_of(r, self);
    const bool input = mo_jstring_is_input(r->w, s);
    mo_jbuffer *out = mo_jbuffer_new(r->w, s.length);
    bool first = true;
    for (size_t at = 0, bytes; at < s.length; at += bytes) {
        const uint32_t code = mo_jstring_code(s, at, &bytes);
        mo_jbuffer_add_code(r->w, out, first ? mo_code_upper(code) : mo_code_lower(code), input);
        first = mo_code_is_space(code) || (code > 0 && code < 0x80 && strchr("-({[<", (int)code));
    }
    return mo_jv_string(mo_jbuffer_view(out));
}

static mo_jv f_trim(MO_JPARAMETERS)
{
    const bool given = !mo_jv_is_absent(a[0]) && a[0].kind != MO_J_NONE;
    const mo_jstring chars = given ? mo_jv_need_string(r->w, a[0], "trim's characters") : (mo_jstring){0};
    return mo_jv_string(
        mo_jstring_trim(r->w, text_of(r, self), given ? &chars : NULL, MO_TRIM_LEFT | MO_TRIM_RIGHT));
}

static mo_jv f_replace(MO_JPARAMETERS)
{
    const bool given = !mo_jv_is_absent(a[2]) && a[2].kind != MO_J_NONE;
    return mo_jv_string(mo_text_replace(r->w, text_of(r, self), text_of(r, a[0]), text_of(r, a[1]),
                                        given ? mo_jv_integer(r->w, a[2], "count") : -1));
}

static mo_jv f_string(MO_JPARAMETERS)
{
    return mo_jv_string(text_of(r, self));
}

/* safe: has no effect, because nothing is escaped. */
static mo_jv f_safe(MO_JPARAMETERS)
{
    return mo_jv_string(text_of(r, self));
}

static mo_jv f_escape(MO_JPARAMETERS)
{
    static const char *const pairs[][2] = {
        {"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
    mo_jstring s = text_of(r, self);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        s = mo_text_replace(r->w, s, mo_jstring_literal(r->w, pairs[i][0]),
                            mo_jstring_literal(r->w, pairs[i][1]), -1);
    }
    return mo_jv_string(s);
}

static mo_jv f_indent(MO_JPARAMETERS)
{
    const mo_jstring s = mo_jv_need_string(r->w, self, "the input of indent");
    mo_jstring margin;
    if (a[0].kind == MO_J_STRING) {
        margin = a[0].as.string;
    } else {
        const int64_t width = mo_jv_is_absent(a[0]) ? 4 : mo_jv_integer(r->w, a[0], "indent's width");
        margin = mo_text_pad(r->w, mo_jstring_literal(r->w, ""), width, mo_jstring_literal(r->w, " "), true,
                             false);
    }
    const mo_jlist *lines =
        mo_text_lines(r->w, mo_jstring_concat(r->w, s, mo_jstring_literal(r->w, "\n")), false);
    mo_jbuffer *out = mo_jbuffer_new(r->w, s.length);
    for (uint32_t i = 0; i < lines->count; i++) {
        const mo_jstring line = lines->items[i].as.string;
        const bool first = i == 0 && !mo_jv_true(a[1]);
        if (i) {
            mo_jbuffer_put(r->w, out, "\n");
        }
        if (!first && (line.length > 0 || mo_jv_true(a[2]) || i == 0)) {
            mo_jbuffer_add_string(r->w, out, margin);
        }
        mo_jbuffer_add_string(r->w, out, line);
    }
    return mo_jv_string(mo_jbuffer_view(out));
}

static mo_jv f_center(MO_JPARAMETERS)
{
    const int64_t width = mo_jv_is_absent(a[0]) ? 80 : mo_jv_integer(r->w, a[0], "center's width");
    return mo_jv_string(
        mo_text_pad(r->w, text_of(r, self), width, mo_jstring_literal(r->w, " "), true, true));
}

static mo_jv f_truncate(MO_JPARAMETERS)
{
    const mo_jstring s = text_of(r, self),
                     end = mo_jv_is_absent(a[2]) ? mo_jstring_literal(r->w, "...") : text_of(r, a[2]);
    const int64_t length = mo_jv_is_absent(a[0]) ? 255 : mo_jv_integer(r->w, a[0], "truncate's length");
    const int64_t leeway = mo_jv_is_absent(a[3]) ? 5 : mo_jv_integer(r->w, a[3], "truncate's leeway");
    const int64_t room = length - (int64_t)mo_jstring_characters(r->w, end);
    if (room < 0 || leeway < 0) {
        mo_work_fail(r->w, MO_EINVAL, "truncate: the length must be at least that of its end");
    }
    if ((int64_t)mo_jstring_characters(r->w, s) <= length + leeway) {
        return mo_jv_string(s);
    }
    mo_jstring kept = mo_jstring_part(s, 0, mo_jstring_offset(r->w, s, (size_t)room));
    const int64_t blank =
        mo_jv_true(a[1]) ? -1 : mo_jstring_find_last(r->w, kept, mo_jstring_literal(r->w, " "), kept.length);
    if (blank >= 0) {
        kept = mo_jstring_part(kept, 0, (size_t)blank);
    }
    return mo_jv_string(mo_jstring_concat(r->w, kept, end));
}

static mo_jv f_wordcount(MO_JPARAMETERS)
{
    const mo_jstring s = text_of(r, self);
    int64_t words = 0;
    bool inside = false;
    mo_work_spend(r->w, MO_SCAN_STEPS(s.length));
    for (size_t at = 0, bytes; at < s.length; at += bytes) {
        const bool word = mo_code_is_word(mo_jstring_code(s, at, &bytes));
        words += word && !inside;
        inside = word;
    }
    return mo_jv_int(words);
}

static mo_jv f_urlencode(MO_JPARAMETERS)
{
    static const char hex[] = "0123456789ABCDEF";
    const mo_jstring s = text_of(r, self);
    const bool input = mo_jstring_is_input(r->w, s);
    mo_jbuffer *out = mo_jbuffer_new(r->w, s.length);
    for (size_t i = 0; i < s.length; i++) {
        const unsigned char c = (unsigned char)mo_jstring_data(s)[i];
        const char code[3] = {'%', hex[c >> 4], hex[c & 15]};
        const bool plain =
            c < 0x80 && c > 0 && (mo_code_is_letter(c) || mo_code_is_digit(c) || strchr("_.-~/", c));
        mo_jbuffer_add(r->w, out, plain ? (const char *)&c : code, plain ? 1 : 3, input);
    }
    return mo_jv_string(mo_jbuffer_view(out));
}

static mo_jv f_format(MO_JPARAMETERS)
{
    mo_jlist *places = mo_jlist_new(r->w, MO_SHAPE_TUPLE, all->count);
    for (uint32_t i = 0; i < all->count; i++) {
        mo_jlist_add(r->w, places, all->places[i]);
    }
    return mo_format_percent(r, text_of(r, self),
                             all->names && !all->count ? mo_jv_dict(all->names) : mo_jv_list(places));
}

static mo_jv f_tojson(MO_JPARAMETERS)
{
    mo_json_style style = mo_json_style_default(r->w);
    style.ascii = mo_jv_true(a[0]);
    if (a[1].kind == MO_J_STRING) {
        style.indent_text = a[1].as.string;
        style.indent = a[1].as.string.length ? -1 : 0;
    } else if (!mo_jv_is_absent(a[1]) && a[1].kind != MO_J_NONE) {
        style.indent = mo_jv_integer(r->w, a[1], "tojson's indent");
        style.indent = style.indent < 0 ? 0 : style.indent;
    }
    if (a[2].kind == MO_J_LIST && a[2].as.list->count == 2) {
        style.item = mo_jv_need_string(r->w, a[2].as.list->items[0], "a separator");
        style.key = mo_jv_need_string(r->w, a[2].as.list->items[1], "a separator");
        style.separated = true;
    }
    style.sorted = mo_jv_true(a[3]);
    mo_jbuffer *out = mo_jbuffer_new(r->w, 0);
    mo_json_write(r->w, out, self, &style);
    return mo_jv_string(mo_jbuffer_view(out));
}

static mo_jv f_from_json(MO_JPARAMETERS)
{
    const mo_jstring s = mo_jv_need_string(r->w, self, "the input of from_json");
    return mo_json_read(r->w, mo_jstring_data(s), s.length, mo_jstring_is_input(r->w, s),
                        "the input of from_json");
}

const mo_jfunction mo_filters_text[] = {
    {"upper", "", f_upper},
    {"lower", "", f_lower},
    {"capitalize", "", f_capitalize},
    {"title", "", f_title},
    {"trim", "chars?", f_trim},
    {"replace", "old new count?", f_replace},
    {"string", "", f_string},
    {"safe", "", f_safe},
    {"escape", "", f_escape},
    {"e", "", f_escape},
    {"forceescape", "", f_escape},
    {"indent", "width? first? blank?", f_indent},
    {"center", "width?", f_center},
    {"truncate", "length? killwords? end? leeway?", f_truncate},
    {"wordcount", "", f_wordcount},
    {"urlencode", "", f_urlencode},
    {"format", NULL, f_format},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", f_tojson},
    {"from_json", "", f_from_json},
    {"fromjson", "", f_from_json},
    {NULL, NULL, NULL},
};
