/* Attributes, items and slices of values. */
#include <stdio.h>

#include "template/print.h"
#include "template/run.h"

static const char *owner_of(mo_work *w, mo_jv v)
{
    if (v.kind == MO_J_NONE) {
        return "None";
    }
    char *name = mo_work_alloc(w, 32);
    snprintf(name, 32, "%s object", mo_jv_type(v));
    return name;
}

static mo_jv method_of(mo_jrun *r, mo_jv v, mo_jstring name)
{
    const mo_jfunction *table = v.kind == MO_J_STRING ? mo_methods_string
                                : v.kind == MO_J_LIST && v.as.list->shape == MO_SHAPE_TUPLE ? mo_methods_tuple
                                : v.kind == MO_J_LIST                                       ? mo_methods_list
                                : v.kind == MO_J_DICT                                       ? mo_methods_dict
                                : v.kind == MO_J_LOOP                                       ? mo_methods_loop
                                                                                            : NULL;
    const mo_jfunction *f = table ? mo_function_find(table, name) : NULL;
    if (!f) {
        return (mo_jv){.kind = MO_J_ABSENT};
    }
    mo_jmethod *m = mo_work_alloc(r->w, sizeof *m);
    *m = (mo_jmethod){v, f};
    return (mo_jv){.kind = MO_J_METHOD, .as.method = m};
}

static mo_jv loop_attribute(const mo_jloop *l, mo_jstring name)
{
    const int64_t at = l->at, count = l->items->count;
    const struct {
        const char *name;
        mo_jv value;
    } all[] = {
        {"index", mo_jv_int(at + 1)},
        {"index0", mo_jv_int(at)},
        {"first", mo_jv_bool(at == 0)},
        {"last", mo_jv_bool(at + 1 == count)},
        {"length", mo_jv_int(count)},
        {"revindex", mo_jv_int(count - at)},
        {"revindex0", mo_jv_int(count - at - 1)},
        {"depth", mo_jv_int(l->depth + 1)},
        {"depth0", mo_jv_int(l->depth)},
        {"previtem", at > 0 ? l->items->items[at - 1] : MO_JV_UNDEFINED},
        {"nextitem", at + 1 < count ? l->items->items[at + 1] : MO_JV_UNDEFINED},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (mo_jstring_is(name, all[i].name)) {
            return all[i].value;
        }
    }
    return (mo_jv){.kind = MO_J_ABSENT};
}

/* An attribute of the value itself, not one of its items. */
static mo_jv own_attribute(mo_jrun *r, mo_jv v, mo_jstring name)
{
    mo_jv found = {.kind = MO_J_ABSENT};
    if (v.kind == MO_J_LOOP) {
        found = loop_attribute(v.as.loop, name);
    } else if (v.kind == MO_J_NAMESPACE) {
        const mo_jv *field = mo_jdict_find_string(r->w, v.as.dict, name);
        found = field ? *field : found;
    } else if (v.kind == MO_J_MACRO && mo_jstring_is(name, "name")) {
        found = v.as.macro->node->value;
    }
    return mo_jv_is_absent(found) ? method_of(r, v, name) : found;
}

mo_jv mo_access_attribute(mo_jrun *r, mo_jv v, mo_jstring name)
{
    if (v.kind == MO_J_UNDEFINED) {
        mo_jv_fail_undefined(r->w, v);
    }
    const mo_jv own = own_attribute(r, v, name);
    if (!mo_jv_is_absent(own)) {
        return own;
    }
    const mo_jv *item = v.kind == MO_J_DICT ? mo_jdict_find_string(r->w, v.as.dict, name) : NULL;
    return item ? *item : mo_jv_missing(r->w, owner_of(r->w, v), name);
}

mo_jv mo_access_own(mo_jrun *r, mo_jv v, mo_jstring name)
{
    const mo_jv own = own_attribute(r, v, name);
    return mo_jv_is_absent(own) ? mo_jv_missing(r->w, owner_of(r->w, v), name) : own;
}

/* The position of an index, which may count from the end. -1: out of range. */
static int64_t place_of(mo_jv key, int64_t count)
{
    int64_t i = key.kind == MO_J_BOOL ? key.as.truth : key.as.integer;
    i += i < 0 ? count : 0;
    return i >= 0 && i < count ? i : -1;
}

mo_jv mo_access_item(mo_jrun *r, mo_jv v, mo_jv key)
{
    if (v.kind == MO_J_UNDEFINED) {
        mo_jv_fail_undefined(r->w, v);
    }
    const bool index = key.kind == MO_J_INT || key.kind == MO_J_BOOL;
    if (v.kind == MO_J_LIST && index) {
        const int64_t at = place_of(key, v.as.list->count);
        if (at >= 0) {
            return v.as.list->items[at];
        }
    } else if (v.kind == MO_J_STRING && index) {
        const int64_t at = place_of(key, (int64_t)mo_jstring_characters(r->w, v.as.string));
        if (at >= 0) {
            size_t bytes;
            const size_t from = mo_jstring_offset(r->w, v.as.string, (size_t)at);
            mo_jstring_code(v.as.string, from, &bytes);
            return mo_jv_string(mo_jstring_part(v.as.string, from, bytes));
        }
    } else if (v.kind == MO_J_DICT && key.kind != MO_J_UNDEFINED && key.kind != MO_J_DICT &&
               (key.kind != MO_J_LIST || key.as.list->shape == MO_SHAPE_TUPLE)) {
        const mo_jv *item = mo_jdict_get(r->w, v.as.dict, key);
        if (item) {
            return *item;
        }
    }
    if (key.kind == MO_J_STRING) {
        const mo_jv own = own_attribute(r, v, key.as.string);
        if (!mo_jv_is_absent(own)) {
            return own;
        }
    }
    return mo_jv_missing(r->w, owner_of(r->w, v), mo_jv_str(r->w, key));
}

/* A bound of a slice, clipped as in Python. */
static int64_t bound(mo_jrun *r, mo_jv v, int64_t otherwise, int64_t count, int64_t step)
{
    if (mo_jv_is_absent(v) || v.kind == MO_J_NONE) {
        return otherwise;
    }
    int64_t i = mo_jv_integer(r->w, v, "a slice's bound");
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count;
    if (i < 0) {
        i = i < -count ? low : i + count;
    }
    return i < low ? low : i > high ? high : i;
}

static mo_jv slice_string(mo_jrun *r, mo_jstring s, int64_t from, int64_t to, int64_t step)
{
    if (step == 1) {
        const size_t a = mo_jstring_offset(r->w, s, (size_t)from);
        const size_t b = to > from ? mo_jstring_offset(r->w, s, (size_t)to) : a;
        return mo_jv_string(mo_jstring_part(s, a, b - a));
    }
    const mo_jlist *all = mo_jv_iterate(r->w, mo_jv_string(s));
    mo_jbuffer *out = mo_jbuffer_new(r->w, 0);
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
        mo_jbuffer_add_string(r->w, out, all->items[i].as.string);
    }
    return mo_jv_string(mo_jbuffer_view(out));
}

mo_jv mo_access_slice(mo_jrun *r, mo_jv v, mo_jv a, mo_jv b, mo_jv c)
{
    if (v.kind == MO_J_UNDEFINED) {
        mo_jv_fail_undefined(r->w, v);
    }
    if (v.kind != MO_J_LIST && v.kind != MO_J_STRING) {
        mo_work_fail(r->w, MO_EINVAL, "'%s' object cannot be sliced", mo_jv_type(v));
    }
    const int64_t count =
        v.kind == MO_J_LIST ? v.as.list->count : (int64_t)mo_jstring_characters(r->w, v.as.string);
    int64_t step = mo_jv_is_absent(c) || c.kind == MO_J_NONE ? 1 : mo_jv_integer(r->w, c, "a slice's step");
    if (step == 0) {
        mo_work_fail(r->w, MO_EINVAL, "slice step cannot be zero");
    }
    step = step > INT32_MAX ? INT32_MAX : step < -INT32_MAX ? -INT32_MAX : step;
    const int64_t from = bound(r, a, step < 0 ? count - 1 : 0, count, step);
    const int64_t to = bound(r, b, step < 0 ? -1 : count, count, step);
    if (v.kind == MO_J_STRING) {
        return slice_string(r, v.as.string, from, to, step);
    }
    if (step == 1) {
        return mo_jv_list(mo_jlist_part(r->w, v.as.list, (size_t)from, to > from ? (size_t)(to - from) : 0));
    }
    mo_jlist *list = mo_jlist_new(r->w, v.as.list->shape, 0);
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
        mo_jlist_add(r->w, list, v.as.list->items[i]);
    }
    return mo_jv_list(list);
}

mo_jv mo_access_path(mo_jrun *r, mo_jv v, mo_jv path)
{
    if (path.kind != MO_J_STRING) {
        return mo_access_item(r, v, path);
    }
    const mo_jstring dot = mo_jstring_literal(r->w, ".");
    for (size_t at = 0; at <= path.as.string.length;) {
        const int64_t end = mo_jstring_find(r->w, path.as.string, dot, at);
        const size_t length = (end < 0 ? path.as.string.length : (size_t)end) - at;
        const mo_jstring part = mo_jstring_part(path.as.string, at, length);
        int64_t index = 0;
        bool digits = length > 0 && length < 10;
        for (size_t i = 0; i < length && digits; i++) {
            const char c = mo_jstring_data(part)[i];
            digits = c >= '0' && c <= '9';
            index = index * 10 + (c - '0');
        }
        v = mo_access_item(r, v, digits ? mo_jv_int(index) : mo_jv_string(part));
        at += length + 1;
    }
    return v;
}
