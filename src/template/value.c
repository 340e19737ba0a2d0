#include "template/value.h"

#include <math.h>

mo_jv mo_jv_missing(mo_work *w, const char *owner, mo_jstring name)
{
    mo_jmissing *m = mo_work_alloc(w, sizeof *m);
    *m = (mo_jmissing){owner, name};
    return (mo_jv){.kind = MO_J_UNDEFINED, .as.missing = m};
}

const char *mo_jv_type(mo_jv v)
{
    static const char *const shapes[] = {"list",        "tuple",      "range",    "dict_keys",
                                         "dict_values", "dict_items", "generator"};
    switch (v.kind) {
    case MO_J_NONE: return "NoneType";
    case MO_J_BOOL: return "bool";
    case MO_J_INT:
    case MO_J_BIG: return "int";
    case MO_J_FLOAT: return "float";
    case MO_J_STRING: return "str";
    case MO_J_LIST: return shapes[v.as.list->shape];
    case MO_J_DICT: return "dict";
    case MO_J_NAMESPACE: return "Namespace";
    case MO_J_LOOP: return "LoopContext";
    case MO_J_FUNCTION:
    case MO_J_METHOD: return "function";
    case MO_J_MACRO: return "Macro";
    default: return "Undefined";
    }
}

void mo_jv_fail_undefined(mo_work *w, mo_jv v)
{
    const mo_jmissing *m = v.kind == MO_J_UNDEFINED ? v.as.missing : NULL;
    if (!m) {
        mo_work_fail(w, MO_EINVAL, "an undefined value is used");
    }
    const int length = (int)(m->name.length < 200 ? m->name.length : 200);
    if (m->owner) {
        mo_work_fail(w, MO_EINVAL, "'%s' has no attribute '%.*s'", m->owner, length,
                     mo_jstring_data(m->name));
    }
    mo_work_fail(w, MO_EINVAL, "'%.*s' is undefined", length, mo_jstring_data(m->name));
}

bool mo_jv_true(mo_jv v)
{
    switch (v.kind) {
    case MO_J_ABSENT:
    case MO_J_UNDEFINED:
    case MO_J_NONE: return false;
    case MO_J_BOOL: return v.as.truth;
    case MO_J_INT: return v.as.integer != 0;
    case MO_J_FLOAT: return v.as.real != 0;
    case MO_J_STRING: return v.as.string.length > 0;
    case MO_J_LIST: return v.as.list->count > 0 || v.as.list->shape == MO_SHAPE_GENERATOR;
    case MO_J_DICT: return v.as.dict->count > 0;
    default: return true;
    }
}

bool mo_jv_is_number(mo_jv v)
{
    return v.kind == MO_J_BOOL || v.kind == MO_J_INT || v.kind == MO_J_FLOAT;
}

double mo_jv_number(mo_jv v)
{
    return v.kind == MO_J_FLOAT ? v.as.real : v.kind == MO_J_BOOL ? v.as.truth : (double)v.as.integer;
}

int64_t mo_jv_integer(mo_work *w, mo_jv v, const char *what)
{
    if (v.kind == MO_J_BOOL) {
        return v.as.truth;
    }
    if (v.kind == MO_J_UNDEFINED) {
        mo_jv_fail_undefined(w, v);
    }
    if (v.kind == MO_J_BIG) {
        mo_work_fail(w, MO_EINVAL, "%s is an integer of more than 64 bits", what);
    }
    if (v.kind != MO_J_INT) {
        mo_work_fail(w, MO_EINVAL, "%s must be an integer, not '%s'", what, mo_jv_type(v));
    }
    return v.as.integer;
}

mo_jstring mo_jv_need_string(mo_work *w, mo_jv v, const char *what)
{
    if (v.kind == MO_J_UNDEFINED) {
        mo_jv_fail_undefined(w, v);
    }
    if (v.kind != MO_J_STRING) {
        mo_work_fail(w, MO_EINVAL, "%s must be a string, not '%s'", what, mo_jv_type(v));
    }
    return v.as.string;
}

/* ---- Comparing ---- */

static int order_numbers(mo_jv a, mo_jv b)
{
    if (a.kind != MO_J_FLOAT && b.kind != MO_J_FLOAT) {
        const int64_t x = a.kind == MO_J_BOOL ? a.as.truth : a.as.integer;
        const int64_t y = b.kind == MO_J_BOOL ? b.as.truth : b.as.integer;
        return x < y ? -1 : x > y;
    }
    const double x = mo_jv_number(a), y = mo_jv_number(b);
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; /* 2: NaN */
}

/* As in Python, tuples and lists differ. Other shapes are compared as lists. */
static bool same_shape(const mo_jlist *a, const mo_jlist *b)
{
    return (a->shape == MO_SHAPE_TUPLE) == (b->shape == MO_SHAPE_TUPLE);
}

static bool equal_dicts(mo_work *w, const mo_jdict *a, const mo_jdict *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (uint32_t i = 0; i < a->count; i++) {
        const mo_jv *other = mo_jdict_get(w, b, a->entries[i].key);
        if (!other || !mo_jv_equal(w, a->entries[i].value, *other)) {
            return false;
        }
    }
    return true;
}

bool mo_jv_equal(mo_work *w, mo_jv a, mo_jv b)
{
    mo_work_spend(w, 1);
    if (mo_jv_is_number(a) && mo_jv_is_number(b)) {
        return order_numbers(a, b) == 0;
    }
    if (a.kind != b.kind) {
        return false;
    }
    bool equal = true;
    switch (a.kind) {
    case MO_J_STRING:
    case MO_J_BIG: return mo_jstring_equal(w, a.as.string, b.as.string);
    case MO_J_LIST:
        equal = a.as.list == b.as.list ||
                (same_shape(a.as.list, b.as.list) && a.as.list->count == b.as.list->count);
        mo_work_down(w);
        for (uint32_t i = 0; equal && a.as.list != b.as.list && i < a.as.list->count; i++) {
            equal = mo_jv_equal(w, a.as.list->items[i], b.as.list->items[i]);
        }
        mo_work_up(w);
        return equal;
    case MO_J_DICT:
        mo_work_down(w);
        equal = a.as.dict == b.as.dict || equal_dicts(w, a.as.dict, b.as.dict);
        mo_work_up(w);
        return equal;
    case MO_J_NAMESPACE: return a.as.dict == b.as.dict;
    case MO_J_LOOP: return a.as.loop == b.as.loop;
    case MO_J_FUNCTION: return a.as.function == b.as.function;
    case MO_J_METHOD: return a.as.method == b.as.method;
    case MO_J_MACRO: return a.as.macro == b.as.macro;
    default: return true; /* none and undefined */
    }
}

/* Both are decimal texts without leading zeros. */
static int order_big(mo_work *w, mo_jv a, mo_jv b)
{
    const bool minus_a = mo_jstring_data(a.as.string)[0] == '-',
               minus_b = mo_jstring_data(b.as.string)[0] == '-';
    if (minus_a != minus_b) {
        return minus_a ? -1 : 1;
    }
    const int size = a.as.string.length != b.as.string.length
                         ? (a.as.string.length < b.as.string.length ? -1 : 1)
                         : mo_jstring_compare(w, a.as.string, b.as.string);
    return minus_a ? -size : size;
}

int mo_jv_order(mo_work *w, mo_jv a, mo_jv b, const char *op)
{
    mo_work_spend(w, 1);
    if (a.kind == MO_J_UNDEFINED || b.kind == MO_J_UNDEFINED) {
        mo_jv_fail_undefined(w, a.kind == MO_J_UNDEFINED ? a : b);
    }
    if (mo_jv_is_number(a) && mo_jv_is_number(b)) {
        return order_numbers(a, b);
    }
    if (a.kind == MO_J_BIG && b.kind == MO_J_BIG) {
        return order_big(w, a, b);
    }
    if (a.kind == MO_J_BIG && mo_jv_is_number(b)) {
        return mo_jstring_data(a.as.string)[0] == '-' ? -1 : 1;
    }
    if (b.kind == MO_J_BIG && mo_jv_is_number(a)) {
        return mo_jstring_data(b.as.string)[0] == '-' ? 1 : -1;
    }
    if (a.kind == MO_J_STRING && b.kind == MO_J_STRING) {
        return mo_jstring_compare(w, a.as.string, b.as.string);
    }
    if (a.kind != MO_J_LIST || b.kind != MO_J_LIST || !same_shape(a.as.list, b.as.list)) {
        mo_work_fail(w, MO_EINVAL, "'%s' not supported between instances of '%s' and '%s'", op, mo_jv_type(a),
                     mo_jv_type(b));
    }
    const mo_jlist *x = a.as.list, *y = b.as.list;
    int order = 0;
    mo_work_down(w);
    for (uint32_t i = 0; order == 0 && i < x->count && i < y->count; i++) {
        if (!mo_jv_equal(w, x->items[i], y->items[i])) {
            order = mo_jv_order(w, x->items[i], y->items[i], op);
        }
    }
    mo_work_up(w);
    return order ? order : x->count < y->count ? -1 : x->count > y->count;
}

/* ---- Iterating ---- */

static mo_jlist *characters(mo_work *w, mo_jstring s)
{
    mo_jlist *list = mo_jlist_new(w, MO_SHAPE_LIST, mo_jstring_characters(w, s));
    mo_work_spend(w, MO_SCAN_STEPS(s.length));
    for (size_t at = 0, bytes; at < s.length; at += bytes) {
        mo_jstring_code(s, at, &bytes);
        mo_jlist_add(w, list, mo_jv_string(mo_jstring_part(s, at, bytes)));
    }
    return list;
}

mo_jlist *mo_jv_iterate(mo_work *w, mo_jv v)
{
    switch (v.kind) {
    case MO_J_LIST: return v.as.list;
    case MO_J_STRING: return characters(w, v.as.string);
    case MO_J_UNDEFINED: return mo_jlist_new(w, MO_SHAPE_LIST, 0);
    case MO_J_DICT: {
        mo_jlist *keys = mo_jlist_new(w, MO_SHAPE_LIST, v.as.dict->count);
        for (uint32_t i = 0; i < v.as.dict->count; i++) {
            mo_jlist_add(w, keys, v.as.dict->entries[i].key);
        }
        return keys;
    }
    default: mo_work_fail(w, MO_EINVAL, "'%s' object is not iterable", mo_jv_type(v));
    }
}
