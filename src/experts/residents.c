/* Changes of residency between steps: warming, exchanges decided by other modules, and copies of whole
 * slots. */
#include <stdlib.h>

#include "base/status.h"
#include "experts/state.h"

bool mo_store_resident(const mo_store *s, int layer, int expert)
{
    const int32_t expert_id = mo_expert_table_id(s->experts, layer, expert);
    return expert_id >= 0 && mo_store_slot_number(s, expert_id) >= 0 &&
           mo_store_slot_ended(mo_store_slot_of(s, expert_id));
}

/* ---- Between passes ---- */

typedef struct warm_item {
    int32_t expert_id;
    int file;
    int64_t offset;
    const mo_store_request *request;
} warm_item;

static int by_place(const void *left, const void *right)
{
    const warm_item *a = left, *b = right;
    return a->file != b->file ? a->file - b->file : (a->offset > b->offset) - (a->offset < b->offset);
}

/* Slots that warming leaves free, so that a layer's misses find slots without an eviction. None if every
 * expert has a slot: nothing will miss. */
static int32_t spare_slots(const mo_store *s, int index)
{
    const mo_expert_class *c = &s->experts->classes[index];
    return s->static_set && s->classes[index].slot_count < c->count ? 2 * c->used : 0;
}

/* The requested experts that are not resident and get a slot, sorted by file position. */
static int choose_warm(mo_store *s, const mo_store_request *requests, int count, uint64_t most,
                       warm_item *items)
{
    int32_t left[MO_EXPERT_CLASSES];
    int chosen = 0;
    for (int i = 0; i < s->class_count; i++) {
        left[i] = mo_slots_free(s->classes[i].slots) - spare_slots(s, i);
    }
    for (int i = 0; i < count; i++) {
        const mo_store_request *w = &requests[i];
        const bool known = w->layer >= 0 && w->layer < s->experts->layers && w->expert >= 0 &&
                           w->expert < s->experts->experts;
        const int32_t expert_id = known ? mo_expert_table_id(s->experts, w->layer, w->expert) : -1;
        if (expert_id < 0) {
            continue;
        }
        const mo_expert_home *home = &s->experts->home[expert_id];
        if (w->hits > 0) {
            mo_slots_seed(s->classes[home->size_class].slots, home->in_class, w->hits, most);
        }
        if (mo_store_slot_number(s, expert_id) < 0 && left[home->size_class] > 0) {
            left[home->size_class]--;
            const mo_expert_part *first = &s->experts->parts[home->first];
            items[chosen++] = (warm_item){expert_id, first->file, first->offset, w};
        }
    }
    qsort(items, (size_t)chosen, sizeof *items, by_place);
    return chosen;
}

/* Waits for a read that no layer needs, then unpins the expert, or drops it if the read failed. */
static mo_status receive(mo_store *s, int32_t expert_id, mo_error *err)
{
    const mo_store_slot_reads *slot = mo_store_slot_of(s, expert_id);
    mo_disk_finish(s->disk, slot->reads, slot->count);
    mo_status status = mo_store_read_failure(s, expert_id, slot, err);
    for (int m = 0; m < slot->count && status == MO_OK; m++) {
        mo_store_show(s, expert_id, m, &slot->reads[m]);
    }
    status = status == MO_OK ? mo_store_check(s, expert_id, err) : status;
    mo_store_unpin(s, expert_id);
    if (status != MO_OK) {
        mo_store_drop(s, expert_id);
    }
    return status;
}

static void keep(mo_store *s, int32_t expert_id)
{
    mo_slots_keep(mo_store_class_of(s, expert_id)->slots, s->experts->home[expert_id].in_class, true);
}

mo_status mo_store_warm(mo_store *s, const mo_store_request *requests, int count, uint64_t most_hits,
                        mo_progress_fn progress, void *user, mo_error *err)
{
    warm_item *items = malloc(((size_t)count + 1) * sizeof *items);
    if (!items) {
        return mo_fail(err, MO_ENOMEM, "out of memory while warming the cache; free some and try again");
    }
    const int chosen = choose_warm(s, requests, count, most_hits, items);
    mo_status status = MO_OK;
    int asked = 0;
    for (int got = 0; got < chosen; got++) {
        for (int32_t expert_id; asked < chosen && asked < got + MO_STORE_AT_ONCE; asked++) {
            expert_id = items[asked].expert_id;
            mo_store_acquire(s, expert_id, MO_READ_AHEAD); /* choose_warm() counted a free slot for it */
            mo_store_submit(s, &expert_id, 1);
        }
        mo_error one = {0};
        const mo_status result = receive(s, items[got].expert_id, &one);
        if (result == MO_OK && (s->static_set || items[got].request->keep)) {
            keep(s, items[got].expert_id);
        }
        if (result != MO_OK && status == MO_OK) {
            status = mo_fail(err, result, "%s", one.detail);
        }
        if (status == MO_OK && progress && !progress(user, got + 1, chosen)) {
            status = mo_fail(err, MO_ECANCELLED, "warming the cache was cancelled");
        }
        if (status != MO_OK) {
            for (int rest = got + 1; rest < asked; rest++) {
                receive(s, items[rest].expert_id, &one);
            }
            break;
        }
    }
    free(items);
    return status;
}

mo_status mo_store_exchange(mo_store *s, int layer, int evict, int add, mo_error *err)
{
    const int32_t from = mo_expert_table_id(s->experts, layer, evict),
                  to = mo_expert_table_id(s->experts, layer, add);
    mo_store_settle_guesses(s);
    const bool there = to >= 0 && mo_store_slot_number(s, to) >= 0;
    const bool passing = there && s->static_set && mo_store_slot_ended(mo_store_slot_of(s, to));
    if (from < 0 || to < 0 || from == to || !mo_store_resident(s, layer, evict) || (there && !passing) ||
        mo_store_class_of(s, from) != mo_store_class_of(s, to)) {
        return mo_fail(err, MO_EINVAL, "layer %d: expert %d cannot replace expert %d", layer, add, evict);
    }
    mo_store_drop(s, from);
    mo_status status = MO_OK;
    if (!there) {
        mo_store_acquire(s, to, MO_READ_NOW); /* the slot that has just been freed, or another free one */
        mo_store_submit(s, &to, 1);
        status = receive(s, to, err);
    }
    if (status == MO_OK && s->static_set) {
        keep(s, to);
    }
    return status;
}

mo_status mo_store_bring(mo_store *s, int layer, int expert, mo_error *err)
{
    const int32_t expert_id = mo_expert_table_id(s->experts, layer, expert);
    mo_store_settle(s);
    if (mo_store_slot_number(s, expert_id) >= 0) {
        mo_store_pin(s, expert_id); /* receive() unpins it */
    } else if (mo_store_acquire(s, expert_id, MO_READ_NOW)) {
        mo_store_submit(s, &expert_id, 1);
    } else {
        return mo_fail(err, MO_ENOMEM,
                       "layer %d, expert %d: every slot in RAM is in use; increase `ram_bytes`", layer,
                       expert);
    }
    return receive(s, expert_id, err);
}

void mo_store_settle(mo_store *s)
{
    uint64_t seen = mo_disk_ended(s->disk);
    for (mo_store_settle_guesses(s); s->guess_count > 0; mo_store_settle_guesses(s)) {
        seen = mo_disk_wait(s->disk, seen);
    }
}

bool mo_store_guessing(mo_store *s, int layer, const int32_t *experts, int count, uint64_t *seen)
{
    *seen = mo_disk_ended(s->disk);
    mo_store_settle_guesses(s);
    for (int i = 0; i < count; i++) {
        const int32_t expert_id = mo_expert_table_id(s->experts, layer, experts[i]);
        for (int k = 0; k < s->guess_count; k++) {
            if (s->guesses[k] == expert_id) {
                return true;
            }
        }
    }
    return false;
}

void mo_store_wait(mo_store *s, uint64_t seen)
{
    mo_disk_wait(s->disk, seen);
}

/* ---- Copies of resident experts ---- */

int32_t mo_store_class_slots(const mo_store *s, int index)
{
    return s->classes[index].slot_count;
}

int32_t mo_store_slot(const mo_store *s, int index, int32_t slot, const uint8_t **memory)
{
    const mo_store_class *c = &s->classes[index];
    const int32_t number = mo_slots_expert(c->slots, slot);
    *memory = c->memory + (size_t)slot * (size_t)c->slot_bytes;
    for (int m = 0; number >= 0 && m < c->slot[slot].count; m++) {
        if (!mo_read_landed(&c->slot[slot].reads[m])) {
            return -1;
        }
    }
    return number < 0 ? -1 : c->expert_id[number];
}

uint8_t *mo_store_claim(mo_store *s, int32_t expert_id)
{
    const mo_store_class *c = mo_store_class_of(s, expert_id);
    if (mo_store_slot_number(s, expert_id) >= 0 || mo_slots_free(c->slots) == 0 ||
        !mo_store_acquire(s, expert_id, MO_READ_AHEAD)) {
        return NULL;
    }
    return c->memory + (size_t)mo_store_slot_number(s, expert_id) * (size_t)c->slot_bytes;
}

mo_status mo_store_filled(mo_store *s, int32_t expert_id, bool good, mo_error *err)
{
    mo_store_slot_reads *slot = mo_store_slot_of(s, expert_id);
    for (int m = 0; m < slot->count && good; m++) {
        atomic_store_explicit(&slot->reads[m].state, MO_READ_DONE, memory_order_relaxed);
        mo_store_show(s, expert_id, m, &slot->reads[m]);
    }
    const mo_status status = good ? mo_store_check(s, expert_id, err) : MO_OK;
    mo_store_unpin(s, expert_id);
    if (!good || status != MO_OK) {
        mo_store_drop(s, expert_id);
    }
    return status;
}
