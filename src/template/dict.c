/* The dicts of value.h. */
#include "base/hash.h"
#include "template/value.h"

enum { FEW = 8 }; /* dicts up to this size are searched linearly */

mo_jdict *mo_jdict_new(mo_work *w, size_t capacity)
{
    mo_jdict *dict = mo_work_alloc(w, sizeof *dict);
    if (capacity > INT32_MAX / 4) {
        mo_work_fail(w, MO_ENOSPC, "a dict of the template has more than %d entries", INT32_MAX / 4);
    }
    dict->entries = capacity ? mo_work_array(w, capacity, sizeof *dict->entries) : NULL;
    dict->capacity = (uint32_t)capacity;
    return dict;
}

static uint64_t hash_bytes(const char *data, size_t length)
{
    const uint64_t hash = mo_hash(MO_HASH_SEED, data, length);
    return hash ^ hash >> 32;
}

/* Equal keys have equal hashes: 1, 1.0 and True are the same key. */
static uint64_t hash_of(mo_work *w, mo_jv key)
{
    switch (key.kind) {
    case MO_J_STRING:
    case MO_J_BIG: return mo_jstring_hash(w, key.as.string);
    case MO_J_BOOL:
    case MO_J_INT:
    case MO_J_FLOAT: {
        const double number = mo_jv_number(key) + 0.0; /* -0 is 0 */
        return hash_bytes((const char *)&number, sizeof number);
    }
    case MO_J_LIST: {
        if (key.as.list->shape != MO_SHAPE_TUPLE) {
            break;
        }
        uint64_t hash = key.as.list->count;
        mo_work_down(w);
        for (uint32_t i = 0; i < key.as.list->count; i++) {
            mo_work_spend(w, 1);
            hash = hash * 31 + hash_of(w, key.as.list->items[i]);
        }
        mo_work_up(w);
        return hash;
    }
    case MO_J_UNDEFINED: mo_jv_fail_undefined(w, key);
    case MO_J_DICT:
    case MO_J_NAMESPACE: break;
    default: return (uint64_t)key.kind; /* none, and unused kinds */
    }
    mo_work_fail(w, MO_EINVAL, "unhashable type: '%s'", mo_jv_type(key));
}

/* The entry of the key. -1: not found. */
static int64_t find(mo_work *w, const mo_jdict *d, mo_jv key, uint64_t hash)
{
    if (!d->index) {
        for (uint32_t i = 0; i < d->count; i++) {
            if (d->entries[i].hash == hash && mo_jv_equal(w, d->entries[i].key, key)) {
                return i;
            }
        }
        return -1;
    }
    for (uint32_t slot = (uint32_t)hash & (d->slots - 1);; slot = (slot + 1) & (d->slots - 1)) {
        const uint32_t i = d->index[slot];
        if (i == 0) {
            return -1;
        }
        if (d->entries[i - 1].hash == hash && mo_jv_equal(w, d->entries[i - 1].key, key)) {
            return (int64_t)i - 1;
        }
        mo_work_spend(w, 1);
    }
}

static void enter(mo_jdict *d, uint32_t entry)
{
    uint32_t slot = (uint32_t)d->entries[entry].hash & (d->slots - 1);
    while (d->index[slot]) {
        slot = (slot + 1) & (d->slots - 1);
    }
    d->index[slot] = entry + 1;
}

static void build_index(mo_work *w, mo_jdict *d)
{
    if (d->count <= FEW) {
        d->index = NULL;
        return;
    }
    if (!d->index || 2 * d->count > d->slots) {
        d->slots = 32;
        while (d->slots < 4 * d->count) {
            d->slots *= 2;
        }
        d->index = mo_work_array(w, d->slots, sizeof *d->index);
    } else {
        memset(d->index, 0, d->slots * sizeof *d->index);
    }
    for (uint32_t i = 0; i < d->count; i++) {
        enter(d, i);
    }
}

mo_jv *mo_jdict_get(mo_work *w, const mo_jdict *d, mo_jv key)
{
    const int64_t at = find(w, d, key, hash_of(w, key));
    return at < 0 ? NULL : &d->entries[at].value;
}

static mo_jv *find_bytes(const mo_jdict *d, const char *key, size_t length, uint64_t hash)
{
    uint32_t slot = d->index ? (uint32_t)hash & (d->slots - 1) : 0;
    for (;;) {
        const uint32_t i = d->index ? d->index[slot] : slot + 1;
        if (i == 0 || (!d->index && i > d->count)) {
            return NULL;
        }
        mo_jentry *e = &d->entries[i - 1];
        if (e->hash == hash && e->key.kind == MO_J_STRING && e->key.as.string.length == length &&
            memcmp(mo_jstring_data(e->key.as.string), key, length) == 0) {
            return &e->value;
        }
        slot = d->index ? (slot + 1) & (d->slots - 1) : slot + 1;
    }
}

mo_jv *mo_jdict_find(const mo_jdict *d, const char *key)
{
    const size_t length = strlen(key);
    return find_bytes(d, key, length, hash_bytes(key, length));
}

mo_jv *mo_jdict_find_string(mo_work *w, const mo_jdict *d, mo_jstring key)
{
    mo_work_spend(w, key.length / 64);
    return find_bytes(d, mo_jstring_data(key), key.length, mo_jstring_hash(w, key));
}

void mo_jdict_set(mo_work *w, mo_jdict *d, mo_jv key, mo_jv value)
{
    const uint64_t hash = hash_of(w, key);
    const int64_t at = find(w, d, key, hash);
    mo_work_spend(w, 1);
    if (at >= 0) {
        d->entries[at].value = value;
        return;
    }
    if (d->count >= d->capacity) {
        const size_t capacity = 2 * (size_t)d->count + 4;
        if (capacity > INT32_MAX / 4) {
            mo_work_fail(w, MO_ENOSPC, "a dict of the template has more than %d entries", INT32_MAX / 4);
        }
        d->entries = mo_work_larger(w, d->entries, d->count, capacity, sizeof *d->entries);
        d->capacity = (uint32_t)capacity;
    }
    d->entries[d->count++] = (mo_jentry){key, value, hash};
    if (d->index && 2 * d->count <= d->slots) {
        enter(d, d->count - 1);
    } else {
        build_index(w, d);
    }
}

void mo_jdict_set_text(mo_work *w, mo_jdict *d, const char *key, mo_jv value)
{
    mo_jdict_set(w, d, mo_jv_text(w, key), value);
}

bool mo_jdict_remove(mo_work *w, mo_jdict *d, mo_jv key)
{
    const int64_t at = find(w, d, key, hash_of(w, key));
    if (at < 0) {
        return false;
    }
    mo_work_spend(w, 1 + d->count / 8);
    memmove(d->entries + at, d->entries + at + 1, (d->count - (size_t)at - 1) * sizeof *d->entries);
    d->count--;
    build_index(w, d);
    return true;
}

mo_jdict *mo_jdict_copy(mo_work *w, const mo_jdict *d)
{
    mo_jdict *copy = mo_jdict_new(w, d->count);
    for (uint32_t i = 0; i < d->count; i++) {
        mo_jdict_set(w, copy, d->entries[i].key, d->entries[i].value);
    }
    return copy;
}
