/* Opening and closing a store, and its counters. */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/host.h"
#include "base/log.h"
#include "base/status.h"
#include "experts/state.h"

/* ---- Counters ---- */

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

/* Locks the memory in RAM: the plan assumes that it is not swapped out. */
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

static mo_status open_disk(mo_store *s, const mo_checkpoint *model, const mo_store_options *options,
                           mo_error *err)
{
    uint8_t *regions[MO_EXPERT_CLASSES];
    size_t bytes[MO_EXPERT_CLASSES];
    for (int i = 0; i < s->class_count; i++) {
        regions[i] = s->classes[i].memory;
        bytes[i] = s->classes[i].memory_bytes;
    }
    return mo_expert_table_open_disk(model, &options->disk, regions, bytes, s->class_count, &s->disk, err);
}

static mo_status open_store(mo_store *s, const mo_checkpoint *model, const mo_store_options *options,
                            mo_error *err)
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
    status = open_disk(s, model, options, err);
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
    s->path = mo_checkpoint_path(model);
    s->static_set = options->static_set;
    const mo_status status = open_store(s, model, options, err);
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
