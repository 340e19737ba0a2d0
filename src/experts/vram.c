#include "experts/vram.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "experts/slots.h"

/* Experts of one size. */
typedef struct size_class {
    int64_t slot_bytes;
    int32_t experts, count; /* experts in the model; slots */
    mo_slots *slots;
    mo_daddr memory;
} size_class;

typedef struct layer_map {
    int of;        /* size class; -1: no experts */
    int32_t first; /* index of its expert 0 in the class */
    int experts;
    int missing;   /* experts not on the device, by the mirror */
    int64_t entry; /* index of its expert 0 in the map */
} layer_map;

/* Staging memory of a switch: the mirror may change again while the copy waits in its stream. In a step a
 * layer's switch is enqueued when those before the layer have ended, so the oldest stage is free without
 * waiting. */
enum { MAP_STAGES = 4 };
typedef struct map_stage {
    mo_daddr *words; /* [entries] pinned */
    mo_event *sent;
    bool used;
} map_stage;

struct mo_vram {
    mo_device *device;
    size_class classes[MO_VRAM_CLASSES]; /* classes without experts have no slots */
    layer_map *layers;
    int layer_count;
    bool static_set;   /* each layer has its own slots: an expert is evicted only for one of its layer */
    uint64_t closures; /* how often a layer became complete or incomplete */
    int64_t entries;
    mo_daddr map;     /* mo_daddr[entries] on the device */
    mo_daddr *mirror; /* contents of the map, after the next switch */
    map_stage stages[MAP_STAGES];
    uint64_t switches; /* number of switches that sent something */
    int64_t *changed;  /* [entries] entries to send, each once */
    uint8_t *marked;   /* [entries] */
    uint8_t *stays;    /* [entries] not evicted once it has arrived */
    int32_t staying[MO_VRAM_CLASSES];
    int64_t changes;
};

int64_t mo_vram_slot_bytes(int64_t expert_bytes)
{
    return (expert_bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
}

/* ---- Opening ---- */

static mo_status sort_layers(mo_vram *v, const mo_vram_layer *layers, mo_error *err)
{
    v->layers = calloc((size_t)v->layer_count + 1, sizeof *v->layers);
    if (!v->layers) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the map of the device's experts");
    }
    for (int i = 0; i < v->layer_count; i++) {
        layer_map *l = &v->layers[i];
        l->of = -1;
        if (layers[i].bytes > 0) {
            size_class *c = &v->classes[layers[i].size_class];
            const int64_t bytes = mo_vram_slot_bytes(layers[i].bytes);
            l->of = layers[i].size_class;
            l->first = c->experts;
            l->experts = l->missing = layers[i].experts;
            l->entry = v->entries;
            c->slot_bytes = bytes > c->slot_bytes ? bytes : c->slot_bytes;
            c->experts += layers[i].experts;
            v->entries += layers[i].experts;
        }
    }
    return MO_OK;
}

/* Adds up the slots that the layers request. */
static void sum_slots(mo_vram *v, const mo_vram_layer *layers)
{
    for (int i = 0; i < v->layer_count; i++) {
        if (v->layers[i].of >= 0) {
            size_class *c = &v->classes[v->layers[i].of];
            const int32_t left = c->experts - c->count;
            c->count += layers[i].slots < left ? layers[i].slots : left;
        }
    }
}

static mo_status open_class(mo_vram *v, const layer_map *layers, size_class *c, const mo_policy *policy,
                            mo_error *err)
{
    mo_status status = mo_slots_create(policy, c->experts, c->count, &c->slots, err);
    for (int i = 0; i < v->layer_count && status == MO_OK; i++) {
        for (int e = 0; layers[i].of >= 0 && &v->classes[layers[i].of] == c && e < layers[i].experts; e++) {
            mo_slots_place(c->slots, layers[i].first + e, i);
        }
    }
    if (status == MO_OK && c->count > 0) {
        status = mo_device_alloc(v->device, (size_t)(c->count * c->slot_bytes), &c->memory, err);
    }
    return status;
}

static mo_status open_map(mo_vram *v, mo_error *err)
{
    const size_t bytes = (size_t)(v->entries + 1) * sizeof(mo_daddr);
    mo_status status = mo_device_alloc(v->device, bytes, &v->map, err);
    for (int i = 0; i < MAP_STAGES && status == MO_OK; i++) {
        void *words = NULL;
        mo_daddr seen;
        status = mo_device_pin(v->device, bytes, &words, &seen, err);
        v->stages[i].words = words;
        if (status == MO_OK) {
            status = mo_event_create(v->device, &v->stages[i].sent, err);
        }
    }
    v->mirror = calloc((size_t)v->entries + 1, sizeof *v->mirror);
    v->changed = calloc((size_t)v->entries + 1, sizeof *v->changed);
    v->marked = calloc((size_t)v->entries + 1, 1);
    v->stays = calloc((size_t)v->entries + 1, 1);
    if (status != MO_OK) {
        return status;
    }
    if (!v->mirror || !v->changed || !v->marked || !v->stays) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the map of the device's experts");
    }
    for (int64_t i = 0; i < v->entries; i++) { /* the first switch sends all of it */
        v->changed[v->changes++] = i;
        v->marked[i] = 1;
    }
    return MO_OK;
}

mo_status mo_vram_open(mo_device *device, const mo_vram_layer *layers, int layer_count,
                       const int32_t *class_slots, const mo_policy *policy, mo_vram **out, mo_error *err)
{
    *out = NULL;
    mo_vram *v = calloc(1, sizeof *v);
    if (!v) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the map of the device's experts");
    }
    v->device = device;
    v->layer_count = layer_count;
    mo_status status = sort_layers(v, layers, err);
    if (status == MO_OK) {
        v->static_set = class_slots == NULL;
        if (v->static_set) {
            sum_slots(v, layers);
        }
        for (int i = 0; class_slots && i < MO_VRAM_CLASSES; i++) {
            size_class *c = &v->classes[i];
            c->count = class_slots[i] < c->experts ? class_slots[i] : c->experts;
        }
        status = open_map(v, err);
    }
    for (int i = 0; i < MO_VRAM_CLASSES && status == MO_OK; i++) {
        if (v->classes[i].experts > 0) {
            status = open_class(v, v->layers, &v->classes[i], policy ? policy : mo_policy_at(0), err);
        }
    }
    if (status != MO_OK) {
        mo_vram_close(v);
        return status;
    }
    *out = v;
    return MO_OK;
}

void mo_vram_close(mo_vram *v)
{
    if (!v) {
        return;
    }
    for (int i = 0; i < MO_VRAM_CLASSES; i++) {
        mo_slots_destroy(v->classes[i].slots);
        mo_device_free(v->device, v->classes[i].memory);
    }
    mo_device_free(v->device, v->map);
    for (int i = 0; i < MAP_STAGES; i++) {
        if (v->stages[i].words) {
            mo_device_unpin(v->device, v->stages[i].words);
        }
        mo_event_destroy(v->stages[i].sent);
    }
    free(v->mirror);
    free(v->stays);
    free(v->layers);
    free(v->changed);
    free(v->marked);
    free(v);
}

/* ---- Experts ---- */

static const layer_map *layer_at(const mo_vram *v, int layer, int expert)
{
    (void)expert; /* unused in a build without assertions */
    assert(layer >= 0 && layer < v->layer_count && expert >= 0 && expert < v->layers[layer].experts);
    return &v->layers[layer];
}

mo_daddr mo_vram_find(const mo_vram *v, int layer, int expert)
{
    return v->mirror[layer_at(v, layer, expert)->entry + expert];
}

bool mo_vram_placed(const mo_vram *v, int layer, int expert)
{
    const layer_map *l = layer_at(v, layer, expert);
    const size_class *c = l->of >= 0 ? &v->classes[l->of] : NULL;
    return c && c->count > 0 && mo_slots_find(c->slots, l->first + expert) >= 0;
}

double mo_vram_chance(const mo_vram *v, int layer, int expert)
{
    const layer_map *l = layer_at(v, layer, expert);
    return mo_slots_chance(v->classes[l->of].slots, l->first + expert);
}

bool mo_vram_complete(const mo_vram *v, int layer)
{
    const layer_map *l = &v->layers[layer];
    return l->of < 0 ||
           (l->missing == 0 && (v->static_set || v->classes[l->of].count == v->classes[l->of].experts));
}

uint64_t mo_vram_completions(const mo_vram *v)
{
    return v->closures;
}

bool mo_vram_admits(const mo_vram *v)
{
    return !v->static_set;
}

bool mo_vram_has(const mo_vram *v, int layer)
{
    const layer_map *l = &v->layers[layer];
    return l->of >= 0 && v->classes[l->of].count > 0;
}

mo_daddr mo_vram_table(const mo_vram *v, int layer)
{
    return !mo_vram_has(v, layer) ? 0 : v->map + (mo_daddr)v->layers[layer].entry * sizeof(mo_daddr);
}

void mo_vram_touch(mo_vram *v, int layer, int expert, uint64_t now, uint32_t picks)
{
    const layer_map *l = layer_at(v, layer, expert);
    mo_slots_touch(v->classes[l->of].slots, l->first + expert, now, picks);
}

void mo_vram_seed(mo_vram *v, int layer, int expert, uint64_t hits, uint64_t most)
{
    const layer_map *l = layer_at(v, layer, expert);
    mo_slots_seed(v->classes[l->of].slots, l->first + expert, hits, most);
}

void mo_vram_stay(mo_vram *v, int layer, int expert)
{
    const layer_map *l = layer_at(v, layer, expert);
    const size_class *c = &v->classes[l->of];
    uint8_t *stays = &v->stays[l->entry + expert];
    if (v->static_set || *stays || v->staying[l->of] >= c->count / 4) {
        return;
    }
    *stays = 1;
    v->staying[l->of]++;
    if (v->mirror[l->entry + expert]) {
        mo_slots_keep(c->slots, l->first + expert, true);
    }
}

static void set_entry(mo_vram *v, int layer, int expert, mo_daddr address)
{
    const int64_t entry = layer_at(v, layer, expert)->entry + expert;
    const bool closed = mo_vram_complete(v, layer);
    v->layers[layer].missing += (v->mirror[entry] != 0) - (address != 0);
    v->mirror[entry] = address;
    v->closures += mo_vram_complete(v, layer) != closed;
    if (!v->marked[entry]) {
        v->marked[entry] = 1;
        v->changed[v->changes++] = entry;
    }
}

/* Clears the entry of an evicted expert, given its class and its index there. */
static void clear_entry(mo_vram *v, int of, int32_t expert_id)
{
    for (int i = 0; i < v->layer_count; i++) {
        const layer_map *l = &v->layers[i];
        if (l->of == of && expert_id >= l->first && expert_id < l->first + l->experts) {
            set_entry(v, i, expert_id - l->first, 0);
            return;
        }
    }
}

mo_daddr mo_vram_acquire(mo_vram *v, int layer, int expert)
{
    const layer_map *l = layer_at(v, layer, expert);
    size_class *c = &v->classes[l->of];
    int32_t evicted = -1;
    const bool fresh = c->count > 0 && mo_slots_find(c->slots, l->first + expert) < 0;
    const int32_t slot = fresh ? mo_slots_acquire(c->slots, l->first + expert, &evicted) : -1;
    if (slot < 0) {
        return 0;
    }
    if (evicted >= 0) {
        clear_entry(v, l->of, evicted);
    }
    return c->memory + (mo_daddr)(slot * c->slot_bytes);
}

mo_daddr mo_vram_acquire_free(mo_vram *v, int layer, int expert)
{
    const layer_map *l = layer_at(v, layer, expert);
    const size_class *c = &v->classes[l->of];
    return c->count > 0 && mo_slots_free(c->slots) > 0 ? mo_vram_acquire(v, layer, expert) : 0;
}

void mo_vram_landed(mo_vram *v, int layer, int expert)
{
    const layer_map *l = layer_at(v, layer, expert);
    size_class *c = &v->classes[l->of];
    const int32_t slot = mo_slots_find(c->slots, l->first + expert);
    mo_slots_unpin(c->slots, l->first + expert);
    if (v->stays[l->entry + expert]) {
        mo_slots_keep(c->slots, l->first + expert, true);
    }
    set_entry(v, layer, expert, c->memory + (mo_daddr)(slot * c->slot_bytes));
}

void mo_vram_drop(mo_vram *v, int layer, int expert)
{
    const layer_map *l = layer_at(v, layer, expert);
    mo_slots_drop(v->classes[l->of].slots, l->first + expert);
    set_entry(v, layer, expert, 0);
}

void mo_vram_pin(mo_vram *v, int layer, int expert)
{
    const layer_map *l = layer_at(v, layer, expert);
    mo_slots_pin(v->classes[l->of].slots, l->first + expert);
}

void mo_vram_unpin(mo_vram *v, int layer, int expert)
{
    const layer_map *l = layer_at(v, layer, expert);
    mo_slots_unpin(v->classes[l->of].slots, l->first + expert);
}

/* ---- The map ---- */

/* More changes than this are sent as a copy of the whole map. */
enum { SINGLE_CHANGES = 8 };

static mo_status send_changes(const mo_vram *v, const map_stage *s, mo_dstream *stream, mo_error *err)
{
    mo_status status = MO_OK;
    if (v->changes > SINGLE_CHANGES) {
        memcpy(s->words, v->mirror, (size_t)v->entries * sizeof *s->words);
        return mo_copy_in(stream, v->map, s->words, (size_t)v->entries * sizeof *s->words, err);
    }
    for (int64_t i = 0; i < v->changes && status == MO_OK; i++) {
        const int64_t e = v->changed[i];
        s->words[i] = v->mirror[e];
        status =
            mo_copy_in(stream, v->map + (mo_daddr)e * sizeof(mo_daddr), &s->words[i], sizeof(mo_daddr), err);
    }
    return status;
}

mo_status mo_vram_switch(mo_vram *v, mo_dstream *stream, mo_error *err)
{
    if (v->changes == 0) {
        return MO_OK;
    }
    map_stage *s = &v->stages[v->switches++ % MAP_STAGES];
    mo_status status = s->used ? mo_event_wait(s->sent, err) : MO_OK;
    if (status == MO_OK) {
        s->used = false;
        status = send_changes(v, s, stream, err);
        const mo_status recorded = mo_event_record(s->sent, stream, err); /* a part may have been sent */
        s->used = recorded == MO_OK;
        status = status == MO_OK ? recorded : status;
    }
    if (status != MO_OK) { /* the next call sends all of them again */
        return status;
    }
    for (int64_t i = 0; i < v->changes; i++) {
        v->marked[v->changed[i]] = 0;
    }
    v->changes = 0;
    return MO_OK;
}

int mo_vram_sharers(const mo_vram *v, int layer, int end)
{
    int count = 0;
    for (int i = layer; i < end; i++) {
        count += v->layers[i].of == v->layers[layer].of;
    }
    return count;
}

int32_t mo_vram_free(const mo_vram *v, int layer)
{
    const layer_map *l = &v->layers[layer];
    return l->of >= 0 && v->classes[l->of].count > 0 ? mo_slots_free(v->classes[l->of].slots) : 0;
}

bool mo_vram_victim(const mo_vram *v, int layer, int *victim_layer, int *victim_expert)
{
    const int of = v->layers[layer].of;
    const int32_t expert_id =
        of >= 0 && v->classes[of].count > 0 ? mo_slots_victim(v->classes[of].slots) : -1;
    for (int i = 0; i < v->layer_count && expert_id >= 0; i++) {
        const layer_map *l = &v->layers[i];
        if (l->of == of && expert_id >= l->first && expert_id < l->first + l->experts) {
            *victim_layer = i;
            *victim_expert = expert_id - l->first;
            return true;
        }
    }
    return false;
}

void mo_vram_slots(const mo_vram *v, int32_t *slots, int32_t *filled, int64_t *bytes)
{
    *slots = *filled = 0;
    *bytes = 0;
    for (int i = 0; i < MO_VRAM_CLASSES; i++) {
        const size_class *c = &v->classes[i];
        *slots += c->count;
        *filled += c->count - (c->slots ? mo_slots_free(c->slots) : 0);
        *bytes += c->count * c->slot_bytes;
    }
}
