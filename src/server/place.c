/* Place: see place.h. */
#include "server/place.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Bodies ---- */

/* jansson bounds the depth too, but higher than a stack of a worker should have to bear. */
static bool too_deep(mo_text body)
{
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < body.length; i++) {
        const char c = body.data[i];
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '[' || c == '{') {
            if (++depth > SRV_JSON_DEPTH) {
                return true;
            }
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        }
    }
    return false;
}

/* The code unit of \uXXXX at s, -1 for anything else. */
static int unit(const char *s, size_t length)
{
    if (length < 6 || s[0] != '\\' || s[1] != 'u') {
        return -1;
    }
    int value = 0;
    for (int i = 2; i < 6; i++) {
        const char c = s[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* A copy in which half surrogates are \ufffd; NULL when there are none, or memory ran out. */
static char *mended(mo_text body)
{
    static const mo_text replacement = {"\\ufffd", 6};
    char *copy = NULL;
    for (size_t i = 0; i + 1 < body.length; i++) {
        if (body.data[i] != '\\') {
            continue;
        }
        const int first = unit(body.data + i, body.length - i);
        if (first < 0xd800 || first > 0xdfff) {
            i++;
            continue;
        }
        const int second = first < 0xdc00 ? unit(body.data + i + 6, body.length - i - 6) : -1;
        if (second >= 0xdc00 && second <= 0xdfff) {
            i += 11;
            continue;
        }
        if (!copy) {
            copy = malloc(body.length);
            if (!copy) {
                return NULL;
            }
            memcpy(copy, body.data, body.length);
        }
        memcpy(copy + i, replacement.data, replacement.length);
        i += replacement.length - 1;
    }
    return copy;
}

bool srv_body_read(mo_text body, json_t **root, srv_fault *fault)
{
    *root = NULL;
    if (too_deep(body)) {
        return srv_fault_set(fault, SRV_FAULT_REQUEST, NULL, "the JSON is nested more than %d deep",
                             SRV_JSON_DEPTH);
    }
    json_error_t err;
    json_t *value = json_loadb(body.data, body.length, JSON_ALLOW_NUL, &err);
    if (!value) {
        char *copy = mended(body);
        if (copy) {
            value = json_loadb(copy, body.length, JSON_ALLOW_NUL, &err);
            free(copy);
        }
    }
    if (!value) {
        return body.length == 0 ? srv_fault_set(fault, SRV_FAULT_REQUEST, NULL,
                                                "the body is empty; a JSON object is expected")
                                : srv_fault_set(fault, SRV_FAULT_REQUEST, NULL,
                                                "the body is not JSON: line %d, column %d: %s", err.line,
                                                err.column, err.text);
    }
    if (!json_is_object(value)) {
        json_decref(value);
        return srv_fault_set(fault, SRV_FAULT_REQUEST, NULL, "the body must be a JSON object");
    }
    *root = value;
    return true;
}

/* ---- Places ---- */

static const json_t *something(const json_t *value)
{
    return json_is_null(value) ? NULL : value;
}

srv_place srv_place_root(const json_t *root, srv_fault *fault)
{
    return (srv_place){.value = root, .fault = fault};
}

srv_place srv_member(const srv_place *in, const char *name)
{
    return (srv_place){
        .value = something(json_object_get(in->value, name)), .in = in, .name = name, .fault = in->fault};
}

srv_place srv_element(const srv_place *in, size_t index)
{
    return (srv_place){
        .value = something(json_array_get(in->value, index)), .in = in, .index = index, .fault = in->fault};
}

srv_place srv_member_of(const srv_place *in, const char *const *names)
{
    for (const char *const *name = names; *name; name++) {
        const srv_place f = srv_member(in, *name);
        if (f.value) {
            return f;
        }
    }
    return srv_member(in, names[0]);
}

void srv_place_path(const srv_place *f, char *path, size_t size)
{
    if (!f->in) {
        path[0] = '\0';
        return;
    }
    srv_place_path(f->in, path, size);
    const size_t used = strlen(path);
    if (f->name) {
        snprintf(path + used, size - used, "%s%s", used ? "." : "", f->name);
    } else {
        snprintf(path + used, size - used, "[%zu]", f->index);
    }
}

/* ---- What is wrong ---- */

bool srv_wrong(const srv_place *f, const char *format, ...)
{
    char path[sizeof f->fault->param], text[sizeof f->fault->message];
    srv_place_path(f, path, sizeof path);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return srv_fault_set(f->fault, SRV_FAULT_REQUEST, path, "%s", text);
}

bool srv_missing(const srv_place *f)
{
    return srv_wrong(f, "is missing");
}

bool srv_wrong_type(const srv_place *f, const char *wanted)
{
    static const char *const names[] = {"an object", "a list", "a string", "an integer",
                                        "a number",  "true",   "false",    "null"};
    const int type = f->value ? json_typeof(f->value) : JSON_NULL;
    return srv_wrong(f, "must be %s, not %s", wanted, names[type]);
}

/* ---- Values ---- */

bool srv_read_bool(srv_place f, bool *out)
{
    if (f.value && !json_is_boolean(f.value)) {
        return srv_wrong_type(&f, "true or false");
    }
    *out = f.value ? json_is_true(f.value) : *out;
    return true;
}

bool srv_read_int(srv_place f, int64_t least, int64_t most, int64_t *out)
{
    if (!f.value) {
        return true;
    }
    int64_t value;
    if (json_is_integer(f.value)) {
        value = json_integer_value(f.value);
    } else if (json_is_real(f.value)) {
        const double real = json_real_value(f.value);
        if (real != floor(real) || fabs(real) > 9007199254740992.0) {
            return srv_wrong(&f, "must be a whole number");
        }
        value = (int64_t)real;
    } else {
        return srv_wrong_type(&f, "an integer");
    }
    if (value < least) {
        return srv_wrong(&f, "must be at least %lld", (long long)least);
    }
    if (value > most) {
        return srv_wrong(&f, "must be at most %lld", (long long)most);
    }
    *out = value;
    return true;
}

bool srv_read_float(srv_place f, double least, double most, float *out)
{
    if (!f.value) {
        return true;
    }
    if (!json_is_number(f.value)) {
        return srv_wrong_type(&f, "a number");
    }
    const double value = json_number_value(f.value);
    if (!(value >= least)) {
        return srv_wrong(&f, "must be at least %g", least);
    }
    if (!(value <= most)) {
        return srv_wrong(&f, "must be at most %g", most);
    }
    *out = (float)value;
    return true;
}

bool srv_read_text(srv_place f, mo_text *out)
{
    if (!f.value) {
        return true;
    }
    if (!json_is_string(f.value)) {
        return srv_wrong_type(&f, "a string");
    }
    *out = (mo_text){json_string_value(f.value), json_string_length(f.value)};
    return true;
}

bool srv_is_list(srv_place f)
{
    return !f.value || json_is_array(f.value) || srv_wrong_type(&f, "a list");
}

bool srv_is_object(srv_place f)
{
    return !f.value || json_is_object(f.value) || srv_wrong_type(&f, "an object");
}
