/* With a device: experts in device memory need no slot in RAM, so the capacity is the sum of both. Experts
 * are prefetched for the device, lent during the copy, yielded when they have arrived, and taken back when
 * they leave it. */
#include "experts/state.h"

/* The expert's id; -1: it has no slot, or its reads have not all landed. */
static int32_t landed(mo_store *s, int layer, int expert)
{
    const int32_t expert_id = mo_expert_table_id(s->experts, layer, expert);
    if (expert_id < 0 || mo_store_slot_number(s, expert_id) < 0) {
        return -1;
    }
    const mo_store_slot_reads *slot = mo_store_slot_of(s, expert_id);
    if (!mo_store_slot_ended(slot)) {
        return -1;
    }
    mo_store_settle_guesses(s); /* drops an expert whose read failed */
    return mo_store_slot_number(s, expert_id) >= 0 && mo_store_slot_landed(slot) ? expert_id : -1;
}

/* Number of experts of a size class that are neither in RAM nor on a device. */
static int32_t absent_of(const mo_store *s, int size_class)
{
    const mo_store_class *c = &s->classes[size_class];
    return s->experts->classes[size_class].count - c->on_device - (c->slot_count - mo_slots_free(c->slots));
}

bool mo_store_absent(const mo_store *s)
{
    for (int i = 0; i < s->experts->class_count; i++) {
        if (absent_of(s, i) > 0) {
            return true;
        }
    }
    return false;
}

/* Slots that prefetching leaves free, so that a layer's misses find slots without waiting. None if the free
 * slots suffice for all absent experts: there are no other misses. */
static int32_t spare_slots(const mo_store *s, int size_class)
{
    const bool fits = absent_of(s, size_class) <= mo_slots_free(s->classes[size_class].slots);
    return fits ? 0 : s->experts->classes[size_class].used;
}

bool mo_store_has(const mo_store *s, int layer, int expert)
{
    return mo_store_slot_number(s, mo_expert_table_id(s->experts, layer, expert)) >= 0;
}

mo_store_begun mo_store_ahead(mo_store *s, int layer, int expert, bool evict)
{
    const int32_t expert_id = mo_expert_table_id(s->experts, layer, expert);
    if (mo_store_slot_number(s, expert_id) >= 0) {
        return MO_STORE_THERE;
    }
    const int size_class = s->experts->home[expert_id].size_class;
    const mo_store_class *c = &s->classes[size_class];
    mo_store_settle_guesses(s);
    if (s->guess_count >= s->guess_limit) {
        return MO_STORE_BUSY;
    }
    if (!evict && mo_slots_free(c->slots) <= spare_slots(s, size_class)) {
        return MO_STORE_FULL;
    }
    if (!mo_store_acquire(s, expert_id, MO_READ_GUESS)) {
        return MO_STORE_BUSY;
    }
    mo_store_slot_of(s, expert_id)->guess = MO_GUESS_FILLING;
    s->guesses[s->guess_count++] = expert_id;
    s->counters.ahead++;
    s->counters.ahead_bytes += (uint64_t)s->experts->home[expert_id].bytes;
    mo_store_submit(s, &expert_id, 1);
    return MO_STORE_BEGUN;
}

void mo_store_seed(mo_store *s, int layer, int expert, uint64_t hits, uint64_t most)
{
    const int32_t expert_id = mo_expert_table_id(s->experts, layer, expert);
    mo_slots_seed(mo_store_class_of(s, expert_id)->slots, s->experts->home[expert_id].in_class, hits, most);
}

/* A layer's experts must find slots regardless of lending: at most half of the slots that one token does not
 * use are lent. */
static bool may_lend(const mo_store *s, int size_class)
{
    const mo_store_class *c = &s->classes[size_class];
    return 2 * c->lent + 1 < c->slot_count - s->experts->classes[size_class].used;
}

bool mo_store_lends(const mo_store *s, int layer)
{
    const int size_class = s->experts->home[mo_expert_table_id(s->experts, layer, 0)].size_class;
    return s->guess_limit > 0 && s->classes[size_class].slot_count > s->experts->classes[size_class].used + 1;
}

bool mo_store_lend(mo_store *s, int layer, int expert)
{
    const int32_t expert_id = landed(s, layer, expert);
    mo_error ignored = {0};
    if (expert_id < 0 || !may_lend(s, s->experts->home[expert_id].size_class)) {
        return false;
    }
    const mo_store_slot_reads *slot = mo_store_slot_of(s, expert_id);
    for (int m = 0; m < slot->count; m++) {
        mo_store_show(s, expert_id, m, &slot->reads[m]);
    }
    if (mo_store_check(s, expert_id, &ignored) != MO_OK) {
        mo_store_drop(s, expert_id);
        return false;
    }
    mo_store_pin(s, expert_id);
    mo_store_class_of(s, expert_id)->lent++;
    return true;
}

void mo_store_return(mo_store *s, int layer, int expert)
{
    const int32_t expert_id = mo_expert_table_id(s->experts, layer, expert);
    mo_store_class_of(s, expert_id)->lent--;
    mo_store_unpin(s, expert_id);
}

void mo_store_yield(mo_store *s, int layer, int expert)
{
    const int32_t expert_id = landed(s, layer, expert);
    const int size_class = expert_id >= 0 ? s->experts->home[expert_id].size_class : 0;
    if (expert_id >= 0 && s->classes[size_class].slot_count < s->experts->classes[size_class].count) {
        s->counters.yielded++;
        mo_store_set_on_device(s, expert_id, true);
        mo_store_drop(s, expert_id);
    }
}

bool mo_store_take(mo_store *s, int layer, int expert, bool evict, uint8_t *parts[3])
{
    const int32_t expert_id = mo_expert_table_id(s->experts, layer, expert);
    const mo_store_class *c = mo_store_class_of(s, expert_id);
    if (mo_store_slot_number(s, expert_id) >= 0 || (!evict && mo_slots_free(c->slots) == 0) ||
        !mo_store_acquire(s, expert_id, MO_READ_AHEAD)) {
        return false;
    }
    const mo_store_slot_reads *slot = mo_store_slot_of(s, expert_id);
    mo_store_set_on_device(s, expert_id, false);
    for (int m = 0; m < slot->count; m++) {
        parts[m] = mo_disk_data(&slot->reads[m]);
    }
    return true;
}

void mo_store_taken(mo_store *s, int layer, int expert, mo_store_arrival arrival)
{
    const int32_t expert_id = mo_expert_table_id(s->experts, layer, expert);
    mo_error ignored = {0};
    if (arrival == MO_STORE_UNSURE) {
        mo_slots_abandon(mo_store_class_of(s, expert_id)->slots, s->experts->home[expert_id].in_class);
        return;
    }
    s->counters.taken += arrival == MO_STORE_ARRIVED;
    mo_store_filled(s, expert_id, arrival == MO_STORE_ARRIVED, &ignored);
}
