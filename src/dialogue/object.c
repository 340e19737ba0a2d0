/* Object: a machine of one level; what is nested deeper and does not matter is passed over. */
#include "dialogue/object.h"

#include <string.h>

#include "dialogue/value.h"

enum {
    START,     /* before { or [ */
    KEY_FIRST, /* after {: a key or } */
    KEY,
    IN_KEY,
    COLON,
    VALUE,
    IN_NAME,
    ARGUMENTS,      /* pass to the call */
    ARGUMENTS_KEPT, /* wait for their end or for the name */
    OTHER,          /* passes over */
    IN_RESPONSE,
    NEXT, /* after a value: , or } */
    LIST_NEXT,
};

void mo_object_begin(mo_object *o, bool bare)
{
    const mo_bytes key = o->key, name = o->name, text = o->text;
    *o = (mo_object){.bare = bare, .key = key, .name = name, .text = text};
    mo_bytes_clear(&o->key);
    mo_bytes_clear(&o->name);
    mo_bytes_clear(&o->text);
}

void mo_object_free(mo_object *o)
{
    mo_bytes_free(&o->key);
    mo_bytes_free(&o->name);
    mo_bytes_free(&o->text);
}

bool mo_object_in_string(const mo_object *o)
{
    return o->state == IN_KEY || o->state == IN_NAME || o->state == IN_RESPONSE ||
           (o->state >= ARGUMENTS && o->state <= OTHER && o->scan.in_string);
}

static bool is(const mo_bytes *text, const char *word)
{
    return text->length == strlen(word) && !memcmp(text->data, word, text->length);
}

/* The name is there and, for a bare object, arguments too: the call begins. False: it cannot. */
static bool begin_call(mo_object *o, mo_calls *calls)
{
    if (calls->open || !o->named || (o->bare && !o->argued)) {
        return true;
    }
    mo_text name = mo_bytes_text(&o->name);
    if (name.length > 10 && !memcmp(name.data, "functions.", 10) &&
        mo_tools_find(calls->tools, name.data, name.length) < 0) {
        name.data += 10;
        name.length -= 10;
    }
    if (!mo_calls_name_fits(calls, name, o->bare)) {
        return false;
    }
    mo_calls_begin(calls, name, (mo_text){"", 0});
    o->certain = true;
    return true;
}

/* ---- Values ---- */

static mo_object_step begin_arguments(mo_object *o, char c, mo_calls *calls)
{
    o->argued = true;
    mo_bytes_clear(&o->text);
    if (o->bare && c != '{') {
        return MO_OBJECT_FAILED;
    }
    if (!begin_call(o, calls)) {
        return MO_OBJECT_FAILED;
    }
    o->state = calls->open && c == '{' ? ARGUMENTS : ARGUMENTS_KEPT;
    mo_json_scan_put(&o->scan, c, &o->text);
    if (o->state == ARGUMENTS) {
        mo_calls_arguments(calls, mo_bytes_text(&o->text));
        mo_bytes_clear(&o->text);
    }
    return MO_OBJECT_MORE;
}

static mo_object_step begin_value(mo_object *o, char c, mo_calls *calls)
{
    const bool wraps = is(&o->key, "function") || is(&o->key, "tool_call");
    o->scan = (mo_json_scan){0};
    o->string = (mo_json_string){0};
    if (wraps && c == '{' && o->depth < 3) {
        o->depth++;
        o->bare &= !is(&o->key, "tool_call"); /* that says enough */
        o->state = KEY_FIRST;
        return MO_OBJECT_MORE;
    }
    if ((wraps || is(&o->key, "name") || is(&o->key, "tool_name")) && c == '"' && !o->named) {
        mo_bytes_clear(&o->name);
        o->state = IN_NAME;
        return MO_OBJECT_MORE;
    }
    if ((is(&o->key, "arguments") || is(&o->key, "parameters")) && !o->argued) {
        return begin_arguments(o, c, calls);
    }
    if (is(&o->key, "response") && c == '"' && o->bare && !o->named && !o->argued && o->depth == 1 &&
        !o->list) {
        o->state = IN_RESPONSE;
        o->certain = true;
        return MO_OBJECT_MORE;
    }
    if (o->bare && !is(&o->key, "id") && !is(&o->key, "type")) {
        return MO_OBJECT_FAILED;
    }
    o->state = OTHER;
    mo_json_scan_put(&o->scan, c, NULL);
    return MO_OBJECT_MORE;
}

static mo_object_step end_object(mo_object *o, mo_calls *calls)
{
    if (--o->depth > 0) {
        o->state = NEXT;
        return MO_OBJECT_MORE;
    }
    if (!calls->open && o->named && !o->bare) { /* without arguments */
        if (!begin_call(o, calls)) {
            return MO_OBJECT_FAILED;
        }
    }
    if (!calls->open && !o->certain) {
        return MO_OBJECT_FAILED;
    }
    mo_calls_end(calls);
    o->named = o->argued = false;
    o->state = LIST_NEXT;
    return o->list ? MO_OBJECT_MORE : MO_OBJECT_DONE;
}

/* The arguments are over, or what was passed over is. */
static void end_value(mo_object *o, mo_calls *calls)
{
    if (o->state == ARGUMENTS_KEPT && calls->open) {
        mo_bytes whole = {0};
        mo_value_add_arguments(&whole, mo_bytes_text(&o->text));
        mo_calls_arguments(calls, mo_bytes_text(&whole));
        calls->out->failed |= whole.failed;
        mo_bytes_free(&whole);
        mo_bytes_clear(&o->text);
    }
    o->state = NEXT;
}

static mo_object_step pass_value(mo_object *o, char c, mo_calls *calls, mo_bytes *answer)
{
    const mo_json_step step = mo_json_scan_put(&o->scan, c, o->state == OTHER ? NULL : &o->text);
    if (o->state == ARGUMENTS) {
        mo_calls_arguments(calls, mo_bytes_text(&o->text));
        mo_bytes_clear(&o->text);
    }
    if (step != MO_JSON_MORE) {
        end_value(o, calls);
    }
    return step == MO_JSON_BEFORE ? mo_object_put(o, c, calls, answer) : MO_OBJECT_MORE;
}

/* ---- Bytes ---- */

static mo_object_step end_name(mo_object *o, mo_calls *calls)
{
    o->named = true;
    o->state = NEXT;
    if (!begin_call(o, calls)) {
        return MO_OBJECT_FAILED;
    }
    if (calls->open && o->argued) { /* the arguments came first */
        o->state = ARGUMENTS_KEPT;
        end_value(o, calls);
    }
    return MO_OBJECT_MORE;
}

/* May the name, as far as it is there, be that of one of the tools? */
static bool may_be_tool(const mo_object *o, const mo_calls *calls)
{
    static const char prefix[] = "functions.";
    const mo_text name = mo_bytes_text(&o->name);
    const size_t most = sizeof prefix - 1, n = name.length < most ? name.length : most;
    if (mo_tools_begins(calls->tools, name.data, name.length)) {
        return true;
    }
    return !memcmp(name.data, prefix, n) &&
           (n < most || mo_tools_begins(calls->tools, name.data + most, name.length - most));
}

static mo_object_step put_string(mo_object *o, char c, mo_calls *calls, mo_bytes *answer)
{
    mo_bytes *to = o->state == IN_KEY ? &o->key : o->state == IN_NAME ? &o->name : answer;
    if (!mo_json_string_put(&o->string, c, to)) {
        if (o->state == IN_NAME && o->bare && to->length > 0 && !may_be_tool(o, calls)) {
            return MO_OBJECT_FAILED; /* it is clear at once that this is not a call */
        }
        return o->state != IN_RESPONSE && to->length > 4 * MO_TOOL_NAME ? MO_OBJECT_FAILED : MO_OBJECT_MORE;
    }
    if (o->state == IN_NAME) {
        return end_name(o, calls);
    }
    o->state = o->state == IN_KEY ? COLON : NEXT;
    return MO_OBJECT_MORE;
}

static mo_object_step put_between(mo_object *o, char c, mo_calls *calls)
{
    switch (o->state) {
    case START:
        if (c == '[' && !o->list) {
            o->list = true;
            return MO_OBJECT_MORE;
        }
        o->state = KEY_FIRST;
        o->depth = 1;
        return c == '{' ? MO_OBJECT_MORE : MO_OBJECT_FAILED;
    case KEY_FIRST:
    case KEY:
        if (c == '"') {
            mo_bytes_clear(&o->key);
            o->string = (mo_json_string){0};
            o->state = IN_KEY;
            return MO_OBJECT_MORE;
        }
        return c == '}' && o->state == KEY_FIRST ? end_object(o, calls) : MO_OBJECT_FAILED;
    case COLON: o->state = VALUE; return c == ':' ? MO_OBJECT_MORE : MO_OBJECT_FAILED;
    case VALUE: return begin_value(o, c, calls);
    case NEXT:
        if (c == ',') {
            o->state = KEY;
            return MO_OBJECT_MORE;
        }
        return c == '}' ? end_object(o, calls) : MO_OBJECT_FAILED;
    default: /* LIST_NEXT */
        if (c == ',') {
            o->state = START;
            return MO_OBJECT_MORE;
        }
        return c == ']' ? MO_OBJECT_DONE : MO_OBJECT_FAILED;
    }
}

mo_object_step mo_object_put(mo_object *o, char c, mo_calls *calls, mo_bytes *answer)
{
    if (o->state == IN_KEY || o->state == IN_NAME || o->state == IN_RESPONSE) {
        return put_string(o, c, calls, answer);
    }
    if (o->state == ARGUMENTS || o->state == ARGUMENTS_KEPT || o->state == OTHER) {
        return pass_value(o, c, calls, answer);
    }
    return mo_json_is_space(c) ? MO_OBJECT_MORE : put_between(o, c, calls);
}
