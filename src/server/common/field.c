/* Field: see field.h. */
#include "server/common/field.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Places ---- */

static const json_t *something(const json_t *value)
{
    return json_is_null(value) ? NULL : value;
}

srv_field srv_field_root(const json_t *root, srv_fault *fault)
{
    return (srv_field){.value = root, .fault = fault};
}

srv_field srv_member(const srv_field *in, const char *name)
{
    return (srv_field){
        .value = something(json_object_get(in->value, name)), .in = in, .name = name, .fault = in->fault};
}

srv_field srv_element(const srv_field *in, size_t index)
{
    return (srv_field){
        .value = something(json_array_get(in->value, index)), .in = in, .index = index, .fault = in->fault};
}

srv_field srv_member_of(const srv_field *in, const char *const *names)
{
    for (const char *const *name = names; *name; name++) {
        const srv_field f = srv_member(in, *name);
        if (f.value) {
            return f;
        }
    }
    return srv_member(in, names[0]);
}

void srv_field_path(const srv_field *f, char *path, size_t size)
{
    if (!f->in) {
        path[0] = '\0';
        return;
    }
    srv_field_path(f->in, path, size);
    const size_t used = strlen(path);
    if (f->name) {
        snprintf(path + used, size - used, "%s%s", used ? "." : "", f->name);
    } else {
        snprintf(path + used, size - used, "[%zu]", f->index);
    }
}

/* ---- What is wrong ---- */

bool srv_wrong(const srv_field *f, const char *format, ...)
{
    char path[sizeof f->fault->param], text[sizeof f->fault->message];
    srv_field_path(f, path, sizeof path);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return srv_fault_set(f->fault, SRV_FAULT_REQUEST, path, "%s", text);
}

bool srv_missing(const srv_field *f)
{
    return srv_wrong(f, "missing required field");
}

bool srv_wrong_type(const srv_field *f, const char *wanted)
{
    static const char *const names[] = {"an object", "a list", "a string", "an integer",
                                        "a number",  "true",   "false",    "null"};
    const int type = f->value ? json_typeof(f->value) : JSON_NULL;
    return srv_wrong(f, "must be %s, not %s", wanted, names[type]);
}

/* ---- Values ---- */

bool srv_read_bool(srv_field f, bool *out)
{
    if (f.value && !json_is_boolean(f.value)) {
        return srv_wrong_type(&f, "true or false");
    }
    *out = f.value ? json_is_true(f.value) : *out;
    return true;
}

bool srv_read_int(srv_field f, int64_t least, int64_t most, int64_t *out)
{
    if (!f.value) {
        return true;
    }
    int64_t value;
    if (json_is_integer(f.value)) {
        value = json_integer_value(f.value);
    } else if (json_is_real(f.value)) {
        const double real = json_real_value(f.value);
        if (real != floor(real)) {
            return srv_wrong(&f, "must be an integer");
        }
        /* what 64 bits do not hold is out of every range */
        value = real >= 0x1p63 ? INT64_MAX : real < -0x1p63 ? INT64_MIN : (int64_t)real;
        least = value == INT64_MIN && least == INT64_MIN ? least + 1 : least;
        most = value == INT64_MAX && most == INT64_MAX ? most - 1 : most;
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

bool srv_read_float(srv_field f, double least, double most, float *out)
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

bool srv_read_text(srv_field f, mo_text *out)
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

bool srv_is_list(srv_field f)
{
    return !f.value || json_is_array(f.value) || srv_wrong_type(&f, "a list");
}

bool srv_is_object(srv_field f)
{
    return !f.value || json_is_object(f.value) || srv_wrong_type(&f, "an object");
}
