/* Call: marks, then a name, then arguments: JSON, tags, or a notation of the style's own. */
#include "dialogue/call.h"

#include <string.h>

#include "dialogue/python.h"
#include "dialogue/value.h"

enum { PYTHON_MAX = 1 << 20 }; /* bytes of a call as Python writes it, which is kept until it ends */

static void keep_raw(mo_reading *r, const char *text)
{
    mo_bytes_add_text(&r->raw, text);
}

/* ---- Ways in and out ---- */

void mo_call_open(mo_reading *r, mo_role role, const char *text)
{
    mo_bytes_clear(&r->raw);
    keep_raw(r, text);
    mo_bytes_clear(&r->name);
    mo_bytes_clear(&r->value);
    r->in_section = role == MO_ROLE_SECTION_OPEN;
    r->section_calls = 0;
    r->in_fence = role == MO_ROLE_FENCE;
    r->python = (mo_python_scan){0};
    r->state = role == MO_ROLE_SECTION_OPEN ? MO_READING_SECTION
               : role == MO_ROLE_CALL_OPEN  ? MO_READING_NAME
               : role == MO_ROLE_PYTHON     ? MO_READING_PYTHON
                                            : MO_READING_FENCE;
}

/* A call is certain: what stands before it is no text. */
static void make_certain(mo_reading *r)
{
    mo_bytes_clear(&r->raw);
    mo_bytes_clear(&r->held);
}

void mo_call_begin_arguments(mo_reading *r)
{
    r->state = MO_READING_ARGUMENTS;
    r->keys = 0;
    mo_bytes_clear(&r->json);
    make_certain(r);
}

/* Behind a call: the section goes on, or text follows. */
static void leave(mo_reading *r, bool section_closed)
{
    make_certain(r);
    mo_reading_enter_text(r);
    r->after_call = true;
    r->section_calls++;
    if (r->dialogue.id == MO_STYLE_HARMONY) {
        r->state = MO_READING_DROPPED;
    } else if (r->in_section && !section_closed) {
        r->state = MO_READING_SECTION;
    } else {
        r->in_section = false;
    }
}

static void put_json(mo_reading *r)
{
    mo_calls_arguments(&r->calls, mo_bytes_text(&r->json));
    mo_bytes_clear(&r->json);
}

void mo_call_close(mo_reading *r, mo_role role)
{
    if (r->state == MO_READING_LOOSE) {
        mo_value_add_arguments(&r->json, mo_bytes_text(&r->value));
    } else if (r->keys > 0 && (r->state == MO_READING_ARGUMENTS || r->state == MO_READING_BEFORE_VALUE)) {
        mo_bytes_add(&r->json, "}", 1);
    }
    if (r->calls.open) {
        put_json(r);
        mo_calls_end(&r->calls);
        leave(r, role == MO_ROLE_SECTION_CLOSE);
    }
}

/* ---- Names ---- */

static void trim(mo_text *t)
{
    while (t->length > 0 && (mo_json_is_space(t->data[0]) || mo_json_among(t->data[0], "\"'"))) {
        t->data++;
        t->length--;
    }
    while (t->length > 0 &&
           (mo_json_is_space(t->data[t->length - 1]) || mo_json_among(t->data[t->length - 1], "\"'"))) {
        t->length--;
    }
}

static void skip_prefix(mo_text *t, const char *prefix)
{
    const size_t n = strlen(prefix);
    if (t->length > n && !memcmp(t->data, prefix, n)) {
        t->data += n;
        t->length -= n;
    }
}

static bool known(const mo_reading *r, mo_text name)
{
    return mo_tools_find(r->calls.tools, name.data, name.length) >= 0;
}

/* The function's name in what was written; *id is the call's id where it is part of the name. */
static mo_text plain_name(const mo_reading *r, mo_text *id)
{
    mo_text name = mo_bytes_text(&r->name);
    trim(&name);
    *id = (mo_text){"", 0};
    if (r->dialogue.id == MO_STYLE_GEMMA4) {
        skip_prefix(&name, "call:");
    }
    if (r->dialogue.id == MO_STYLE_KIMI) {
        size_t end = name.length;
        while (end > 0 && name.data[end - 1] >= '0' && name.data[end - 1] <= '9') {
            end--;
        }
        if (end > 1 && end < name.length && name.data[end - 1] == ':') {
            *id = name;
            name.length = end - 1;
        }
    }
    if (!known(r, name)) {
        skip_prefix(&name, "functions.");
    }
    return name;
}

/* The name is over. must_be_known: nothing but the name says that this is a call. False: it is none. */
static bool end_name(mo_reading *r, bool must_be_known)
{
    mo_text id;
    const mo_text name = plain_name(r, &id);
    const char *section = mo_style_mark(r->dialogue.style, MO_ROLE_SECTION_OPEN);
    const bool lone = !r->in_section && (section || r->dialogue.style->bare);
    if (!mo_calls_name_fits(&r->calls, name, lone || must_be_known)) {
        return false;
    }
    if (r->id.length == 9) {
        id = mo_bytes_text(&r->id);
    }
    mo_calls_begin(&r->calls, name, id);
    mo_bytes_clear(&r->id);
    mo_call_begin_arguments(r);
    if (r->dialogue.id == MO_STYLE_GEMMA4) {
        r->state = MO_READING_GEMMA;
        mo_gemma_begin(&r->gemma, &r->json);
        put_json(r);
    }
    return true;
}

/* DeepSeek V3 writes "function", a mark, and then the name on a line of its own. */
static bool is_kind_of_call(const mo_reading *r)
{
    mo_text name = mo_bytes_text(&r->name);
    trim(&name);
    return (r->dialogue.id == MO_STYLE_DEEPSEEK3 || r->dialogue.id == MO_STYLE_DEEPSEEK31) &&
           name.length == 8 && !memcmp(name.data, "function", 8) && !known(r, name) && !r->name_line;
}

static bool name_byte(mo_reading *r, char c)
{
    const bool empty = r->name.length == 0;
    if (c == '{' && r->dialogue.style->bare_name && !empty) { /* no mark between name and arguments */
        return end_name(r, false) && mo_call_byte(r, c);
    }
    if (c == '\n' && r->name_line && !empty) {
        r->name_line = false;
        return end_name(r, false);
    }
    if (((unsigned char)c < ' ' && !mo_json_is_space(c)) || r->name.length > 2 * MO_TOOL_NAME) {
        return false;
    }
    if (mo_json_is_space(c) && r->dialogue.style->bare_name) {
        return false; /* such a name ends at a mark or its line's end */
    }
    mo_bytes_add(&r->raw, &c, 1);
    if (!empty || !mo_json_is_space(c)) {
        mo_bytes_add(&r->name, &c, 1);
    }
    return true;
}

static bool name_mark(mo_reading *r, mo_role role, const char *text)
{
    keep_raw(r, text);
    if (role == MO_ROLE_ID_OPEN) {
        mo_bytes_clear(&r->id);
        r->state = MO_READING_ID;
        return true;
    }
    if (role == MO_ROLE_NAME_CLOSE) {
        if (is_kind_of_call(r)) {
            r->name_line = true;
            mo_bytes_clear(&r->name);
            return true;
        }
        return end_name(r, false);
    }
    if (!end_name(r, role != MO_ROLE_KEY_OPEN)) {
        return false;
    }
    mo_call_mark(r, role, text);
    return true;
}

/* ---- Arguments ---- */

static bool arguments_byte(mo_reading *r, char c)
{
    const bool tags = mo_style_mark(r->dialogue.style, MO_ROLE_KEY_OPEN);
    if (mo_json_is_space(c)) {
        return true;
    }
    if (c == '{' && r->keys == 0) {
        r->state = MO_READING_JSON;
        r->scan = (mo_json_scan){0};
        mo_json_scan_put(&r->scan, c, &r->json);
        put_json(r);
    } else if (!tags) {
        r->state = MO_READING_LOOSE;
        mo_bytes_clear(&r->value);
        mo_bytes_add(&r->value, &c, 1);
    }
    return true;
}

static void json_byte(mo_reading *r, char c)
{
    const bool over = mo_json_scan_put(&r->scan, c, &r->json) != MO_JSON_MORE;
    put_json(r);
    if (over) {
        mo_calls_end(&r->calls);
        leave(r, false);
    }
}

static void gemma_byte(mo_reading *r, char c)
{
    const bool over = mo_gemma_put(&r->gemma, c, &r->json);
    put_json(r);
    if (over) {
        mo_calls_end(&r->calls);
        leave(r, false);
    }
}

/* ---- Parameters between tags ---- */

static void begin_value(mo_reading *r)
{
    mo_text key = mo_bytes_text(&r->key);
    trim(&key);
    mo_bytes_add(&r->json, r->keys++ == 0 ? "{" : ",", 1);
    mo_json_quote(&r->json, key);
    mo_bytes_add(&r->json, ":", 1);
    r->text_value = r->types == MO_TYPE_STRING;
    mo_bytes_add(&r->json, "\"", r->text_value ? 1 : 0);
    put_json(r);
    mo_bytes_clear(&r->value);
    r->value_begun = r->value_newline = false;
    r->state = MO_READING_VALUE;
}

static void end_key(mo_reading *r, mo_role role)
{
    mo_text key = mo_bytes_text(&r->key);
    trim(&key);
    r->types = role == MO_ROLE_KEY_CLOSE_TEXT ? MO_TYPE_STRING
               : role == MO_ROLE_KEY_CLOSE_JSON
                   ? (unsigned)(0x3F & ~MO_TYPE_STRING)
                   : mo_tools_types(r->calls.tools, r->calls.function, key.data, key.length);
    if (mo_style_mark(r->dialogue.style, MO_ROLE_VALUE_OPEN)) {
        r->state = MO_READING_BEFORE_VALUE;
    } else {
        begin_value(r);
    }
}

/* A string goes out as it comes, but for one newline at either end where the style adds them. */
static void value_byte(mo_reading *r, char c)
{
    const bool trims = r->dialogue.style->trims_values;
    if (!r->text_value) {
        mo_bytes_add(&r->value, &c, 1);
        return;
    }
    const bool first = !r->value_begun;
    r->value_begun = true;
    if (trims && c == '\n' && first) {
        return;
    }
    if (r->value_newline) {
        mo_json_escape(&r->json, '\n');
    }
    r->value_newline = trims && c == '\n';
    if (!r->value_newline) {
        mo_json_escape(&r->json, c);
    }
    put_json(r);
}

static void end_value(mo_reading *r)
{
    mo_text value = mo_bytes_text(&r->value);
    if (r->text_value) {
        mo_bytes_add(&r->json, "\"", 1);
    } else {
        if (r->dialogue.style->trims_values && value.length > 0 && value.data[0] == '\n') {
            value.data++;
            value.length--;
        }
        if (r->dialogue.style->trims_values && value.length > 0 && value.data[value.length - 1] == '\n') {
            value.length--;
        }
        mo_value_add(&r->json, value, r->types);
    }
    put_json(r);
    r->state = MO_READING_ARGUMENTS;
}

/* ---- Calls that are objects ---- */

static bool object_byte(mo_reading *r, char c)
{
    const bool was_certain = r->object.certain;
    mo_bytes answer = {0};
    const mo_object_step step = mo_object_put(&r->object, c, &r->calls, &answer);
    r->out->failed |= answer.failed;
    if (r->object.certain && !was_certain) {
        make_certain(r);
    }
    if (answer.length > 0) {
        mo_reading_put(r, MO_PIECE_TEXT, mo_bytes_text(&answer));
    }
    mo_bytes_free(&answer);
    if (step == MO_OBJECT_DONE || (step == MO_OBJECT_FAILED && r->object.certain)) {
        mo_calls_end(&r->calls);
        leave(r, false);
        return step == MO_OBJECT_DONE;
    }
    if (step == MO_OBJECT_MORE && !r->object.certain) {
        mo_bytes_add(&r->raw, &c, 1);
    }
    return step == MO_OBJECT_MORE;
}

void mo_call_begin_object(mo_reading *r, char c, bool bare)
{
    if (bare && r->state == MO_READING_TEXT) {
        mo_bytes_clear(&r->raw);
        r->in_section = false;
        r->section_calls = 0;
    }
    mo_object_begin(&r->object, bare);
    r->state = MO_READING_OBJECT;
    (void)object_byte(r, c); /* a brace or bracket always begins one */
}

/* ---- Sections, fences, Python ---- */

static bool python_byte(mo_reading *r, char c);

static bool section_byte(mo_reading *r, char c)
{
    const mo_style *f = r->dialogue.style;
    if (f->python && r->section_calls == 0 && mo_json_among(c, "[]")) { /* of the list */
        mo_bytes_add(&r->raw, &c, 1);
        return true;
    }
    if (mo_json_is_space(c) || (r->section_calls > 0 && mo_json_among(c, "`}];,"))) {
        if (r->section_calls == 0) {
            mo_bytes_add(&r->raw, &c, 1);
        }
        return true;
    }
    if (f->objects && (c == '{' || c == '[')) {
        mo_call_begin_object(r, c, false);
        return true;
    }
    if (f->python) {
        mo_bytes_clear(&r->value);
        r->python = (mo_python_scan){0};
        r->state = MO_READING_PYTHON;
        return python_byte(r, c);
    }
    if (f->bare_name && !mo_json_among(c, "<>()")) {
        mo_bytes_clear(&r->name);
        r->state = MO_READING_NAME;
        return name_byte(r, c);
    }
    return false;
}

static void section_mark(mo_reading *r, mo_role role, const char *text)
{
    switch (role) {
    case MO_ROLE_CALL_OPEN:
        keep_raw(r, text);
        mo_bytes_clear(&r->name);
        r->state = MO_READING_NAME;
        break;
    case MO_ROLE_SECTION_OPEN:
        if (r->section_calls == 0) {
            mo_reading_give_up(r);
        }
        mo_call_open(r, role, text);
        break;
    case MO_ROLE_SECTION_CLOSE:
        if (r->section_calls == 0) { /* nothing in it */
            keep_raw(r, text);
            mo_reading_give_up(r);
        } else {
            mo_reading_enter_text(r);
            r->in_section = false;
        }
        break;
    default: break; /* the call's before */
    }
}

static bool fence_byte(mo_reading *r, char c)
{
    if (c == '{' || c == '[') {
        mo_call_begin_object(r, c, true);
        return true;
    }
    mo_bytes_add(&r->raw, &c, mo_json_is_space(c) ? 1 : 0);
    return mo_json_is_space(c);
}

/* What stands between a function's name and the parenthesis. */
static mo_text python_suffix(const mo_reading *r)
{
    return r->dialogue.style->python ? (mo_text){"", 0} : (mo_text){".call", 5};
}

/* NAME.call(k="v"), or NAME(k="v"): does the text so far start like this? The last byte is new. */
static bool begins_python(const mo_reading *r)
{
    const mo_text suffix = python_suffix(r), all = mo_bytes_text(&r->value);
    const char c = all.data[all.length - 1], low = (char)(c | 32);
    const size_t name = r->python.open ? r->python.open_at : all.length;
    if (!r->python.open) {
        const bool fits = mo_json_among(c, "._-") || (low >= 'a' && low <= 'z') || (c >= '0' && c <= '9');
        return fits && name <= MO_TOOL_NAME + suffix.length;
    }
    return all.length <= PYTHON_MAX && name > suffix.length &&
           !memcmp(all.data + name - suffix.length, suffix.data, suffix.length);
}

/* The call is complete. False: there is no such function. */
static bool end_python(mo_reading *r)
{
    const mo_text all = mo_bytes_text(&r->value);
    const size_t open = r->python.open_at;
    const mo_text name = {all.data, open - python_suffix(r).length};
    if (r->dialogue.style->python && !mo_calls_name_fits(&r->calls, name, false)) {
        return false;
    }
    make_certain(r);
    mo_calls_begin(&r->calls, name, (mo_text){"", 0});
    mo_python_arguments(&r->json, (mo_text){all.data + open + 1, all.length - open - 2});
    put_json(r);
    mo_calls_end(&r->calls);
    leave(r, false);
    return true;
}

static bool python_byte(mo_reading *r, char c)
{
    if (r->value.length == 0 && c == '{') {
        mo_call_begin_object(r, c, false);
        return true;
    }
    bool over = false;
    if (r->value.length > 0 || !mo_json_is_space(c)) {
        mo_bytes_add(&r->value, &c, 1);
        over = mo_python_scan_put(&r->python, c);
        if (r->value.failed || !begins_python(r)) {
            return false;
        }
    }
    mo_bytes_add(&r->raw, &c, 1);
    return !over || end_python(r);
}

/* ---- Everything ---- */

bool mo_call_in_string(const mo_reading *r)
{
    return (r->state == MO_READING_JSON && r->scan.in_string) ||
           (r->state == MO_READING_OBJECT && mo_object_in_string(&r->object)) ||
           (r->state == MO_READING_GEMMA && mo_gemma_in_string(&r->gemma)) ||
           (r->state == MO_READING_PYTHON && r->python.quote);
}

unsigned mo_call_roles(const mo_reading *r)
{
    const unsigned closing = MO_ROLE_CALL_CLOSE | MO_ROLE_SECTION_CLOSE;
    if (mo_call_in_string(r)) {
        return 0;
    }
    switch (r->state) {
    case MO_READING_SECTION: return MO_ROLE_CALL_OPEN | MO_ROLE_SECTION_OPEN | closing;
    case MO_READING_NAME:
        return r->name_line ? 0 : MO_ROLE_NAME_CLOSE | MO_ROLE_ID_OPEN | MO_ROLE_KEY_OPEN | closing;
    case MO_READING_ID: return MO_ROLE_NAME_CLOSE;
    case MO_READING_ARGUMENTS: return MO_ROLE_KEY_OPEN | MO_ROLE_FENCE | closing;
    case MO_READING_KEY: return MO_ROLE_KEY_CLOSE | MO_ROLE_KEY_CLOSE_TEXT | MO_ROLE_KEY_CLOSE_JSON;
    case MO_READING_BEFORE_VALUE: return MO_ROLE_VALUE_OPEN | MO_ROLE_KEY_OPEN | closing;
    case MO_READING_VALUE: return MO_ROLE_VALUE_CLOSE;
    case MO_READING_GEMMA: return MO_ROLE_QUOTE | closing;
    case MO_READING_JSON:
    case MO_READING_LOOSE:
    case MO_READING_OBJECT: return closing;
    case MO_READING_PYTHON: return r->dialogue.style->python ? MO_ROLE_SECTION_CLOSE : 0;
    default: return 0;
    }
}

bool mo_call_byte(mo_reading *r, char c)
{
    bool fits = true;
    switch (r->state) {
    case MO_READING_SECTION: fits = section_byte(r, c); break;
    case MO_READING_FENCE: fits = fence_byte(r, c); break;
    case MO_READING_PYTHON: fits = python_byte(r, c); break;
    case MO_READING_NAME: fits = name_byte(r, c); break;
    case MO_READING_ID:
        fits = r->id.length < MO_TOOL_NAME;
        mo_bytes_add(&r->id, &c, 1);
        mo_bytes_add(&r->raw, &c, fits ? 1 : 0);
        break;
    case MO_READING_ARGUMENTS: fits = arguments_byte(r, c); break;
    case MO_READING_KEY: mo_bytes_add(&r->key, &c, 1); break;
    case MO_READING_VALUE: value_byte(r, c); break;
    case MO_READING_JSON: json_byte(r, c); break;
    case MO_READING_LOOSE: mo_bytes_add(&r->value, &c, 1); break;
    case MO_READING_GEMMA: gemma_byte(r, c); break;
    case MO_READING_OBJECT: fits = object_byte(r, c); break;
    default: break;
    }
    if (!fits && r->state != MO_READING_TEXT && r->raw.length > 0) {
        r->name_line = false;
        mo_reading_give_up(r);
    } else if (!fits && r->state != MO_READING_TEXT) { /* behind a call */
        const bool section = r->state == MO_READING_SECTION && r->section_calls > 0;
        mo_reading_enter_text(r);
        r->after_call = section;
        r->in_section = false;
    }
    return fits;
}

void mo_call_mark(mo_reading *r, mo_role role, const char *text)
{
    bool fits = true;
    switch (role) {
    case MO_ROLE_KEY_OPEN:
        if (r->state != MO_READING_NAME) {
            mo_bytes_clear(&r->key);
            r->state = MO_READING_KEY;
            return;
        }
        break;
    case MO_ROLE_KEY_CLOSE:
    case MO_ROLE_KEY_CLOSE_TEXT:
    case MO_ROLE_KEY_CLOSE_JSON: end_key(r, role); return;
    case MO_ROLE_VALUE_OPEN: begin_value(r); return;
    case MO_ROLE_VALUE_CLOSE: end_value(r); return;
    case MO_ROLE_QUOTE:
        mo_gemma_quote(&r->gemma, &r->json);
        put_json(r);
        return;
    case MO_ROLE_FENCE: r->in_fence = true; return;
    default: break;
    }
    if (r->state == MO_READING_SECTION) {
        section_mark(r, role, text);
        return;
    }
    if (r->state == MO_READING_ID) {
        keep_raw(r, text);
        fits = end_name(r, false);
    } else if (r->state == MO_READING_NAME) {
        fits = name_mark(r, role, text);
    } else if (r->calls.open) {
        mo_call_close(r, role);
    } else { /* an object that is no call yet */
        keep_raw(r, text);
        fits = false;
    }
    if (!fits) {
        mo_reading_give_up(r); /* the mark's text is in what was kept */
    }
}

void mo_call_end(mo_reading *r, bool cut)
{
    const bool named = r->state == MO_READING_OBJECT && r->object.named;
    if (!r->calls.open && cut && named && known(r, mo_bytes_text(&r->object.name))) {
        mo_calls_begin(&r->calls, mo_bytes_text(&r->object.name), (mo_text){"", 0});
    }
    if (!r->calls.open) {
        if (cut) {
            make_certain(r);
        }
        mo_reading_give_up(r);
        return;
    }
    if (r->state == MO_READING_LOOSE) {
        mo_value_add_arguments(&r->json, mo_bytes_text(&r->value));
    } else if (r->state == MO_READING_VALUE && r->text_value && r->value_newline) {
        mo_json_escape(&r->json, '\n');
    } else if (r->state == MO_READING_VALUE && !r->text_value) {
        mo_bytes_add(&r->json, r->value.data, r->value.length);
    }
    put_json(r);
    cut ? mo_calls_cut(&r->calls) : mo_calls_end(&r->calls);
}
