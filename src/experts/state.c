#include "experts/state.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/host.h"
#include "base/log.h"
#include "base/status.h"
#include "numeric/block.h"

/* ---- Slots ---- */

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
    for (int i = 0; i < MO_STORE_MATRICES; i++) {
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

bool mo_store_slot_ended(const mo_store_slot_reads *slot)
{
    for (int i = 0; i < MO_STORE_MATRICES; i++) {
        if (!mo_read_landed(&slot->reads[i]) && !mo_read_failed(&slot->reads[i])) {
            return false;
        }
    }
    return true;
}

bool mo_store_slot_landed(const mo_store_slot_reads *slot)
{
    for (int i = 0; i < MO_STORE_MATRICES; i++) {
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
        reads[n++] = &mo_store_slot_of(s, experts[i])->reads[MO_STORE_GATE];
        reads[n++] = &mo_store_slot_of(s, experts[i])->reads[MO_STORE_UP];
    }
    for (int i = 0; i < count; i++) {
        reads[n++] = &mo_store_slot_of(s, experts[i])->reads[MO_STORE_DOWN];
    }
    if (n > 0) {
        mo_disk_submit(s->disk, reads, n);
    }
}

mo_status mo_store_check(mo_store *s, int32_t expert_id, mo_error *err)
{
    const mo_expert_home *home = &s->experts->home[expert_id];
    for (int i = 0; i < MO_STORE_MATRICES && !s->checked[expert_id]; i++) {
        const mo_expert_part *part = &s->experts->parts[home->first + i];
        const mo_status status = mo_format_check(part->matrix->type, part->matrix->data, part->bytes, err);
        if (status != MO_OK) {
            return mo_fail_prefix(err, status, "%s: layer %d, expert %d", mo_checkpoint_path(s->model),
                                  home->layer, home->expert);
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
    for (int i = 0; i < MO_STORE_MATRICES; i++) {
        if (mo_read_failed(&slot->reads[i])) {
            const mo_error *e = &slot->reads[i].error;
            return mo_fail(err, e->status, "layer %d, expert %d could not be read: %s", home->layer,
                           home->expert, e->detail);
        }
    }
    return MO_OK;
}

void mo_store_count_guess(mo_store *s, int32_t expert_id, const mo_store_slot_reads *slot)
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
        if (slot->guess != MO_GUESS_NONE) { /* not needed yet */
            if (good) {
                mo_store_count_guess(s, expert_id, slot);
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

/* ---- Instruments ---- */

mo_store_counters mo_store_count(const mo_store *s)
{
    mo_store_counters c = s->counters;
    c.disk = mo_disk_count(s->disk);
    return c;
}

void mo_store_slots(const mo_store *s, int32_t *slots, int32_t *filled, int64_t *bytes)
{
    *slots = *filled = 0;
    *bytes = 0;
    for (int i = 0; i < s->class_count; i++) {
        const mo_store_class *c = &s->classes[i];
        *slots += c->slot_count;
        *filled += c->slot_count - mo_slots_free(c->slots);
        *bytes += (int64_t)c->memory_bytes;
    }
}

const mo_disk *mo_store_disk(const mo_store *s)
{
    return s->disk;
}

const mo_policy *mo_store_policy(const mo_store *s)
{
    return s->policy;
}

const mo_expert_table *mo_store_experts(const mo_store *s)
{
    return s->experts;
}

uint8_t *mo_store_region(const mo_store *s, int number, size_t *bytes)
{
    *bytes = number < s->class_count ? s->classes[number].memory_bytes : 0;
    return number < s->class_count ? s->classes[number].memory : NULL;
}

/* ---- Opening ---- */

static mo_status open_class(mo_store *s, int index, int32_t slots, mo_error *err)
{
    const mo_expert_class *from = &s->experts->classes[index];
    mo_store_class *c = &s->classes[index];
    if (slots < from->used) {
        return mo_fail(err, MO_EINVAL,
                       "%d slots are too few for the %d experts of %lld bytes that a token needs", slots,
                       from->used, (long long)from->slot_bytes);
    }
    c->slot_count = slots < from->count ? slots : from->count;
    c->slot_bytes = from->slot_bytes;
    c->expert_id = from->expert_id;
    c->memory_bytes = (size_t)c->slot_count * (size_t)c->slot_bytes;
    c->memory = mo_host_alloc_huge(c->memory_bytes);
    c->slot = calloc((size_t)c->slot_count, sizeof *c->slot);
    s->class_count = index + 1;
    if (!c->memory || !c->slot) {
        return mo_fail(
            err, MO_ENOMEM,
            "%.1f MiB for %d experts are not available; free some memory or choose a smaller `ram_bytes`",
            (double)c->memory_bytes / (1 << 20), c->slot_count);
    }
    const mo_status status = mo_slots_create(s->policy, from->count, c->slot_count, &c->slots, err);
    for (int32_t i = 0; i < from->count && status == MO_OK; i++) {
        mo_slots_place(c->slots, i, s->experts->home[from->expert_id[i]].layer);
    }
    return status;
}

/* Memory that must not be swapped out: the plan counted on it. */
static void lock_memory(const mo_store *s)
{
    for (int i = 0; i < s->class_count; i++) {
        if (mlock(s->classes[i].memory, s->classes[i].memory_bytes) != 0) {
            mo_log(MO_LOG_WARN, "store",
                   "the expert cache could not be locked in RAM (see ulimit "
                   "-l); under memory pressure the system may swap parts of it");
            return;
        }
    }
}

static mo_status open_disk(mo_store *s, const mo_store_options *options, mo_error *err)
{
    uint8_t *regions[MO_EXPERT_CLASSES];
    size_t bytes[MO_EXPERT_CLASSES];
    for (int i = 0; i < s->class_count; i++) {
        regions[i] = s->classes[i].memory;
        bytes[i] = s->classes[i].memory_bytes;
    }
    return mo_expert_table_open_disk(s->model, &options->disk, regions, bytes, s->class_count, &s->disk, err);
}

static mo_status open_store(mo_store *s, const mo_store_options *options, mo_error *err)
{
    mo_status status = MO_OK;
    int32_t slots = 0;
    s->policy = options->policy ? options->policy : mo_policy_at(0);
    for (int i = 0; i < s->experts->class_count && status == MO_OK; i++) {
        status = open_class(s, i, options->class_slots[i], err);
        slots += s->classes[i].slot_count;
    }
    if (status != MO_OK) {
        return status;
    }
    s->guess_limit = slots / 4;
    s->checked = calloc((size_t)s->experts->count + 1, sizeof *s->checked);
    s->on_device = calloc((size_t)s->experts->count + 1, sizeof *s->on_device);
    s->guesses = calloc((size_t)s->guess_limit + 1, sizeof *s->guesses);
    if (!s->checked || !s->on_device || !s->guesses) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the store; free some and try again");
    }
    for (int32_t i = 0; i < s->experts->count; i++) {
        const mo_expert_home *home = &s->experts->home[i];
        s->checked[i] = true;
        for (int m = 0; m < home->parts; m++) {
            s->checked[i] &= !mo_format_needs_check(s->experts->parts[home->first + m].matrix->type);
        }
    }
    status = open_disk(s, options, err);
    if (status == MO_OK) {
        lock_memory(s);
    }
    return status;
}

mo_status mo_store_open(const mo_checkpoint *model, const mo_expert_table *experts,
                        const mo_store_options *options, mo_store **out, mo_error *err)
{
    mo_store *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the store; free some and try again");
    }
    s->experts = experts;
    s->model = model;
    s->static_set = options->static_set;
    const mo_status status = open_store(s, options, err);
    if (status != MO_OK) {
        mo_store_close(s);
        return status;
    }
    *out = s;
    return MO_OK;
}

void mo_store_close(mo_store *s)
{
    if (!s) {
        return;
    }
    mo_disk_close(s->disk); /* nothing writes into the slots after this */
    for (int i = 0; i < s->class_count; i++) {
        mo_store_class *c = &s->classes[i];
        mo_slots_destroy(c->slots);
        free(c->slot);
        if (c->memory) {
            mo_host_free_huge(c->memory, c->memory_bytes);
        }
    }
    free(s->checked);
    free(s->on_device);
    free(s->guesses);
    free(s);
}
