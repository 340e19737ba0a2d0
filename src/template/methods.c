/* Methods of lists, dicts and loops. Lists and dicts may change: a template works on its own copy. */
#include "template/run.h"

/* ---- Lists ---- */

static mo_jv m_append(MO_JPARAMETERS)
{
    mo_jlist_add(r->w, self.as.list, a[0]);
    return MO_JV_NONE;
}

static mo_jv m_extend(MO_JPARAMETERS)
{
    const mo_jlist *more = mo_jv_iterate(r->w, a[0]);
    const uint32_t count = more->count; /* `more` may be the list itself */
    for (uint32_t i = 0; i < count; i++) {
        mo_jlist_add(r->w, self.as.list, more->items[i]);
    }
    return MO_JV_NONE;
}

static mo_jv m_insert(MO_JPARAMETERS)
{
    mo_jlist *list = self.as.list;
    int64_t at = mo_jv_integer(r->w, a[0], "insert's index");
    at += at < 0 ? list->count : 0;
    at = at < 0 ? 0 : at > list->count ? list->count : at;
    mo_jlist_own(r->w, list);
    mo_jlist_add(r->w, list, a[1]);
    memmove(list->items + at + 1, list->items + at, (list->count - 1 - (size_t)at) * sizeof *list->items);
    list->items[at] = a[1];
    return MO_JV_NONE;
}

static mo_jv remove_at(mo_jrun *r, mo_jlist *list, int64_t at)
{
    mo_jlist_own(r->w, list);
    const mo_jv v = list->items[at];
    memmove(list->items + at, list->items + at + 1, (list->count - (size_t)at - 1) * sizeof *list->items);
    list->count--;
    return v;
}

static mo_jv m_list_pop(MO_JPARAMETERS)
{
    mo_jlist *list = self.as.list;
    int64_t at = mo_jv_is_absent(a[0]) ? -1 : mo_jv_integer(r->w, a[0], "pop's index");
    at += at < 0 ? list->count : 0;
    if (at < 0 || at >= list->count) {
        mo_work_fail(r->w, MO_EINVAL, "pop index out of range");
    }
    return remove_at(r, list, at);
}

static int64_t index_of(mo_jrun *r, const mo_jlist *list, mo_jv v)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (mo_jv_equal(r->w, list->items[i], v)) {
            return i;
        }
    }
    return -1;
}

static mo_jv m_remove(MO_JPARAMETERS)
{
    const int64_t at = index_of(r, self.as.list, a[0]);
    if (at < 0) {
        mo_work_fail(r->w, MO_EINVAL, "list.remove(x): x not in list");
    }
    remove_at(r, self.as.list, at);
    return MO_JV_NONE;
}

static mo_jv m_index(MO_JPARAMETERS)
{
    const int64_t at = index_of(r, self.as.list, a[0]);
    if (at < 0) {
        mo_work_fail(r->w, MO_EINVAL, "the value is not in list");
    }
    return mo_jv_int(at);
}

static mo_jv m_list_count(MO_JPARAMETERS)
{
    int64_t count = 0;
    for (uint32_t i = 0; i < self.as.list->count; i++) {
        count += mo_jv_equal(r->w, self.as.list->items[i], a[0]);
    }
    return mo_jv_int(count);
}

static mo_jv m_reverse(MO_JPARAMETERS)
{
    mo_jlist *list = self.as.list;
    mo_jlist_own(r->w, list);
    for (uint32_t i = 0; i < list->count / 2; i++) {
        const mo_jv v = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = v;
    }
    return MO_JV_NONE;
}

static mo_jv m_sort(MO_JPARAMETERS)
{
    mo_jlist_sort(r->w, self.as.list, self.as.list->items, mo_jv_true(a[1]));
    return MO_JV_NONE;
}

static mo_jv m_list_clear(MO_JPARAMETERS)
{
    self.as.list->count = 0;
    self.as.list->capacity = 0; /* another list may share the items */
    return MO_JV_NONE;
}

static mo_jv m_list_copy(MO_JPARAMETERS)
{
    return mo_jv_list(mo_jlist_part(r->w, self.as.list, 0, self.as.list->count));
}

const mo_jfunction mo_methods_list[] = {
    {"append", "object", m_append},   {"extend", "iterable", m_extend}, {"insert", "index object", m_insert},
    {"pop", "index?", m_list_pop},    {"remove", "value", m_remove},    {"index", "value", m_index},
    {"count", "value", m_list_count}, {"reverse", "", m_reverse},       {"sort", "key? reverse?", m_sort},
    {"clear", "", m_list_clear},      {"copy", "", m_list_copy},        {NULL, NULL, NULL},
};

const mo_jfunction mo_methods_tuple[] = {
    {"index", "value", m_index},
    {"count", "value", m_list_count},
    {NULL, NULL, NULL},
};

/* ---- Dicts ---- */

static mo_jv m_get(MO_JPARAMETERS)
{
    const mo_jv *v = a[0].kind == MO_J_UNDEFINED ? NULL : mo_jdict_get(r->w, self.as.dict, a[0]);
    return v ? *v : mo_jv_is_absent(a[1]) ? MO_JV_NONE : a[1];
}

static mo_jv view(mo_jrun *r, const mo_jdict *dict, mo_jshape shape)
{
    mo_jlist *list = mo_jlist_new(r->w, shape, dict->count);
    for (uint32_t i = 0; i < dict->count; i++) {
        const mo_jentry *e = &dict->entries[i];
        mo_jlist_add(r->w, list,
                     shape == MO_SHAPE_KEYS     ? e->key
                     : shape == MO_SHAPE_VALUES ? e->value
                                                : mo_jlist_pair(r->w, e->key, e->value));
    }
    return mo_jv_list(list);
}

static mo_jv m_keys(MO_JPARAMETERS)
{
    return view(r, self.as.dict, MO_SHAPE_KEYS);
}

static mo_jv m_values(MO_JPARAMETERS)
{
    return view(r, self.as.dict, MO_SHAPE_VALUES);
}

static mo_jv m_items(MO_JPARAMETERS)
{
    return view(r, self.as.dict, MO_SHAPE_ITEMS);
}

static mo_jv m_dict_pop(MO_JPARAMETERS)
{
    const mo_jv *found = mo_jdict_get(r->w, self.as.dict, a[0]);
    if (!found && mo_jv_is_absent(a[1])) {
        mo_work_fail(r->w, MO_EINVAL, "pop: the dict has no such key");
    }
    const mo_jv v = found ? *found : a[1];
    if (found) {
        mo_jdict_remove(r->w, self.as.dict, a[0]);
    }
    return v;
}

static mo_jv m_setdefault(MO_JPARAMETERS)
{
    const mo_jv *found = mo_jdict_get(r->w, self.as.dict, a[0]);
    if (found) {
        return *found;
    }
    const mo_jv v = mo_jv_is_absent(a[1]) ? MO_JV_NONE : a[1];
    mo_jdict_set(r->w, self.as.dict, a[0], v);
    return v;
}

static void add_all(mo_jrun *r, mo_jdict *to, const mo_jdict *from)
{
    const uint32_t count = from->count;
    for (uint32_t i = 0; i < count; i++) {
        mo_jdict_set(r->w, to, from->entries[i].key, from->entries[i].value);
    }
}

static mo_jv m_update(MO_JPARAMETERS)
{
    if (all->count > 0 && all->places[0].kind != MO_J_DICT) {
        mo_work_fail(r->w, MO_EINVAL, "update needs a dict, not '%s'", mo_jv_type(all->places[0]));
    }
    if (all->count > 0) {
        add_all(r, self.as.dict, all->places[0].as.dict);
    }
    if (all->names) {
        add_all(r, self.as.dict, all->names);
    }
    return MO_JV_NONE;
}

static mo_jv m_dict_copy(MO_JPARAMETERS)
{
    return mo_jv_dict(mo_jdict_copy(r->w, self.as.dict));
}

static mo_jv m_dict_clear(MO_JPARAMETERS)
{
    *self.as.dict = (mo_jdict){0};
    return MO_JV_NONE;
}

const mo_jfunction mo_methods_dict[] = {
    {"get", "key default?", m_get},
    {"keys", "", m_keys},
    {"values", "", m_values},
    {"items", "", m_items},
    {"pop", "key default?", m_dict_pop},
    {"setdefault", "key default?", m_setdefault},
    {"update", NULL, m_update},
    {"copy", "", m_dict_copy},
    {"clear", "", m_dict_clear},
    {NULL, NULL, NULL},
};

/* ---- Loops ---- */

static mo_jv m_cycle(MO_JPARAMETERS)
{
    if (all->count == 0) {
        mo_work_fail(r->w, MO_EINVAL, "no items for cycling given");
    }
    return all->places[self.as.loop->at % all->count];
}

static mo_jv m_changed(MO_JPARAMETERS)
{
    mo_jlist *now = mo_jlist_new(r->w, MO_SHAPE_TUPLE, all->count);
    for (uint32_t i = 0; i < all->count; i++) {
        mo_jlist_add(r->w, now, all->places[i]);
    }
    const bool changed = !mo_jv_equal(r->w, self.as.loop->changed, mo_jv_list(now));
    self.as.loop->changed = mo_jv_list(now);
    return mo_jv_bool(changed);
}

const mo_jfunction mo_methods_loop[] = {
    {"cycle", NULL, m_cycle},
    {"changed", NULL, m_changed},
    {NULL, NULL, NULL},
};
