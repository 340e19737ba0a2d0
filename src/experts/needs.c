/* The needs of a layer: the experts it requests, which of them have landed, and predictions of the next
 * requests; and the slots and reads for them. */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "experts/state.h"

/* States of a need. */
enum { NEED_SLOT, NEED_BYTES, NEED_NOTHING };

/* ---- Slots ---- */

mo_store_class *mo_store_class_of(const mo_store *s, int32_t expert_id)
{
    return (mo_store_class *)&s->classes[s->experts->home[expert_id].size_class];
}

int32_t mo_store_slot_number(const mo_store *s, int32_t expert_id)
{
    return mo_slots_find(mo_store_class_of(s, expert_id)->slots, s->experts->home[expert_id].in_class);
}

mo_store_slot_reads *mo_store_slot_of(const mo_store *s, int32_t expert_id)
{
    return &mo_store_class_of(s, expert_id)->slot[mo_store_slot_number(s, expert_id)];
}

void mo_store_pin(mo_store *s, int32_t expert_id)
{
    mo_slots_pin(mo_store_class_of(s, expert_id)->slots, s->experts->home[expert_id].in_class);
}

void mo_store_unpin(mo_store *s, int32_t expert_id)
{
    mo_slots_unpin(mo_store_class_of(s, expert_id)->slots, s->experts->home[expert_id].in_class);
}

static void clear_views(const mo_store *s, int32_t expert_id)
{
    const mo_expert_home *home = &s->experts->home[expert_id];
    for (int i = 0; i < home->parts; i++) {
        s->experts->parts[home->first + i].matrix->data = NULL;
    }
}

void mo_store_drop(mo_store *s, int32_t expert_id)
{
    clear_views(s, expert_id);
    mo_slots_drop(mo_store_class_of(s, expert_id)->slots, s->experts->home[expert_id].in_class);
}

void mo_store_set_on_device(mo_store *s, int32_t expert_id, bool on_device)
{
    if (s->on_device[expert_id] != on_device) {
        mo_store_class_of(s, expert_id)->on_device += on_device ? 1 : -1;
        s->on_device[expert_id] = on_device;
    }
}

bool mo_store_acquire(mo_store *s, int32_t expert_id, mo_urgency urgency)
{
    const mo_expert_home *home = &s->experts->home[expert_id];
    mo_store_class *c = mo_store_class_of(s, expert_id);
    int32_t evicted = -1;
    const int32_t number = mo_slots_acquire(c->slots, home->in_class, &evicted);
    if (number < 0) {
        return false;
    }
    mo_store_slot_reads *slot = &c->slot[number];
    if (evicted >= 0) {
        s->counters.evictions++;
        s->counters.wasted += slot->guess == MO_GUESS_LANDED;
        clear_views(s, c->expert_id[evicted]);
    }
    slot->guess = MO_GUESS_NONE;
    slot->distances = 0;
    slot->count = home->parts;
    for (int i = 0; i < slot->count; i++) {
        const mo_expert_part *part = &s->experts->parts[home->first + i];
        mo_read *r = &slot->reads[i];
        r->part = part->file;
        r->offset = part->offset;
        r->bytes = part->bytes;
        r->memory = c->memory + (size_t)number * (size_t)c->slot_bytes + part->at;
        r->urgency = urgency;
        atomic_store_explicit(&r->state, MO_READ_IDLE, memory_order_relaxed);
    }
    return true;
}

/* ---- Reads ---- */

bool mo_read_landed(const mo_read *r)
{
    return atomic_load_explicit(&r->state, memory_order_acquire) == MO_READ_DONE;
}

static bool read_failed(const mo_read *r)
{
    return atomic_load_explicit(&r->state, memory_order_acquire) == MO_READ_FAILED;
}

bool mo_store_slot_ended(const mo_store_slot_reads *slot)
{
    for (int i = 0; i < slot->count; i++) {
        if (!mo_read_landed(&slot->reads[i]) && !read_failed(&slot->reads[i])) {
            return false;
        }
    }
    return true;
}

bool mo_store_slot_landed(const mo_store_slot_reads *slot)
{
    for (int i = 0; i < slot->count; i++) {
        if (!mo_read_landed(&slot->reads[i])) {
            return false;
        }
    }
    return true;
}

void mo_store_submit(mo_store *s, const int32_t *experts, int count)
{
    mo_read *reads[MO_STORE_AT_ONCE * MO_STORE_MATRICES];
    int n = 0;
    for (int i = 0; i < count; i++) {
        mo_store_slot_reads *slot = mo_store_slot_of(s, experts[i]);
        for (int m = 0; m < slot->count - 1; m++) {
            reads[n++] = &slot->reads[m];
        }
    }
    for (int i = 0; i < count; i++) {
        mo_store_slot_reads *slot = mo_store_slot_of(s, experts[i]);
        reads[n++] = &slot->reads[slot->count - 1];
    }
    if (n > 0) {
        mo_disk_submit(s->disk, reads, n);
    }
}

mo_status mo_store_check(mo_store *s, int32_t expert_id, mo_error *err)
{
    const mo_expert_home *home = &s->experts->home[expert_id];
    for (int i = 0; i < home->parts && !s->checked[expert_id]; i++) {
        const mo_expert_part *part = &s->experts->parts[home->first + i];
        const mo_status status = mo_format_check(part->matrix->type, part->matrix->data, part->bytes, err);
        if (status != MO_OK) {
            return mo_fail_prefix(err, status, "%s: layer %d, expert %d", s->path, home->layer, home->expert);
        }
    }
    s->checked[expert_id] = true;
    return MO_OK;
}

void mo_store_show(const mo_store *s, int32_t expert_id, int matrix, const mo_read *r)
{
    s->experts->parts[s->experts->home[expert_id].first + matrix].matrix->data = mo_disk_data(r);
}

mo_status mo_store_read_failure(const mo_store *s, int32_t expert_id, const mo_store_slot_reads *slot,
                                mo_error *err)
{
    const mo_expert_home *home = &s->experts->home[expert_id];
    for (int i = 0; i < slot->count; i++) {
        if (read_failed(&slot->reads[i])) {
            const mo_error *e = &slot->reads[i].error;
            return mo_fail(err, e->status, "layer %d, expert %d could not be read: %s", home->layer,
                           home->expert, e->detail);
        }
    }
    return MO_OK;
}

/* Counts a prediction, or a prefetch with the whole layer, when it is needed or has landed. */
static void count_guess(mo_store *s, int32_t expert_id, const mo_store_slot_reads *slot)
{
    const uint64_t bytes = (uint64_t)s->experts->home[expert_id].bytes;
    if (slot->guess == MO_GUESS_UNDER_WAY) {
        s->counters.guessed++;
        s->counters.guessed_bytes += bytes;
    } else if (slot->guess == MO_GUESS_LAYER) {
        s->counters.phase[s->phase].bytes += bytes;
    }
}

void mo_store_settle_guesses(mo_store *s)
{
    int kept = 0;
    for (int i = 0; i < s->guess_count; i++) {
        const int32_t expert_id = s->guesses[i];
        mo_store_slot_reads *slot = mo_store_slot_of(s, expert_id);
        if (!mo_store_slot_ended(slot)) {
            s->guesses[kept++] = expert_id;
            continue;
        }
        const bool good = mo_store_slot_landed(slot);
        mo_store_unpin(s, expert_id);
        if (slot->guess != MO_GUESS_NONE) { /* not needed so far */
            if (good) {
                count_guess(s, expert_id, slot);
            } else {
                mo_store_drop(s, expert_id);
            }
            slot->guess = good && slot->guess == MO_GUESS_UNDER_WAY ? MO_GUESS_LANDED
                          : good && slot->guess == MO_GUESS_LAYER   ? MO_GUESS_LAYER_LANDED
                                                                    : MO_GUESS_NONE;
        }
    }
    s->guess_count = kept;
}

/* ---- Looking ---- */

/* Fills the results of a need whose slot is assigned. Returns true if one has changed. An expert that was
 * never validated becomes available only as a whole, so that it can be validated as a whole. */
static bool answer(mo_store *s, mo_need *need, mo_status *status, mo_error *err)
{
    const mo_store_slot_reads *slot = mo_store_slot_of(s, need->expert_id);
    const bool had_in = need->in, had_down = need->down;
    if (!s->checked[need->expert_id]) {
        if (!mo_store_slot_ended(slot)) {
            return false;
        }
        *status = *status == MO_OK ? mo_store_read_failure(s, need->expert_id, slot, err) : *status;
        for (int m = 0; m < slot->count && *status == MO_OK; m++) {
            mo_store_show(s, need->expert_id, m, &slot->reads[m]);
        }
        *status = *status == MO_OK ? mo_store_check(s, need->expert_id, err) : *status;
        need->in = need->down = *status == MO_OK;
        return true;
    }
    const int last = slot->count - 1;
    if (!need->in && mo_read_landed(&slot->reads[0]) && mo_read_landed(&slot->reads[last - 1])) {
        for (int m = 0; m < last; m++) {
            mo_store_show(s, need->expert_id, m, &slot->reads[m]);
        }
        need->in = true;
    }
    if (!need->down && mo_read_landed(&slot->reads[last])) {
        mo_store_show(s, need->expert_id, last, &slot->reads[last]);
        need->down = true;
    }
    if (*status == MO_OK && mo_store_slot_ended(slot)) {
        *status = mo_store_read_failure(s, need->expert_id, slot, err);
    }
    return need->in != had_in || need->down != had_down || *status != MO_OK;
}

/* Acquires slots for needs without one and begins their reads. */
static void ask(mo_store *s)
{
    int32_t ids[MO_STORE_AT_ONCE];
    int count = 0;
    for (int i = 0; i < s->need_count; i++) {
        mo_need *need = &s->needs[i];
        if (need->state != NEED_SLOT || !mo_store_acquire(s, need->expert_id, MO_READ_NOW)) {
            continue;
        }
        need->state = NEED_BYTES;
        s->counters.phase[s->phase].bytes += (uint64_t)s->experts->home[need->expert_id].bytes;
        ids[count++] = need->expert_id;
        if (count == MO_STORE_AT_ONCE) {
            mo_store_submit(s, ids, count);
            count = 0;
        }
    }
    mo_store_submit(s, ids, count);
}

mo_status mo_store_look(mo_store *s, bool wait, mo_error *err)
{
    mo_status status = MO_OK;
    uint64_t seen = mo_disk_ended(s->disk);
    const int64_t began = wait ? mo_clock_ns() : 0;
    for (bool news = false;;) {
        mo_store_settle_guesses(s);
        ask(s);
        for (int i = 0; i < s->need_count; i++) {
            mo_need *need = &s->needs[i];
            if (need->state == NEED_BYTES && !(need->in && need->down)) {
                news |= answer(s, need, &status, err);
            }
        }
        if (news || !wait || status != MO_OK) {
            break;
        }
        seen = mo_disk_wait(s->disk, seen);
    }
    if (wait) {
        s->counters.phase[s->phase].wait_ns += (uint64_t)(mo_clock_ns() - began);
    }
    return status;
}

/* ---- A layer ---- */

void mo_store_pass(mo_store *s, mo_store_phase phase)
{
    s->now++;
    s->phase = phase;
    s->counters.phase[phase].passes++;
}

/* Counts a correct prediction for every distance that made it. */
static void prove(mo_store *s, const mo_store_slot_reads *slot, bool late)
{
    for (int r = 1; r <= MO_PREFETCH_DISTANCE_MAX; r++) {
        const bool made = slot->distances >> r & 1;
        s->counters.distance[r].proven += made;
        s->counters.distance[r].late += made && late;
    }
}

/* An expert that is in a slot, perhaps with reads in flight. */
static void meet(mo_store *s, mo_need *need)
{
    mo_store_slot_reads *slot = mo_store_slot_of(s, need->expert_id);
    mo_store_phase_counters *c = &s->counters.phase[s->phase];
    mo_store_pin(s, need->expert_id);
    need->state = NEED_BYTES;
    const bool with_layer = slot->guess == MO_GUESS_LAYER || slot->guess == MO_GUESS_LAYER_LANDED;
    const bool nobodys = with_layer || slot->guess == MO_GUESS_FILLING;
    count_guess(s, need->expert_id, slot);
    if (slot->guess != MO_GUESS_NONE && !mo_store_slot_ended(slot)) {
        for (int i = 0; i < slot->count; i++) {
            mo_disk_raise_priority(s->disk, &slot->reads[i]);
        }
        need->missing = true;
        c->landing++;
        s->counters.late += !nobodys;
        prove(s, slot, true);
    } else {
        c->hits += !with_layer; /* otherwise the pass itself has read it */
        c->landing += with_layer;
        s->counters.useful += slot->guess != MO_GUESS_NONE && !nobodys;
        prove(s, slot, false);
    }
    slot->guess = MO_GUESS_NONE;
    slot->distances = 0;
}

static bool among(int32_t expert, const int32_t *experts, int count)
{
    while (count > 0 && experts[count - 1] != expert) {
        count--;
    }
    return count > 0;
}

/* Cancels predictions for this layer that turned out wrong (or that a better-informed prediction does not
 * repeat) before their reads have begun. Otherwise they would keep the disk from the next predictions. */
static void withdraw_wrong(mo_store *s, int layer, const int32_t *spared, int spared_count)
{
    int kept = 0;
    for (int i = 0; i < s->guess_count; i++) {
        const int32_t expert_id = s->guesses[i];
        const mo_expert_home *home = &s->experts->home[expert_id];
        mo_store_slot_reads *slot = mo_store_slot_of(s, expert_id);
        mo_read *const reads[MO_STORE_MATRICES] = {&slot->reads[0], &slot->reads[1], &slot->reads[2]};
        const bool guess = slot->guess == MO_GUESS_UNDER_WAY, of_layer = slot->guess == MO_GUESS_LAYER;
        if (home->layer == layer && (guess || of_layer) && !among(home->expert, spared, spared_count) &&
            mo_disk_withdraw(s->disk, reads, slot->count)) {
            mo_store_unpin(s, expert_id);
            mo_store_drop(s, expert_id);
            s->counters.withdrawn += guess;
        } else {
            s->guesses[kept++] = expert_id;
        }
    }
    s->guess_count = kept;
}

void mo_store_want(mo_store *s, int layer, mo_need *needs, int count)
{
    s->needs = needs;
    s->need_count = count;
    mo_store_settle_guesses(s);
    for (int i = 0; i < count; i++) {
        mo_need *need = &needs[i];
        const int32_t expert_id = mo_expert_table_id(s->experts, layer, need->expert);
        *need = (mo_need){.expert = need->expert,
                          .picks = need->picks,
                          .drafted = need->drafted,
                          .expert_id = expert_id,
                          .state = NEED_SLOT};
        if (need->picks > need->drafted) {
            mo_slots_touch(mo_store_class_of(s, expert_id)->slots, s->experts->home[expert_id].in_class,
                           s->now, need->picks - need->drafted);
        }
        mo_store_set_on_device(s, expert_id, false);
        s->counters.phase[s->phase].asked++;
        if (mo_store_slot_number(s, expert_id) >= 0) {
            meet(s, need);
        } else {
            need->missing = true;
        }
    }
    withdraw_wrong(s, layer, NULL, 0);
}

void mo_store_touch(mo_store *s, int layer, int expert, uint32_t picks)
{
    const int32_t expert_id = mo_expert_table_id(s->experts, layer, expert);
    mo_slots_touch(mo_store_class_of(s, expert_id)->slots, s->experts->home[expert_id].in_class, s->now,
                   picks);
}

void mo_store_release(mo_store *s, mo_need *need)
{
    mo_store_unpin(s, need->expert_id);
    need->state = NEED_NOTHING;
}

void mo_store_skip(mo_store *s, mo_need *need)
{
    if (need->state == NEED_BYTES) { /* a prediction with reads in flight */
        /* It belongs to nobody now: a failure is ignored. */
        mo_store_slot_of(s, need->expert_id)->guess = MO_GUESS_FILLING;
        mo_store_unpin(s, need->expert_id);
    }
    need->state = NEED_NOTHING;
}

void mo_store_leave(mo_store *s)
{
    for (int i = 0; i < s->need_count; i++) {
        mo_need *need = &s->needs[i];
        if (need->state != NEED_BYTES) {
            continue;
        }
        const mo_store_slot_reads *slot = mo_store_slot_of(s, need->expert_id);
        mo_disk_finish(s->disk, slot->reads, slot->count);
        mo_store_unpin(s, need->expert_id);
        if (!mo_store_slot_landed(slot)) {
            mo_store_settle_guesses(s); /* a prediction that became a need still holds a pin of its own */
            mo_store_drop(s, need->expert_id);
        }
    }
    s->needs = NULL;
    s->need_count = 0;
}

/* Pins or unpins the resident ones among these experts, so that they are not evicted for the others. Some ids
 * may belong to another rank. */
static void hold(mo_store *s, int layer, const int32_t *experts, int count, bool on)
{
    for (int i = 0; i < count; i++) {
        const int32_t expert_id = mo_expert_table_id(s->experts, layer, experts[i]);
        if (expert_id >= 0 && mo_store_slot_number(s, expert_id) >= 0) {
            if (on) {
                mo_store_pin(s, expert_id);
            } else {
                mo_store_unpin(s, expert_id);
            }
        }
    }
}

/* Records that a prediction of this distance named the expert, unless it was needed already. */
static void note_distance(mo_store *s, int32_t expert_id, int distance)
{
    mo_store_slot_reads *slot = mo_store_slot_of(s, expert_id);
    const bool guess = slot->guess == MO_GUESS_UNDER_WAY || slot->guess == MO_GUESS_LANDED;
    assert(distance >= 0 && distance <= MO_PREFETCH_DISTANCE_MAX);
    if (distance > 0 && distance <= MO_PREFETCH_DISTANCE_MAX && guess && !(slot->distances >> distance & 1)) {
        slot->distances |= (uint8_t)(1U << distance);
        s->counters.distance[distance].made++;
    }
}

/* Reads the missing experts as predictions of this kind, at most max_bytes. Returns how many. */
static int read_ahead(mo_store *s, int layer, const int32_t *experts, int count, uint8_t kind, int distance,
                      int64_t max_bytes)
{
    const bool far = distance > 1 && s->near_layer != layer;
    int chosen = 0, begun = 0;
    mo_store_settle_guesses(s);
    withdraw_wrong(s, layer, experts, count);
    hold(s, layer, experts, count, true);
    if (far) { /* experts needed sooner must not be evicted for these */
        hold(s, s->near_layer, s->near, s->near_count, true);
    }
    for (int i = 0; i < count; i++) {
        const int32_t expert_id = mo_expert_table_id(s->experts, layer, experts[i]);
        if (expert_id < 0) {
            continue;
        }
        const int64_t bytes = s->experts->home[expert_id].bytes;
        if (mo_store_slot_number(s, expert_id) >= 0) {
            note_distance(s, expert_id, distance);
            continue;
        }
        if (s->on_device[expert_id] || bytes > max_bytes || s->guess_count == s->guess_limit ||
            !mo_store_acquire(s, expert_id, MO_READ_GUESS)) {
            continue;
        }
        mo_store_pin(s, expert_id); /* hold() below unpins it */
        max_bytes -= bytes;
        mo_store_slot_of(s, expert_id)->guess = kind;
        note_distance(s, expert_id, distance);
        s->guesses[s->guess_count++] = expert_id;
        begun++;
        if (++chosen == MO_STORE_AT_ONCE) {
            mo_store_submit(s, s->guesses + s->guess_count - chosen, chosen);
            chosen = 0;
        }
    }
    mo_store_submit(s, s->guesses + s->guess_count - chosen, chosen);
    hold(s, layer, experts, count, false);
    if (far) {
        hold(s, s->near_layer, s->near, s->near_count, false);
    } else if (distance == 1) {
        memcpy(s->near, experts, sizeof *experts * (size_t)count);
        s->near_layer = layer;
        s->near_count = count;
    }
    return begun;
}

void mo_store_guess(mo_store *s, int layer, const int32_t *experts, int count, int distance,
                    int64_t max_bytes)
{
    read_ahead(s, layer, experts, count, MO_GUESS_UNDER_WAY, distance, max_bytes);
}

void mo_store_known(mo_store *s, int layer, const int32_t *experts, int count)
{
    s->counters.known += (uint64_t)read_ahead(s, layer, experts, count, MO_GUESS_UNDER_WAY, 0, INT64_MAX);
}

void mo_store_guess_layer(mo_store *s, int layer)
{
    int32_t experts[MO_EXPERTS_MAX];
    for (int e = 0; e < s->experts->experts; e++) {
        experts[e] = e;
    }
    read_ahead(s, layer, experts, s->experts->experts, MO_GUESS_LAYER, 0, INT64_MAX);
}
