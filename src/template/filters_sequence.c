/* Filters over sequences. */
#include "template/print.h"
#include "template/run.h"
#include "template/texts.h"

static bool given(mo_jv v)
{
    return !mo_jv_is_absent(v) && v.kind != MO_J_NONE;
}

static mo_jlist *items_of(mo_jrun *r, mo_jv v)
{
    return mo_jv_iterate(r->w, v);
}

/* Some filters treat any false value as an empty list. */
static mo_jlist *items_or_none(mo_jrun *r, mo_jv v)
{
    return mo_jv_true(v) ? items_of(r, v) : mo_jlist_new(r->w, MO_SHAPE_LIST, 0);
}

static mo_jlist *new_list(mo_jrun *r, mo_jshape shape)
{
    return mo_jlist_new(r->w, shape, 0);
}

static mo_jlist *copy_of(mo_jrun *r, mo_jv v)
{
    const mo_jlist *from = items_of(r, v);
    mo_jlist *copy = mo_jlist_new(r->w, MO_SHAPE_LIST, from->count);
    for (uint32_t i = 0; i < from->count; i++) {
        mo_jlist_add(r->w, copy, from->items[i]);
    }
    return copy;
}

static mo_jv f_length(MO_JPARAMETERS)
{
    switch (self.kind) {
    case MO_J_STRING: return mo_jv_int((int64_t)mo_jstring_characters(r->w, self.as.string));
    case MO_J_LIST: return mo_jv_int(self.as.list->count);
    case MO_J_DICT: return mo_jv_int(self.as.dict->count);
    case MO_J_UNDEFINED: return mo_jv_int(0);
    case MO_J_LOOP: return mo_jv_int(self.as.loop->items->count);
    default: mo_work_fail(r->w, MO_EINVAL, "object of type '%s' has no len()", mo_jv_type(self));
    }
}

static mo_jv f_list(MO_JPARAMETERS)
{
    return mo_jv_list(copy_of(r, self));
}

static mo_jv f_first(MO_JPARAMETERS)
{
    const mo_jlist *list = items_of(r, self);
    return list->count ? list->items[0] : MO_JV_UNDEFINED;
}

static mo_jv f_last(MO_JPARAMETERS)
{
    const mo_jlist *list = items_of(r, self);
    return list->count ? list->items[list->count - 1] : MO_JV_UNDEFINED;
}

static mo_jv f_reverse(MO_JPARAMETERS)
{
    const mo_jv absent = {.kind = MO_J_ABSENT};
    if (self.kind == MO_J_STRING) {
        return mo_access_slice(r, self, absent, absent, mo_jv_int(-1));
    }
    const mo_jlist *from = items_of(r, self);
    mo_jlist *list = new_list(r, MO_SHAPE_GENERATOR);
    for (uint32_t i = from->count; i > 0; i--) {
        mo_jlist_add(r->w, list, from->items[i - 1]);
    }
    return mo_jv_list(list);
}

/* The value that an item is sorted or compared by: an attribute or itself. Strings in lower case. */
static mo_jv key_of(mo_jrun *r, mo_jv item, mo_jv attribute, bool exact)
{
    const mo_jv key = given(attribute) ? mo_access_path(r, item, attribute) : item;
    return key.kind == MO_J_STRING && !exact ? mo_jv_string(mo_text_case(r->w, key.as.string, MO_CASE_LOWER))
                                             : key;
}

/* attribute: may be several, separated by commas. */
static mo_jv sort_key(mo_jrun *r, mo_jv item, mo_jv attribute, bool exact)
{
    const mo_jstring comma = mo_jstring_literal(r->w, ",");
    if (attribute.kind != MO_J_STRING || mo_jstring_find(r->w, attribute.as.string, comma, 0) < 0) {
        return key_of(r, item, attribute, exact);
    }
    mo_jlist *keys = new_list(r, MO_SHAPE_TUPLE);
    for (size_t at = 0; at <= attribute.as.string.length;) {
        const int64_t end = mo_jstring_find(r->w, attribute.as.string, comma, at);
        const size_t length = (end < 0 ? attribute.as.string.length : (size_t)end) - at;
        mo_jlist_add(r->w, keys,
                     key_of(r, item, mo_jv_string(mo_jstring_part(attribute.as.string, at, length)), exact));
        at += length + 1;
    }
    return mo_jv_list(keys);
}

static void sort_list(mo_jrun *r, mo_jlist *list, mo_jv attribute, bool exact, bool reverse)
{
    mo_jv *keys = mo_work_array(r->w, list->count, sizeof *keys);
    for (uint32_t i = 0; i < list->count; i++) {
        keys[i] = sort_key(r, list->items[i], attribute, exact);
    }
    mo_jlist_sort(r->w, list, keys, reverse);
}

static mo_jv f_sort(MO_JPARAMETERS) /* reverse? case_sensitive? attribute? */
{
    mo_jlist *list = copy_of(r, self);
    sort_list(r, list, a[2], mo_jv_true(a[1]), mo_jv_true(a[0]));
    return mo_jv_list(list);
}

static mo_jlist *pairs_of(mo_jrun *r, mo_jv v, const char *who, mo_jshape shape)
{
    mo_jlist *pairs = new_list(r, shape);
    if (v.kind == MO_J_UNDEFINED) {
        return pairs;
    }
    if (v.kind != MO_J_DICT) {
        mo_work_fail(r->w, MO_EINVAL, "%s needs a mapping, not '%s'", who, mo_jv_type(v));
    }
    for (uint32_t i = 0; i < v.as.dict->count; i++) {
        mo_jlist_add(r->w, pairs,
                     mo_jlist_pair(r->w, v.as.dict->entries[i].key, v.as.dict->entries[i].value));
    }
    return pairs;
}

static mo_jv f_items(MO_JPARAMETERS)
{
    return mo_jv_list(pairs_of(r, self, "items", MO_SHAPE_GENERATOR));
}

static mo_jv f_dictsort(MO_JPARAMETERS) /* case_sensitive? by? reverse? */
{
    if (self.kind == MO_J_UNDEFINED) {
        mo_jv_fail_undefined(r->w, self);
    }
    mo_jlist *pairs = pairs_of(r, self, "dictsort", MO_SHAPE_LIST);
    const bool by_value = a[1].kind == MO_J_STRING && mo_jstring_is(a[1].as.string, "value");
    sort_list(r, pairs, mo_jv_int(by_value), mo_jv_true(a[0]), mo_jv_true(a[2]));
    return mo_jv_list(pairs);
}

static mo_jv f_unique(MO_JPARAMETERS) /* case_sensitive? attribute? */
{
    const mo_jlist *from = items_of(r, self);
    mo_jdict *seen = mo_jdict_new(r->w, 0);
    mo_jlist *list = new_list(r, MO_SHAPE_GENERATOR);
    for (uint32_t i = 0; i < from->count; i++) {
        const mo_jv key = key_of(r, from->items[i], a[1], mo_jv_true(a[0]));
        if (!mo_jdict_get(r->w, seen, key)) {
            mo_jdict_set(r->w, seen, key, MO_JV_NONE);
            mo_jlist_add(r->w, list, from->items[i]);
        }
    }
    return mo_jv_list(list);
}

static mo_jv extreme(mo_jrun *r, mo_jv self, const mo_jv *a, int wanted)
{
    const mo_jlist *list = items_of(r, self);
    if (list->count == 0) {
        return MO_JV_UNDEFINED;
    }
    mo_jv best = list->items[0], best_key = key_of(r, best, a[1], mo_jv_true(a[0]));
    for (uint32_t i = 1; i < list->count; i++) {
        const mo_jv key = key_of(r, list->items[i], a[1], mo_jv_true(a[0]));
        if (mo_jv_order(r->w, key, best_key, wanted < 0 ? "<" : ">") == wanted) {
            best = list->items[i];
            best_key = key;
        }
    }
    return best;
}

static mo_jv f_min(MO_JPARAMETERS)
{
    return extreme(r, self, a, -1);
}

static mo_jv f_max(MO_JPARAMETERS)
{
    return extreme(r, self, a, 1);
}

static mo_jv f_sum(MO_JPARAMETERS) /* attribute? start? */
{
    const mo_jlist *list = items_of(r, self);
    mo_jv total = mo_jv_is_absent(a[1]) ? mo_jv_int(0) : a[1];
    for (uint32_t i = 0; i < list->count; i++) {
        const mo_jv item = given(a[0]) ? mo_access_path(r, list->items[i], a[0]) : list->items[i];
        total = mo_operate(r, MO_JOP_ADD, total, item);
    }
    return total;
}

static mo_jv f_join(MO_JPARAMETERS) /* d? attribute? */
{
    const mo_jstring separator = mo_jv_is_absent(a[0]) ? mo_jstring_literal(r->w, "") : mo_jv_str(r->w, a[0]);
    mo_jlist *list = items_of(r, self);
    if (given(a[1])) {
        mo_jlist *values = new_list(r, MO_SHAPE_LIST);
        for (uint32_t i = 0; i < list->count; i++) {
            mo_jlist_add(r->w, values, mo_access_path(r, list->items[i], a[1]));
        }
        list = values;
    }
    return mo_jv_string(mo_text_join(r->w, separator, list));
}

static mo_jv f_batch(MO_JPARAMETERS) /* linecount fill_with? */
{
    const mo_jlist *from = items_of(r, self);
    const int64_t size = mo_jv_integer(r->w, a[0], "batch's size");
    mo_jlist *batches = new_list(r, MO_SHAPE_GENERATOR), *now = NULL;
    for (uint32_t i = 0; i < from->count; i++) {
        if (!now || now->count >= size) {
            now = new_list(r, MO_SHAPE_LIST);
            mo_jlist_add(r->w, batches, mo_jv_list(now));
        }
        mo_jlist_add(r->w, now, from->items[i]);
    }
    while (now && given(a[1]) && now->count < size) {
        mo_jlist_add(r->w, now, a[1]);
    }
    return mo_jv_list(batches);
}

static mo_jv f_slice(MO_JPARAMETERS) /* slices fill_with? */
{
    const mo_jlist *from = items_of(r, self);
    const int64_t slices = mo_jv_integer(r->w, a[0], "slice's count");
    mo_jlist *list = new_list(r, MO_SHAPE_GENERATOR);
    int64_t at = 0;
    for (int64_t i = 0; i < slices; i++) {
        const int64_t per = from->count / slices, more = from->count % slices;
        mo_jlist *part = new_list(r, MO_SHAPE_LIST);
        for (int64_t k = 0; k < per + (i < more); k++) {
            mo_jlist_add(r->w, part, from->items[at++]);
        }
        if (given(a[1]) && i >= more && more > 0) {
            mo_jlist_add(r->w, part, a[1]);
        }
        mo_jlist_add(r->w, list, mo_jv_list(part));
    }
    return mo_jv_list(list);
}

static mo_jv f_groupby(MO_JPARAMETERS) /* attribute default? case_sensitive? */
{
    mo_jlist *sorted = copy_of(r, self), *groups = new_list(r, MO_SHAPE_LIST), *now = NULL;
    mo_jv last = {.kind = MO_J_ABSENT};
    const bool exact = mo_jv_true(a[2]);
    sort_list(r, sorted, a[0], exact, false);
    for (uint32_t i = 0; i < sorted->count; i++) {
        const mo_jv key = key_of(r, sorted->items[i], a[0], exact);
        if (!now || !mo_jv_equal(r->w, key, last)) {
            now = new_list(r, MO_SHAPE_LIST);
            const mo_jv shown = mo_access_path(r, sorted->items[i], a[0]);
            mo_jlist_add(r->w, groups, mo_jlist_pair(r->w, shown, mo_jv_list(now)));
            last = key;
        }
        mo_jlist_add(r->w, now, sorted->items[i]);
    }
    return mo_jv_list(groups);
}

/* ---- Filters that apply another filter or a test ---- */

static mo_jv f_map(MO_JPARAMETERS)
{
    const mo_jlist *from = items_or_none(r, self);
    mo_jlist *list = new_list(r, MO_SHAPE_GENERATOR);
    const mo_jv *attribute = all->names ? mo_jdict_find(all->names, "attribute") : NULL;
    const mo_jv *otherwise = all->names ? mo_jdict_find(all->names, "default") : NULL;
    if (!attribute && all->count == 0) {
        mo_work_fail(r->w, MO_EINVAL, "map requires a filter argument");
    }
    for (uint32_t i = 0; i < from->count; i++) {
        mo_jv v;
        if (attribute) {
            v = mo_access_path(r, from->items[i], *attribute);
            v = v.kind == MO_J_UNDEFINED && otherwise ? *otherwise : v;
        } else {
            const mo_jargs rest = mo_args_from(all, 1);
            v = mo_call_filter(r, mo_jv_need_string(r->w, all->places[0], "map's filter"), from->items[i],
                               &rest);
        }
        mo_jlist_add(r->w, list, v);
    }
    return mo_jv_list(list);
}

/* Selects the items for which the test (default: truth) of the item or its attribute gives `wanted`. */
static mo_jv choose(mo_jrun *r, mo_jv self, const mo_jargs *all, bool by_attribute, bool wanted)
{
    const mo_jlist *from = items_or_none(r, self);
    mo_jlist *list = new_list(r, MO_SHAPE_GENERATOR);
    if (by_attribute && all->count == 0) {
        mo_work_fail(r->w, MO_EINVAL, "missing attribute name");
    }
    const mo_jargs args = mo_args_from(all, by_attribute);
    const mo_jargs rest = mo_args_from(&args, 1);
    for (uint32_t i = 0; i < from->count; i++) {
        const mo_jv v = by_attribute ? mo_access_path(r, from->items[i], all->places[0]) : from->items[i];
        const bool kept =
            args.count ? mo_call_test(r, mo_jv_need_string(r->w, args.places[0], "a test's name"), v, &rest)
                       : mo_jv_true(v);
        if (kept == wanted) {
            mo_jlist_add(r->w, list, from->items[i]);
        }
    }
    return mo_jv_list(list);
}

static mo_jv f_select(MO_JPARAMETERS)
{
    return choose(r, self, all, false, true);
}

static mo_jv f_reject(MO_JPARAMETERS)
{
    return choose(r, self, all, false, false);
}

static mo_jv f_selectattr(MO_JPARAMETERS)
{
    return choose(r, self, all, true, true);
}

static mo_jv f_rejectattr(MO_JPARAMETERS)
{
    return choose(r, self, all, true, false);
}

const mo_jfunction mo_filters_sequence[] = {
    {"length", "", f_length},
    {"count", "", f_length},
    {"list", "", f_list},
    {"first", "", f_first},
    {"last", "", f_last},
    {"reverse", "", f_reverse},
    {"sort", "reverse? case_sensitive? attribute?", f_sort},
    {"items", "", f_items},
    {"dictsort", "case_sensitive? by? reverse?", f_dictsort},
    {"unique", "case_sensitive? attribute?", f_unique},
    {"min", "case_sensitive? attribute?", f_min},
    {"max", "case_sensitive? attribute?", f_max},
    {"sum", "attribute? start?", f_sum},
    {"join", "d? attribute?", f_join},
    {"batch", "linecount fill_with?", f_batch},
    {"slice", "slices fill_with?", f_slice},
    {"groupby", "attribute default? case_sensitive?", f_groupby},
    {"map", NULL, f_map},
    {"select", NULL, f_select},
    {"reject", NULL, f_reject},
    {"selectattr", NULL, f_selectattr},
    {"rejectattr", NULL, f_rejectattr},
    {NULL, NULL, NULL},
};
