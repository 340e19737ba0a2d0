#include "store/layer_buffer.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/status.h"

typedef struct layer_slot {
    mo_read reads[MO_EXPERT_PARTS];
    int32_t expert_id; /* contents, present or being read; -1: none */
} layer_slot;

/* Streamed layers are numbered in model order. Position p of the endless stream is layer p mod count and uses
 * slot p mod slot_count. */
struct mo_layer_buffer {
    const mo_expert_table *experts;
    mo_disk *disk;
    uint8_t *memory; /* of the slots, or for matrices read in pieces; NULL: no longer needed */
    size_t memory_bytes;
    layer_slot *slot; /* [slot_count] */
    int slot_count;
    int32_t *order; /* [count] indices in the table; as many as are on disk */
    int count;
    bool *checked;  /* [layers of the model] */
    uint64_t head;  /* position of the next layer to compute */
    uint64_t asked; /* position after the last one that was requested */
    mo_layer_buffer_counters counters;
};

static layer_slot *slot_at(const mo_layer_buffer *s, uint64_t position)
{
    return &s->slot[position % (uint64_t)s->slot_count];
}

static int32_t expert_at(const mo_layer_buffer *s, uint64_t position)
{
    return s->order[position % (uint64_t)s->count];
}

static void ask(mo_layer_buffer *s, uint64_t position)
{
    layer_slot *slot = slot_at(s, position);
    mo_read *reads[MO_EXPERT_PARTS];
    slot->expert_id = expert_at(s, position);
    const mo_expert_home *home = &s->experts->home[slot->expert_id];
    for (int i = 0; i < home->parts; i++) {
        const mo_expert_part *part = &s->experts->parts[home->first + i];
        mo_read *r = &slot->reads[i];
        r->part = part->file;
        r->offset = part->offset;
        r->bytes = part->bytes;
        r->memory = s->memory + (size_t)(slot - s->slot) * (size_t)s->experts->layer_bytes + part->at;
        r->urgency = MO_READ_AHEAD;
        atomic_store_explicit(&r->state, MO_READ_IDLE, memory_order_relaxed);
        reads[i] = r;
    }
    mo_disk_submit(s->disk, reads, home->parts);
}

/* Keeps the slots full from head on. */
static void fill(mo_layer_buffer *s)
{
    for (; s->count > 0 && s->asked < s->head + (uint64_t)s->slot_count; s->asked++) {
        ask(s, s->asked);
    }
}

static int read_state(const mo_read *r)
{
    return atomic_load_explicit(&r->state, memory_order_acquire);
}

/* Waits until every read of the slot has ended, successfully or not. */
static void settle(mo_layer_buffer *s, const layer_slot *slot)
{
    mo_disk_finish(s->disk, slot->reads, s->experts->home[slot->expert_id].parts);
}

/* The next position of this layer; -1: it is not streamed. */
static int64_t position_of(const mo_layer_buffer *s, int layer)
{
    for (int i = 0; i < s->count; i++) {
        const uint64_t position = s->head + (uint64_t)i;
        if (s->experts->home[expert_at(s, position)].layer == layer) {
            return (int64_t)position;
        }
    }
    return -1;
}

static mo_status deliver(mo_layer_buffer *s, const layer_slot *slot, mo_error *err)
{
    const mo_expert_home *home = &s->experts->home[slot->expert_id];
    bool *checked = &s->checked[home->layer];
    for (int i = 0; i < home->parts; i++) {
        const mo_expert_part *part = &s->experts->parts[home->first + i];
        const mo_read *r = &slot->reads[i];
        mo_status status = MO_OK;
        if (read_state(r) == MO_READ_FAILED) {
            status = mo_fail(err, r->error.status, "%s", r->error.detail);
        } else {
            part->matrix->data = mo_disk_data(r);
            status =
                *checked ? MO_OK : mo_format_check(part->matrix->type, part->matrix->data, part->bytes, err);
        }
        if (status != MO_OK) {
            return mo_fail_prefix(err, status, "layer %d could not be read", home->layer);
        }
    }
    *checked = true;
    return MO_OK;
}

/* ---- Slots ---- */

static mo_status allocate_memory(mo_layer_buffer *s, size_t bytes, const char *what, mo_error *err)
{
    s->memory = mo_host_alloc_huge(bytes);
    s->memory_bytes = s->memory ? bytes : 0;
    return s->memory ? MO_OK
                     : mo_fail(err, MO_ENOMEM,
                               "%.1f MiB for %s are not available; free some memory or choose a smaller "
                               "`ram_bytes`",
                               (double)bytes / (1 << 20), what);
}

static void free_memory(mo_layer_buffer *s)
{
    if (s->memory) {
        mo_host_free_huge(s->memory, s->memory_bytes);
    }
    s->memory = NULL;
    s->memory_bytes = 0;
}

static mo_status allocate_slots(mo_layer_buffer *s, int slots, mo_error *err)
{
    const size_t bytes = (size_t)slots * (size_t)s->experts->layer_bytes;
    s->slot = calloc((size_t)slots, sizeof *s->slot);
    const mo_status status = s->slot ? allocate_memory(s, bytes, "buffers for streamed layers", err)
                                     : mo_fail(err, MO_ENOMEM, "out of memory for streamed layers");
    s->slot_count = status == MO_OK ? slots : 0;
    if (status != MO_OK) {
        free(s->slot);
        s->slot = NULL;
    }
    return status;
}

/* Allocates slots after all: the plan had a device for the layers, and it is lost. */
static mo_status make_slots(mo_layer_buffer *s, mo_error *err)
{
    enum { LEAST = 2 };
    free_memory(s);
    const mo_status status = allocate_slots(s, LEAST, err);
    if (status == MO_OK) {
        mo_log(MO_LOG_WARN, "tiers",
               "%d layers that only the device had are now read from disk for every step, through buffers of "
               "%.1f MiB that the plan does not count",
               s->count, (double)s->memory_bytes / (1 << 20));
    }
    return status;
}

/* ---- Entering and leaving ---- */

/* True if the layer is streamed and not skipped. */
static bool concerns(const mo_layer_buffer *s, int layer)
{
    return s->experts->layer[layer] >= 0 && position_of(s, layer) >= 0;
}

mo_status mo_layer_buffer_enter(mo_layer_buffer *s, int layer, mo_error *err)
{
    if (!concerns(s, layer)) {
        return MO_OK;
    }
    mo_status status = s->slot_count ? MO_OK : make_slots(s, err);
    if (status != MO_OK) {
        return status;
    }
    const int64_t began = mo_clock_ns();
    const uint64_t position = (uint64_t)position_of(s, layer);
    while (s->head < position) { /* a failed step did not use these */
        if (s->head < s->asked) {
            settle(s, slot_at(s, s->head));
        }
        s->head++;
        s->asked = s->asked > s->head ? s->asked : s->head;
    }
    fill(s);
    const layer_slot *slot = slot_at(s, s->head);
    settle(s, slot);
    s->counters.wait_ns += (uint64_t)(mo_clock_ns() - began);
    status = deliver(s, slot, err);
    if (status != MO_OK) { /* it is read again when it is entered again */
        for (uint64_t p = s->head + 1; p < s->asked; p++) {
            settle(s, slot_at(s, p));
        }
        s->asked = s->head;
        return status;
    }
    s->counters.layers++;
    s->counters.bytes += (uint64_t)s->experts->home[slot->expert_id].bytes;
    return MO_OK;
}

void mo_layer_buffer_leave(mo_layer_buffer *s, int layer)
{
    if (concerns(s, layer)) {
        s->head++;
        fill(s);
    }
}

bool mo_layer_buffer_has(const mo_layer_buffer *s, int layer)
{
    if (!concerns(s, layer) || (uint64_t)position_of(s, layer) != s->head || s->asked <= s->head) {
        return !concerns(s, layer);
    }
    const layer_slot *slot = slot_at(s, s->head);
    bool there = true;
    for (int i = 0; i < s->experts->home[slot->expert_id].parts; i++) {
        const int state = read_state(&slot->reads[i]);
        there = there && (state == MO_READ_DONE || state == MO_READ_FAILED);
    }
    return there;
}

static void list_layers(mo_layer_buffer *s, const bool *except)
{
    s->count = 0;
    for (int i = 0; i < s->experts->layers; i++) {
        if (s->experts->layer[i] >= 0 && !(except && except[i])) {
            s->order[s->count++] = s->experts->layer[i];
        }
    }
}

void mo_layer_buffer_skip(mo_layer_buffer *s, const bool *layers)
{
    for (uint64_t p = s->head; p < s->asked; p++) {
        settle(s, slot_at(s, p));
    }
    list_layers(s, layers);
    s->head = s->asked = 0;
    if (s->slot_count == 0 && s->count == 0) {
        free_memory(s);
    }
    fill(s);
}

/* ---- Matrices read once ---- */

enum { PASS_PIECES = 4 }; /* concurrent reads: enough to keep a disk busy */

typedef struct passing {
    mo_read reads[PASS_PIECES];
    int64_t piece, slot; /* bytes of a piece; of its memory */
    int count;
} passing;

static const mo_expert_part *part_of(const mo_layer_buffer *s, int layer, const mo_weights *matrix)
{
    const int32_t id = s->experts->layer[layer];
    const mo_expert_home *home = id < 0 ? NULL : &s->experts->home[id];
    for (int i = 0; home && i < home->parts; i++) {
        if (s->experts->parts[home->first + i].matrix == matrix) {
            return &s->experts->parts[home->first + i];
        }
    }
    return NULL;
}

bool mo_layer_buffer_leaves(const mo_layer_buffer *s, int layer, const mo_weights *matrix)
{
    return part_of(s, layer, matrix) != NULL;
}

/* Cuts into pieces of whole blocks, so that their codes can be validated. */
static passing divide(const mo_layer_buffer *s, const mo_expert_part *part)
{
    enum { SLOT_LEAST = 4 * MO_DISK_ALIGN };
    const int64_t all = (int64_t)s->memory_bytes, block = mo_format_of(part->matrix->type)->block_bytes;
    passing p = {.count = PASS_PIECES};
    while (p.count > 1 && all / p.count < SLOT_LEAST) {
        p.count--;
    }
    p.slot = all / p.count / MO_DISK_ALIGN * MO_DISK_ALIGN;
    p.piece = (p.slot - MO_DISK_ALIGN) / block * block;
    return p;
}

static void ask_piece(mo_layer_buffer *s, const mo_expert_part *part, passing *p, int64_t at)
{
    const int number = (int)(at / p->piece % p->count);
    mo_read *r = &p->reads[number];
    *r = (mo_read){.part = part->file,
                   .offset = part->offset + at,
                   .bytes = part->bytes - at < p->piece ? part->bytes - at : p->piece,
                   .memory = s->memory + number * p->slot,
                   .urgency = MO_READ_AHEAD};
    mo_disk_submit(s->disk, &r, 1);
}

static void settle_read(mo_layer_buffer *s, const mo_read *r)
{
    uint64_t seen = mo_disk_ended(s->disk);
    while (read_state(r) == MO_READ_QUEUED) {
        seen = mo_disk_wait(s->disk, seen);
    }
}

static mo_status take_piece(mo_layer_buffer *s, const mo_expert_part *part, const mo_read *r,
                            mo_layer_piece_fn take, void *user, mo_error *err)
{
    settle_read(s, r);
    if (read_state(r) == MO_READ_FAILED) {
        return mo_fail(err, r->error.status, "%s", r->error.detail);
    }
    const mo_status status = mo_format_check(part->matrix->type, mo_disk_data(r), r->bytes, err);
    return status == MO_OK ? take(user, r->offset - part->offset, mo_disk_data(r), r->bytes, err) : status;
}

mo_status mo_layer_buffer_read(mo_layer_buffer *s, int layer, const mo_weights *matrix,
                               mo_layer_piece_fn take, void *user, mo_error *err)
{
    const mo_expert_part *part = part_of(s, layer, matrix);
    passing p = divide(s, part);
    mo_status status = MO_OK;
    int64_t asked = 0, taken = 0;
    while (taken < part->bytes && status == MO_OK) {
        for (; asked < part->bytes && asked < taken + p.count * p.piece; asked += p.piece) {
            ask_piece(s, part, &p, asked);
        }
        status = take_piece(s, part, &p.reads[taken / p.piece % p.count], take, user, err);
        taken += p.piece;
    }
    for (; taken < asked; taken += p.piece) { /* after a failure nothing is written into the memory */
        settle_read(s, &p.reads[taken / p.piece % p.count]);
    }
    return status == MO_OK ? MO_OK : mo_fail_prefix(err, status, "layer %d could not be read", layer);
}

/* ---- Opening ---- */

uint8_t *mo_layer_buffer_region(const mo_layer_buffer *s, size_t *bytes)
{
    *bytes = s->memory_bytes;
    return s->memory;
}

mo_layer_buffer_counters mo_layer_buffer_count(const mo_layer_buffer *s)
{
    mo_layer_buffer_counters c = s->counters;
    c.disk = mo_disk_count(s->disk);
    return c;
}

const mo_disk *mo_layer_buffer_disk(const mo_layer_buffer *s)
{
    return s->disk;
}

static mo_status open_memory(mo_layer_buffer *s, int slots, int64_t pass_bytes, mo_error *err)
{
    for (int i = 0; i < s->experts->layers; i++) {
        s->count += s->experts->layer[i] >= 0;
    }
    if (s->count == 0) {
        return mo_fail(err, MO_EINVAL, "no layer was left on disk: there is nothing to stream");
    }
    s->order = calloc((size_t)s->count, sizeof *s->order);
    s->checked = calloc((size_t)s->experts->layers, sizeof *s->checked);
    if (!s->order || !s->checked) {
        return mo_fail(err, MO_ENOMEM, "out of memory for streamed layers; free some and try again");
    }
    list_layers(s, NULL);
    return slots ? allocate_slots(s, slots < s->count ? slots : s->count, err)
                 : allocate_memory(s, (size_t)pass_bytes, "reading layers", err);
}

mo_status mo_layer_buffer_open(const mo_checkpoint *model, const mo_expert_table *experts, int slots,
                               int64_t pass_bytes, const mo_disk_options *disk, mo_layer_buffer **out,
                               mo_error *err)
{
    mo_layer_buffer *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) {
        return mo_fail(err, MO_ENOMEM, "out of memory while streaming; free some and try again");
    }
    s->experts = experts;
    mo_status status = open_memory(s, slots, pass_bytes, err);
    if (status == MO_OK) { /* memory that is freed before the disk is closed cannot be registered */
        status = mo_expert_table_open_disk(model, disk, &s->memory, &s->memory_bytes, slots ? 1 : 0, &s->disk,
                                           err);
    }
    if (status != MO_OK) {
        mo_layer_buffer_close(s);
        return status;
    }
    *out = s;
    return MO_OK;
}

void mo_layer_buffer_close(mo_layer_buffer *s)
{
    if (!s) {
        return;
    }
    mo_disk_close(s->disk); /* nothing writes into the slots after this */
    free_memory(s);
    free(s->slot);
    free(s->order);
    free(s->checked);
    free(s);
}
