#include "experts/slots.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "experts/adaptive.h"

enum { NONE = -1 };

/* Maximum touches that a learning policy has not received yet: those of a layer, or a part of a large
 * one's. */
enum { UNTOLD_MOST = 64 };

typedef struct untold {
    int32_t expert_id;
    uint32_t picks;
    uint64_t now;
} untold;

struct mo_slots {
    const mo_policy *policy;
    mo_arena *memory; /* holds everything, including this struct */
    int32_t expert_count, slot_count;
    mo_policy_entry *entry; /* [experts] */
    int32_t *slot_of;       /* [experts], or NONE */
    int32_t *expert_of;     /* [slots], or NONE */
    uint32_t *pins;         /* [slots] */
    bool *kept;             /* [slots] */
    int32_t *vacant;        /* [slots] a stack of free slots */
    int32_t vacant_count;
    int32_t evictable; /* number of resident experts that are neither pinned nor kept */
    /* Touches are queued until an expert is released or requested. A layer's experts are chosen before they
     * are computed, and learning in between would delay that. */
    untold untold[UNTOLD_MOST];
    int untold_count;
    mo_adaptive *adaptive; /* chooses the victim of a learning policy; NULL: the heap does */
    /* The evictable experts in a binary heap with the next victim on top. */
    int32_t *heap;    /* [slots] experts */
    int32_t *heap_at; /* [slots] heap index of the slot's expert */
    bool *listed;     /* [slots] the slot's expert is evictable */
};

/* ---- Heap --------------------------------------------------------------------------------------- */

/* True if a is evicted before b. Never equal for two experts, so the order of evictions is defined. */
static bool before(const mo_slots *s, int32_t a, int32_t b)
{
    const double x = s->entry[a].key, y = s->entry[b].key;
    return x < y || (x == y && a < b);
}

static void put(mo_slots *s, int32_t at, int32_t expert_id)
{
    s->heap[at] = expert_id;
    s->heap_at[s->slot_of[expert_id]] = at;
}

static void rise(mo_slots *s, int32_t at)
{
    const int32_t expert_id = s->heap[at];
    while (at > 0 && before(s, expert_id, s->heap[(at - 1) / 2])) {
        put(s, at, s->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put(s, at, expert_id);
}

static void sink(mo_slots *s, int32_t at)
{
    const int32_t expert_id = s->heap[at];
    for (;;) {
        int64_t child = 2 * (int64_t)at + 1;
        if (child >= s->evictable) {
            break;
        }
        if (child + 1 < s->evictable && before(s, s->heap[child + 1], s->heap[child])) {
            child++;
        }
        if (!before(s, s->heap[child], expert_id)) {
            break;
        }
        put(s, at, s->heap[child]);
        at = (int32_t)child;
    }
    put(s, at, expert_id);
}

/* Moves the expert at this index to where its key belongs. */
static void settle(mo_slots *s, int32_t at)
{
    if (at > 0 && before(s, s->heap[at], s->heap[(at - 1) / 2])) {
        rise(s, at);
    } else {
        sink(s, at);
    }
}

/* ---- Evictable experts, in a heap or in a learning policy ---- */

/* Sends queued touches in order, before anything that depends on them. An expert that was pinned meanwhile is
 * in no list; its touches are sent before it returns to one. */
static void tell(mo_slots *s)
{
    for (int i = 0; i < s->untold_count; i++) {
        mo_adaptive_touch(s->adaptive, s->untold[i].expert_id, s->untold[i].now, s->untold[i].picks);
    }
    s->untold_count = 0;
}

static void enter(mo_slots *s, int32_t slot)
{
    s->listed[slot] = true;
    s->evictable++;
    if (s->adaptive) {
        tell(s);
        mo_adaptive_enter(s->adaptive, s->expert_of[slot]);
    } else {
        put(s, s->evictable - 1, s->expert_of[slot]);
        rise(s, s->evictable - 1);
    }
}

static void leave(mo_slots *s, int32_t slot)
{
    s->listed[slot] = false;
    s->evictable--;
    if (s->adaptive) {
        mo_adaptive_leave(s->adaptive, s->expert_of[slot]);
    } else if (s->heap_at[slot] < s->evictable) {
        const int32_t at = s->heap_at[slot];
        put(s, at, s->heap[s->evictable]);
        settle(s, at);
    }
}

/* Updates the list after a pin or a keep has changed. */
static void review(mo_slots *s, int32_t slot)
{
    const bool evictable = s->pins[slot] == 0 && !s->kept[slot];
    if (evictable && !s->listed[slot]) {
        enter(s, slot);
    } else if (!evictable && s->listed[slot]) {
        leave(s, slot);
    }
}

int32_t mo_slots_victim(mo_slots *s)
{
    tell(s);
    return s->evictable == 0 ? NONE : s->adaptive ? mo_adaptive_victim(s->adaptive) : s->heap[0];
}

/* ---- Life --------------------------------------------------------------------------------------- */

static bool allocate(mo_slots *s)
{
    const size_t experts = (size_t)s->expert_count, slots = (size_t)s->slot_count;
    s->entry = mo_arena_array(s->memory, experts, sizeof *s->entry);
    s->slot_of = mo_arena_array(s->memory, experts, sizeof *s->slot_of);
    s->expert_of = mo_arena_array(s->memory, slots, sizeof *s->expert_of);
    s->pins = mo_arena_array(s->memory, slots, sizeof *s->pins);
    s->kept = mo_arena_array(s->memory, slots, sizeof *s->kept);
    s->vacant = mo_arena_array(s->memory, slots, sizeof *s->vacant);
    s->heap = mo_arena_array(s->memory, slots, sizeof *s->heap);
    s->heap_at = mo_arena_array(s->memory, slots, sizeof *s->heap_at);
    s->listed = mo_arena_array(s->memory, slots, sizeof *s->listed);
    if (s->entry && s->policy->learns) {
        s->adaptive = mo_adaptive_create(s->memory, s->entry, s->expert_count);
    }
    return s->entry && s->slot_of && s->expert_of && s->pins && s->kept && s->vacant && s->heap &&
           s->heap_at && s->listed && (s->adaptive || !s->policy->learns);
}

mo_status mo_slots_create(const mo_policy *policy, int32_t experts, int32_t slots, mo_slots **out,
                          mo_error *err)
{
    *out = NULL;
    if (experts < 1 || slots < 0) {
        return mo_fail(err, MO_EINVAL, "%d slots for %d experts are not supported", slots, experts);
    }
    mo_arena *memory = mo_arena_create(0);
    mo_slots *s = memory ? mo_arena_alloc(memory, sizeof *s) : NULL;
    if (s) {
        *s = (mo_slots){.policy = policy, .memory = memory, .expert_count = experts, .slot_count = slots};
    }
    if (!s || !allocate(s)) {
        mo_arena_destroy(memory);
        return mo_fail(err, MO_ENOMEM, "out of memory for the table of %d slots and %d experts", slots,
                       experts);
    }
    for (int32_t i = 0; i < experts; i++) {
        s->slot_of[i] = NONE;
    }
    for (int32_t i = 0; i < slots; i++) {
        s->expert_of[i] = NONE;
        s->vacant[i] = slots - 1 - i; /* slot 0 is used first */
    }
    s->vacant_count = slots;
    *out = s;
    return MO_OK;
}

void mo_slots_destroy(mo_slots *s)
{
    if (s) {
        mo_arena_destroy(s->memory);
    }
}

/* ---- Queries ------------------------------------------------------------------------------------ */

int32_t mo_slots_find(const mo_slots *s, int32_t expert_id)
{
    assert(expert_id >= 0 && expert_id < s->expert_count);
    return s->slot_of[expert_id];
}

int32_t mo_slots_expert(const mo_slots *s, int32_t slot)
{
    assert(slot >= 0 && slot < s->slot_count);
    return s->expert_of[slot];
}

int32_t mo_slots_free(const mo_slots *s)
{
    return s->vacant_count;
}

/* ---- Changes ------------------------------------------------------------------------------------ */

/* Restores the heap order after the expert's key has changed. */
static void resettle(mo_slots *s, int32_t expert_id)
{
    const int32_t slot = s->slot_of[expert_id];
    if (slot != NONE && s->listed[slot]) {
        settle(s, s->heap_at[slot]);
    }
}

void mo_slots_place(mo_slots *s, int32_t expert_id, int32_t layer)
{
    assert(expert_id >= 0 && expert_id < s->expert_count);
    if (s->adaptive) {
        mo_adaptive_place(s->adaptive, expert_id, layer);
    }
}

void mo_slots_touch(mo_slots *s, int32_t expert_id, uint64_t now, uint32_t picks)
{
    assert(expert_id >= 0 && expert_id < s->expert_count);
    if (s->adaptive) {
        if (s->untold_count == UNTOLD_MOST) {
            tell(s);
        }
        s->untold[s->untold_count++] = (untold){.expert_id = expert_id, .picks = picks, .now = now};
    } else {
        s->policy->touch(&s->entry[expert_id], now, picks);
        resettle(s, expert_id);
    }
}

void mo_slots_seed(mo_slots *s, int32_t expert_id, uint64_t hits, uint64_t most)
{
    assert(expert_id >= 0 && expert_id < s->expert_count);
    tell(s);
    if (s->entry[expert_id].last) {
        return;
    }
    if (s->adaptive) {
        mo_adaptive_seed(s->adaptive, expert_id, hits, most);
    } else {
        s->policy->seed(&s->entry[expert_id], hits, most);
        resettle(s, expert_id);
    }
}

/* The slot of a resident expert. */
static int32_t slot_held(const mo_slots *s, int32_t expert_id)
{
    assert(expert_id >= 0 && expert_id < s->expert_count && s->slot_of[expert_id] != NONE);
    return s->slot_of[expert_id];
}

/* Empties a slot without adding it to the free ones. */
static void vacate(mo_slots *s, int32_t slot)
{
    const int32_t expert_id = s->expert_of[slot];
    s->pins[slot] = 0;
    s->kept[slot] = false;
    if (s->listed[slot]) {
        leave(s, slot);
    }
    s->slot_of[expert_id] = NONE;
    s->expert_of[slot] = NONE;
}

int32_t mo_slots_acquire(mo_slots *s, int32_t expert_id, int32_t *evicted)
{
    assert(expert_id >= 0 && expert_id < s->expert_count && s->slot_of[expert_id] == NONE);
    int32_t slot;
    *evicted = NONE;
    if (s->vacant_count) {
        slot = s->vacant[--s->vacant_count];
    } else if (s->evictable) {
        *evicted = mo_slots_victim(s);
        slot = s->slot_of[*evicted];
        vacate(s, slot);
        if (s->policy->forgets) {
            s->entry[*evicted] = (mo_policy_entry){0};
        }
    } else {
        return NONE;
    }
    s->expert_of[slot] = expert_id;
    s->slot_of[expert_id] = slot;
    s->pins[slot] = 1;
    return slot;
}

void mo_slots_pin(mo_slots *s, int32_t expert_id)
{
    const int32_t slot = slot_held(s, expert_id);
    assert(s->pins[slot] < UINT32_MAX);
    s->pins[slot]++;
    review(s, slot);
}

void mo_slots_unpin(mo_slots *s, int32_t expert_id)
{
    const int32_t slot = slot_held(s, expert_id);
    assert(s->pins[slot] > 0);
    s->pins[slot]--;
    review(s, slot);
}

void mo_slots_keep(mo_slots *s, int32_t expert_id, bool keep)
{
    const int32_t slot = slot_held(s, expert_id);
    s->kept[slot] = keep;
    review(s, slot);
}

void mo_slots_drop(mo_slots *s, int32_t expert_id)
{
    const int32_t slot = slot_held(s, expert_id);
    vacate(s, slot);
    s->vacant[s->vacant_count++] = slot;
}

void mo_slots_abandon(mo_slots *s, int32_t expert_id)
{
    vacate(s, slot_held(s, expert_id));
}

double mo_slots_chance(mo_slots *s, int32_t expert_id)
{
    assert(expert_id >= 0 && expert_id < s->expert_count);
    tell(s);
    return s->adaptive ? mo_adaptive_chance(s->adaptive, expert_id) : -1.0;
}
