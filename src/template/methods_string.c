/* Methods of strings. */
#include "template/run.h"
#include "template/texts.h"
#include "template/unicode.h"

static bool given(mo_jv v)
{
    return !mo_jv_is_absent(v) && v.kind != MO_J_NONE;
}

/* ---- Trimming ---- */

static mo_jv strip(mo_jrun *r, mo_jv self, mo_jv chars, int sides)
{
    const mo_jstring set =
        given(chars) ? mo_jv_need_string(r->w, chars, "strip's characters") : (mo_jstring){0};
    return mo_jv_string(mo_jstring_trim(r->w, self.as.string, given(chars) ? &set : NULL, sides));
}

static mo_jv s_strip(MO_JPARAMETERS)
{
    return strip(r, self, a[0], MO_TRIM_LEFT | MO_TRIM_RIGHT);
}

static mo_jv s_lstrip(MO_JPARAMETERS)
{
    return strip(r, self, a[0], MO_TRIM_LEFT);
}

static mo_jv s_rstrip(MO_JPARAMETERS)
{
    return strip(r, self, a[0], MO_TRIM_RIGHT);
}

static bool has_side(mo_work *w, mo_jstring s, mo_jstring side, bool end)
{
    return side.length <= s.length &&
           mo_jstring_equal(w, mo_jstring_part(s, end ? s.length - side.length : 0, side.length), side);
}

/* For the whole text, or for a range; `what` may be a tuple. */
static mo_jv begins(mo_jrun *r, mo_jv self, const mo_jv *a, bool end)
{
    mo_jstring s = self.as.string;
    if (!mo_jv_is_absent(a[1])) {
        s = mo_access_slice(r, self, a[1], a[2], (mo_jv){.kind = MO_J_ABSENT}).as.string;
    }
    if (a[0].kind == MO_J_LIST) {
        for (uint32_t i = 0; i < a[0].as.list->count; i++) {
            if (has_side(r->w, s, mo_jv_need_string(r->w, a[0].as.list->items[i], "a prefix or suffix"),
                         end)) {
                return mo_jv_bool(true);
            }
        }
        return mo_jv_bool(false);
    }
    return mo_jv_bool(has_side(r->w, s, mo_jv_need_string(r->w, a[0], "a prefix or suffix"), end));
}

static mo_jv s_startswith(MO_JPARAMETERS)
{
    return begins(r, self, a, false);
}

static mo_jv s_endswith(MO_JPARAMETERS)
{
    return begins(r, self, a, true);
}

static mo_jv s_removeprefix(MO_JPARAMETERS)
{
    const mo_jstring s = self.as.string, side = mo_jv_need_string(r->w, a[0], "a prefix");
    return has_side(r->w, s, side, false)
               ? mo_jv_string(mo_jstring_part(s, side.length, s.length - side.length))
               : self;
}

static mo_jv s_removesuffix(MO_JPARAMETERS)
{
    const mo_jstring s = self.as.string, side = mo_jv_need_string(r->w, a[0], "a suffix");
    return has_side(r->w, s, side, true) ? mo_jv_string(mo_jstring_part(s, 0, s.length - side.length)) : self;
}

/* ---- Splitting ---- */

static void add_part(mo_jrun *r, mo_jlist *list, mo_jstring s, size_t from, size_t to)
{
    mo_jlist_add(r->w, list, mo_jv_string(mo_jstring_part(s, from, to - from)));
}

static void reverse(mo_jlist *list)
{
    for (uint32_t i = 0; i < list->count / 2; i++) {
        const mo_jv v = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = v;
    }
}

static mo_jlist *split_blanks(mo_jrun *r, mo_jstring s, int64_t most)
{
    mo_jlist *list = mo_jlist_new(r->w, MO_SHAPE_LIST, 0);
    mo_jstring rest = mo_jstring_trim(r->w, s, NULL, MO_TRIM_LEFT);
    while (rest.length > 0) {
        size_t at = 0, bytes;
        if (most >= 0 && list->count >= most) {
            at = rest.length;
        }
        while (at < rest.length && !mo_code_is_space(mo_jstring_code(rest, at, &bytes))) {
            at += bytes;
        }
        mo_work_spend(r->w, MO_SCAN_STEPS(at));
        add_part(r, list, rest, 0, at);
        rest = mo_jstring_trim(r->w, mo_jstring_part(rest, at, rest.length - at), NULL, MO_TRIM_LEFT);
    }
    return list;
}

static mo_jlist *split_blanks_from_end(mo_jrun *r, mo_jstring s, int64_t most)
{
    mo_jlist *list = mo_jlist_new(r->w, MO_SHAPE_LIST, 0);
    mo_jstring rest = mo_jstring_trim(r->w, s, NULL, MO_TRIM_RIGHT);
    while (rest.length > 0) {
        size_t begin = 0, bytes;
        for (size_t at = 0; at < rest.length && !(most >= 0 && list->count >= most); at += bytes) {
            if (mo_code_is_space(mo_jstring_code(rest, at, &bytes))) {
                begin = at + bytes;
            }
        }
        mo_work_spend(r->w, MO_SCAN_STEPS(rest.length));
        add_part(r, list, rest, begin, rest.length);
        rest = mo_jstring_trim(r->w, mo_jstring_part(rest, 0, begin), NULL, MO_TRIM_RIGHT);
    }
    reverse(list);
    return list;
}

static mo_jlist *split_at(mo_jrun *r, mo_jstring s, mo_jstring separator, int64_t most, bool from_end)
{
    mo_jlist *list = mo_jlist_new(r->w, MO_SHAPE_LIST, 0);
    size_t begin = 0, end = s.length;
    for (; most < 0 || list->count < most;) {
        const int64_t at = from_end ? mo_jstring_find_last(r->w, s, separator, end)
                                    : mo_jstring_find(r->w, s, separator, begin);
        if (at < 0) {
            break;
        }
        if (from_end) {
            add_part(r, list, s, (size_t)at + separator.length, end);
            end = (size_t)at;
        } else {
            add_part(r, list, s, begin, (size_t)at);
            begin = (size_t)at + separator.length;
        }
    }
    add_part(r, list, s, begin, end);
    if (from_end) {
        reverse(list);
    }
    return list;
}

static mo_jv split(mo_jrun *r, mo_jv self, const mo_jv *a, bool from_end)
{
    const int64_t most = mo_jv_is_absent(a[1]) ? -1 : mo_jv_integer(r->w, a[1], "split's count");
    if (!given(a[0])) {
        return mo_jv_list(from_end ? split_blanks_from_end(r, self.as.string, most)
                                   : split_blanks(r, self.as.string, most));
    }
    const mo_jstring separator = mo_jv_need_string(r->w, a[0], "split's separator");
    if (separator.length == 0) {
        mo_work_fail(r->w, MO_EINVAL, "empty separator");
    }
    return mo_jv_list(split_at(r, self.as.string, separator, most, from_end));
}

static mo_jv s_split(MO_JPARAMETERS)
{
    return split(r, self, a, false);
}

static mo_jv s_rsplit(MO_JPARAMETERS)
{
    return split(r, self, a, true);
}

static mo_jv s_splitlines(MO_JPARAMETERS)
{
    return mo_jv_list(mo_text_lines(r->w, self.as.string, mo_jv_true(a[0])));
}

static mo_jv partition(mo_jrun *r, mo_jv self, mo_jv by, bool last)
{
    const mo_jstring s = self.as.string, separator = mo_jv_need_string(r->w, by, "partition's separator");
    const mo_jstring none = mo_jstring_part(s, 0, 0);
    mo_jlist *list = mo_jlist_new(r->w, MO_SHAPE_TUPLE, 3);
    if (separator.length == 0) {
        mo_work_fail(r->w, MO_EINVAL, "empty separator");
    }
    const int64_t at =
        last ? mo_jstring_find_last(r->w, s, separator, s.length) : mo_jstring_find(r->w, s, separator, 0);
    if (at < 0) {
        mo_jlist_add(r->w, list, mo_jv_string(last ? none : s));
        mo_jlist_add(r->w, list, mo_jv_string(none));
        mo_jlist_add(r->w, list, mo_jv_string(last ? s : none));
    } else {
        add_part(r, list, s, 0, (size_t)at);
        add_part(r, list, s, (size_t)at, (size_t)at + separator.length);
        add_part(r, list, s, (size_t)at + separator.length, s.length);
    }
    return mo_jv_list(list);
}

static mo_jv s_partition(MO_JPARAMETERS)
{
    return partition(r, self, a[0], false);
}

static mo_jv s_rpartition(MO_JPARAMETERS)
{
    return partition(r, self, a[0], true);
}

static mo_jv s_join(MO_JPARAMETERS)
{
    const mo_jlist *list = mo_jv_iterate(r->w, a[0]);
    for (uint32_t i = 0; i < list->count; i++) {
        mo_jv_need_string(r->w, list->items[i], "an item of join");
    }
    return mo_jv_string(mo_text_join(r->w, self.as.string, list));
}

/* ---- Searching ---- */

/* The index in characters of the first or last match within bounds. -1: none. */
static int64_t find(mo_jrun *r, mo_jv self, const mo_jv *a, bool last)
{
    const mo_jv absent = {.kind = MO_J_ABSENT};
    const mo_jstring what = mo_jv_need_string(r->w, a[0], "the substring to find");
    const mo_jstring s = mo_access_slice(r, self, a[1], a[2], absent).as.string;
    const int64_t at =
        last ? mo_jstring_find_last(r->w, s, what, s.length) : mo_jstring_find(r->w, s, what, 0);
    return at < 0 ? -1
                  : (int64_t)mo_jstring_characters(
                        r->w, (mo_jstring){self.as.string.buffer, self.as.string.from,
                                           (uint32_t)(s.from - self.as.string.from + (size_t)at)});
}

static mo_jv s_find(MO_JPARAMETERS)
{
    return mo_jv_int(find(r, self, a, false));
}

static mo_jv s_rfind(MO_JPARAMETERS)
{
    return mo_jv_int(find(r, self, a, true));
}

static mo_jv s_index(MO_JPARAMETERS)
{
    const int64_t at = find(r, self, a, false);
    if (at < 0) {
        mo_work_fail(r->w, MO_EINVAL, "substring not found");
    }
    return mo_jv_int(at);
}

static mo_jv s_count(MO_JPARAMETERS)
{
    const mo_jstring s = self.as.string, what = mo_jv_need_string(r->w, a[0], "the substring to count");
    int64_t count = 0;
    if (what.length == 0) {
        return mo_jv_int((int64_t)mo_jstring_characters(r->w, s) + 1);
    }
    for (int64_t at = 0; (at = mo_jstring_find(r->w, s, what, (size_t)at)) >= 0; at += what.length) {
        count++;
    }
    return mo_jv_int(count);
}

typedef bool (*kind_of)(uint32_t code);

static bool is_cased_lower(uint32_t code)
{
    return mo_code_upper(code) != code || !mo_code_is_letter(code);
}

static bool is_cased_upper(uint32_t code)
{
    return mo_code_lower(code) != code || !mo_code_is_letter(code);
}

static bool is_letter_or_digit(uint32_t code)
{
    return mo_code_is_letter(code) || mo_code_is_digit(code);
}

/* Are all characters of this kind, and is there at least one (with `letters`: a letter)? */
static mo_jv all_are(mo_work *w, mo_jstring s, kind_of kind, bool letters)
{
    bool any = false, all = true;
    size_t at = 0;
    for (size_t bytes; all && at < s.length; at += bytes) {
        const uint32_t code = mo_jstring_code(s, at, &bytes);
        all = kind(code);
        any = any || !letters || mo_code_is_letter(code);
    }
    mo_work_spend(w, MO_SCAN_STEPS(at));
    return mo_jv_bool(any && all);
}

#define ALL_ARE(name, kind, letters)                                                                         \
    static mo_jv s_##name(MO_JPARAMETERS)                                                                    \
    {                                                                                                        \
        return all_are(r->w, self.as.string, kind, letters);                                                 \
    }

ALL_ARE(isdigit, mo_code_is_digit, false)
ALL_ARE(isalpha, mo_code_is_letter, false)
ALL_ARE(isalnum, is_letter_or_digit, false)
ALL_ARE(isspace, mo_code_is_space, false)
ALL_ARE(islower, is_cased_lower, true)
ALL_ARE(isupper, is_cased_upper, true)

/* ---- Case and padding ---- */

#define CASE(name, to)                                                                                       \
    static mo_jv s_##name(MO_JPARAMETERS)                                                                    \
    {                                                                                                        \
        return mo_jv_string(mo_text_case(r->w, self.as.string, to));                                         \
    }

CASE(lower, MO_CASE_LOWER)
CASE(upper, MO_CASE_UPPER)
CASE(title, MO_CASE_TITLE)
CASE(capitalize, MO_CASE_CAPITAL)
CASE(swapcase, MO_CASE_SWAPPED)

static mo_jv s_replace(MO_JPARAMETERS)
{
    return mo_jv_string(mo_text_replace(r->w, self.as.string,
                                        mo_jv_need_string(r->w, a[0], "the old text of replace"),
                                        mo_jv_need_string(r->w, a[1], "the new text of replace"),
                                        given(a[2]) ? mo_jv_integer(r->w, a[2], "replace's count") : -1));
}

static mo_jv pad(mo_jrun *r, mo_jv self, const mo_jv *a, bool left, bool right)
{
    const mo_jstring fill = mo_jv_is_absent(a[1]) ? mo_jstring_literal(r->w, " ")
                                                  : mo_jv_need_string(r->w, a[1], "the fill character");
    return mo_jv_string(
        mo_text_pad(r->w, self.as.string, mo_jv_integer(r->w, a[0], "the width"), fill, left, right));
}

static mo_jv s_ljust(MO_JPARAMETERS)
{
    return pad(r, self, a, false, true);
}

static mo_jv s_rjust(MO_JPARAMETERS)
{
    return pad(r, self, a, true, false);
}

static mo_jv s_center(MO_JPARAMETERS)
{
    return pad(r, self, a, true, true);
}

static mo_jv s_zfill(MO_JPARAMETERS)
{
    const mo_jstring s = self.as.string;
    const char first = s.length ? mo_jstring_data(s)[0] : 0;
    const size_t sign = first == '-' || first == '+';
    const int64_t width = mo_jv_integer(r->w, a[0], "the width") - (int64_t)sign;
    const mo_jstring digits = mo_text_pad(r->w, mo_jstring_part(s, sign, s.length - sign), width,
                                          mo_jstring_literal(r->w, "0"), true, false);
    return mo_jv_string(mo_jstring_concat(r->w, mo_jstring_part(s, 0, sign), digits));
}

static mo_jv s_format(MO_JPARAMETERS)
{
    return mo_format_braces(r, self.as.string, all);
}

const mo_jfunction mo_methods_string[] = {
    {"strip", "chars?", s_strip},
    {"lstrip", "chars?", s_lstrip},
    {"rstrip", "chars?", s_rstrip},
    {"startswith", "prefix start? end?", s_startswith},
    {"endswith", "suffix start? end?", s_endswith},
    {"removeprefix", "prefix", s_removeprefix},
    {"removesuffix", "suffix", s_removesuffix},
    {"split", "sep? maxsplit?", s_split},
    {"rsplit", "sep? maxsplit?", s_rsplit},
    {"splitlines", "keepends?", s_splitlines},
    {"partition", "sep", s_partition},
    {"rpartition", "sep", s_rpartition},
    {"join", "iterable", s_join},
    {"find", "sub start? end?", s_find},
    {"rfind", "sub start? end?", s_rfind},
    {"index", "sub start? end?", s_index},
    {"count", "sub", s_count},
    {"isdigit", "", s_isdigit},
    {"isdecimal", "", s_isdigit},
    {"isnumeric", "", s_isdigit},
    {"isalpha", "", s_isalpha},
    {"isalnum", "", s_isalnum},
    {"isspace", "", s_isspace},
    {"islower", "", s_islower},
    {"isupper", "", s_isupper},
    {"lower", "", s_lower},
    {"upper", "", s_upper},
    {"title", "", s_title},
    {"capitalize", "", s_capitalize},
    {"swapcase", "", s_swapcase},
    {"casefold", "", s_lower},
    {"replace", "old new count?", s_replace},
    {"ljust", "width fillchar?", s_ljust},
    {"rjust", "width fillchar?", s_rjust},
    {"center", "width fillchar?", s_center},
    {"zfill", "width", s_zfill},
    {"format", NULL, s_format},
    {NULL, NULL, NULL},
};
