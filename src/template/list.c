/* The lists of value.h. */
#include "template/value.h"

mo_jlist *mo_jlist_new(mo_work *w, mo_jshape shape, size_t capacity)
{
    mo_jlist *list = mo_work_alloc(w, sizeof *list);
    if (capacity > INT32_MAX) {
        mo_work_fail(w, MO_ENOSPC, "a list of the template has more than %d items", INT32_MAX);
    }
    list->items = capacity ? mo_work_array(w, capacity, sizeof *list->items) : NULL;
    list->capacity = (uint32_t)capacity;
    list->shape = shape;
    return list;
}

static void move_items(mo_work *w, mo_jlist *list, size_t capacity)
{
    if (capacity > INT32_MAX) {
        mo_work_fail(w, MO_ENOSPC, "a list of the template has more than %d items", INT32_MAX);
    }
    list->items = mo_work_larger(w, list->items, list->count, capacity, sizeof *list->items);
    list->capacity = (uint32_t)capacity;
}

void mo_jlist_add(mo_work *w, mo_jlist *list, mo_jv v)
{
    mo_work_spend(w, 1);
    if (list->count >= list->capacity) {
        move_items(w, list, 2 * (size_t)list->count + 4);
    }
    list->items[list->count++] = v;
}

mo_jv mo_jlist_pair(mo_work *w, mo_jv a, mo_jv b)
{
    mo_jlist *pair = mo_jlist_new(w, MO_SHAPE_TUPLE, 2);
    mo_jlist_add(w, pair, a);
    mo_jlist_add(w, pair, b);
    return mo_jv_list(pair);
}

mo_jlist *mo_jlist_part(mo_work *w, const mo_jlist *list, size_t from, size_t count)
{
    mo_jlist *part = mo_jlist_new(w, list->shape, 0);
    part->items = list->items ? list->items + from : NULL;
    part->count = (uint32_t)count;
    part->capacity = 0; /* the next append copies the items */
    return part;
}

void mo_jlist_own(mo_work *w, mo_jlist *list)
{
    mo_work_spend(w, 1 + list->count / 8);
    move_items(w, list, (size_t)list->count + 4);
}

typedef struct sorted {
    mo_jv key, item;
} sorted;

/* Merges pairs of sorted runs of `width` items from `from` into `to`. */
static void merge(mo_work *w, const sorted *from, sorted *to, size_t count, size_t width, bool reverse)
{
    for (size_t at = 0; at < count; at += 2 * width) {
        const size_t middle = at + width < count ? at + width : count;
        const size_t end = at + 2 * width < count ? at + 2 * width : count;
        for (size_t a = at, b = middle, k = at; k < end; k++) {
            bool second = a == middle;
            if (!second && b < end) { /* equal items keep their order, also with `reverse` */
                const int order = mo_jv_order(w, from[b].key, from[a].key, "<");
                second = reverse ? order > 0 : order < 0;
            }
            to[k] = second ? from[b++] : from[a++];
        }
    }
}

void mo_jlist_sort(mo_work *w, mo_jlist *list, const mo_jv *keys, bool reverse)
{
    const size_t count = list->count;
    sorted *a = mo_work_array(w, count, sizeof *a), *b = mo_work_array(w, count, sizeof *b);
    for (size_t i = 0; i < count; i++) {
        a[i] = (sorted){keys[i], list->items[i]};
    }
    for (size_t width = 1; width < count; width *= 2) {
        merge(w, a, b, count, width, reverse);
        sorted *swap = a;
        a = b;
        b = swap;
    }
    mo_jlist_own(w, list);
    for (size_t i = 0; i < count; i++) {
        list->items[i] = a[i].item;
    }
}
