#include "gpu/session.h"

#include <stdlib.h>

#include "base/status.h"
#include "gpu/requirements.h"

/* ---- Blocks ------------------------------------------------------------------------------------ */

/* Kinds of blocks. With one device: 0 its memory, 1 RAM, for layers whose KV cache is in RAM. With several:
 * the index of each device, or RAM for a lost one. */
static mo_gpu *of_kind(mo_gpu *head, int kind)
{
    mo_gpu *gpu = head;
    while (head->parts > 1 && gpu->part < kind) {
        gpu = gpu->next;
    }
    return gpu;
}

static mo_status take(void *owner, int kind, int64_t bytes, uint64_t *address, mo_error *err)
{
    mo_gpu *head = owner, *gpu = of_kind(head, kind);
    return (head->parts == 1 && kind) || gpu->lost
               ? mo_gpu_kv_in_ram_take(&gpu->kv_in_ram, bytes, address, err)
               : mo_gpu_memory_alloc(&gpu->memory, bytes, "the state of sessions", address, err);
}

static void give(void *owner, int kind, uint64_t address, int64_t bytes)
{
    mo_gpu *head = owner, *gpu = of_kind(head, kind);
    if ((head->parts == 1 && kind) || (gpu->lost && mo_gpu_kv_in_ram_find(&gpu->kv_in_ram, address))) {
        mo_gpu_kv_in_ram_give(&gpu->kv_in_ram, address);
    } else {
        mo_gpu_memory_free(&gpu->memory, address, bytes);
    }
}

mo_block_pool *mo_gpu_session_pool(void *owner, mo_kv_type kv)
{
    mo_gpu *gpu = owner;
    return atomic_load(&gpu->pools[kv]);
}

/* The pool of a format, opened with its first session. In a turn. */
static mo_status find_pool(mo_gpu *gpu, const mo_model_spec *spec, mo_kv_type kv, mo_block_pool **out,
                           mo_error *err)
{
    const mo_block_source source = {.owner = gpu,
                                    .take = take,
                                    .give = give,
                                    .kind = gpu->kinds,
                                    .kinds = gpu->parts > 1 ? gpu->parts : 2,
                                    .apart = gpu->parts > 1};
    mo_state_size size = gpu->states;
    mo_status status = MO_OK;
    size.kv = kv;
    *out = atomic_load(&gpu->pools[kv]);
    if (!*out) {
        status = mo_state_pool(spec, &size, kv == gpu->states.kv, &source, out, err);
        atomic_store(&gpu->pools[kv], *out);
    }
    return status;
}

/* ---- Tables ------------------------------------------------------------------------------------ */

/* Writes a layer's table with its blocks' current addresses. Entries without a block get a readable address,
 * because the whole table may be read. */
static void fill_layer(const mo_blocks *blocks, int layer, mo_dstate *out, mo_daddr *entry)
{
    const mo_blocks_layer *l = &blocks->layer[layer];
    const int64_t stride = mo_block_aligned(l->bytes); /* of contiguous blocks of a state */
    mo_daddr some = 0, first = 0;
    bool even = true;
    mo_blocks_addresses(blocks, layer, entry);
    for (int64_t e = 0; e < l->length; e++) {
        if (entry[e] && !some) {
            some = entry[e];
            first = some - (mo_daddr)(e * stride);
        }
        even &= !entry[e] || entry[e] == first + (mo_daddr)(e * stride);
    }
    for (int64_t e = 0; e < l->length; e++) {
        entry[e] = entry[e] ? entry[e] : even ? first + (mo_daddr)(e * stride) : some;
    }
    out->first = even && !l->recurrent ? first : 0;
    out->stride = even && !l->recurrent ? stride : 0;
}

const mo_daddr *mo_gpu_session_entries(const mo_gpu *gpu, const mo_state *state, int layer)
{
    const mo_gpu_session *s = mo_gpu_session_of(state, gpu);
    return (const mo_daddr *)(const void *)((const uint8_t *)s->host + (s->host[layer].blocks - s->table));
}

static mo_status send_table(mo_gpu *gpu, const mo_state *state, mo_gpu_session *s, mo_error *err)
{
    const int layers = state->spec->layer_count;
    const mo_daddr entries = s->table + (mo_daddr)layers * sizeof *s->host;
    mo_daddr *entry = (mo_daddr *)(void *)(s->host + layers);
    int64_t used = 0;
    if (s->sent && s->changes == state->there.changes) {
        return MO_OK;
    }
    for (int i = 0; i < layers; i++) {
        const mo_state_layer *l = &state->layers[i];
        mo_dstate *d = &s->host[i];
        *d = (mo_dstate){.blocks = entries + (mo_daddr)used * sizeof *entry, .length = l->length};
        fill_layer(&state->there, i, d, entry + used);
        if (l->recurrent) {
            d->conv = entry[used];
            d->delta = entry[used] + (mo_daddr)l->delta_at;
        }
        used += l->length;
    }
    mo_status status;
    int tries = 0;
    do {
        status = mo_copy_in(gpu->link.main, s->table, s->host, (size_t)s->bytes, err);
    } while (mo_gpu_link_again(&gpu->link, gpu->link.main, &tries, &status, err));
    s->sent = status == MO_OK;
    s->changes = state->there.changes;
    return mo_gpu_link_vital(status, err);
}

/* ---- Opening and closing -----------------------------------------------------------------------*/

/* Opens a table on every device. */
static mo_status open_tables(mo_gpu *head, mo_state *state, mo_error *err)
{
    mo_status status = MO_OK;
    for (mo_gpu *gpu = head; gpu && status == MO_OK; gpu = gpu->next) {
        mo_gpu_session *s = mo_gpu_session_of(state, gpu);
        if (gpu->lost) {
            continue;
        }
        status = mo_gpu_memory_alloc(&gpu->memory, s->bytes, "the table of a session", &s->table, err);
        if (status == MO_OK) { /* detects a lost device here, not after the session has begun */
            status = send_table(gpu, state, s, err);
            status = status == MO_OK ? mo_dstream_wait(gpu->link.main, err) : status;
        }
    }
    return status;
}

void mo_gpu_session_drop_row(mo_gpu *gpu, mo_gpu_session *s)
{
    for (int i = 0; i < GPU_LOGITS_KEPT && atomic_load(&s->kept); i++) {
        if (gpu->kept_logits[i] == s) {
            gpu->kept_logits[i] = NULL;
            atomic_store(&s->kept, false);
        }
    }
}

static void close_tables(mo_gpu *head, mo_state *state)
{
    for (mo_gpu *gpu = head; gpu; gpu = gpu->next) {
        mo_gpu_session *s = mo_gpu_session_of(state, gpu);
        mo_gpu_session_drop_row(gpu, s);
        if (s->logits) {
            mo_device_release(gpu->memory.device, s->logits);
        }
        mo_gpu_memory_free(&gpu->memory, s->table, s->bytes);
        free(s->host);
    }
    free(state->gpu_session);
    state->gpu_session = NULL;
}

static mo_status allocate(mo_gpu *gpu, mo_state *state, mo_error *err)
{
    mo_block_pool *pool;
    mo_status status = find_pool(gpu, state->spec, state->kv, &pool, err);
    if (status == MO_OK) {
        mo_block_pool_sweep(pool); /* left by closed sessions */
        status = mo_state_blocks(state, pool, MO_HOLDS, 0, &state->there, err);
    }
    if (status == MO_OK) {
        status = open_tables(gpu, state, err);
    }
    if (status != MO_OK && state->there.pool) {
        mo_blocks_drop(&state->there);
        mo_block_pool_sweep(pool);
    }
    if (status != MO_OK) {
        close_tables(gpu, state);
    }
    return status;
}

mo_status mo_gpu_session_open(void *owner, mo_state *state, mo_error *err)
{
    mo_gpu *gpu = owner;
    const int64_t bytes = mo_gpu_session_table_bytes(state->spec, state->context, state->batch);
    mo_gpu_session *s = calloc((size_t)gpu->parts, sizeof *s);
    bool listed = s != NULL;
    for (int i = 0; listed && i < gpu->parts; i++) {
        s[i] = (mo_gpu_session){.bytes = bytes, .host = calloc(1, (size_t)bytes)};
        listed = s[i].host != NULL;
    }
    if (!listed) {
        for (int i = 0; s && i < gpu->parts; i++) {
            free(s[i].host);
        }
        free(s);
        return mo_fail(err, MO_ENOMEM, "out of memory for a session on the device");
    }
    state->gpu_session = s;
    state->accelerator = &gpu->accelerator;
    mo_gpu_turn_begin(&gpu->turn);
    const mo_status status = allocate(gpu, state, err);
    mo_gpu_turn_end(&gpu->turn);
    return status;
}

void mo_gpu_session_adopt(mo_state *state, float *logits, size_t bytes)
{
    mo_gpu *head = state->accelerator->owner;
    const mo_gpu *last = mo_gpu_with_layer(head, head->core.spec->layer_count - 1);
    mo_error refused = {0};
    mo_gpu_turn_begin(&head->turn);
    if (!last->lost && mo_device_adopt(last->memory.device, logits, bytes, &refused) == MO_OK) {
        mo_gpu_session_of(state, last)->logits = logits;
    }
    mo_gpu_turn_end(&head->turn);
}

/* Accepted drafts of the last step may still be being applied to states that are about to be released. */
static void settle_drafts(mo_gpu *gpu)
{
    mo_error ignored = {0};
    if (gpu->drafts.applying && !gpu->lost) {
        mo_dstream_wait(gpu->link.main, &ignored);
        gpu->drafts.applying = false;
    }
}

void mo_gpu_session_close(mo_state *state)
{
    if (!state->gpu_session) {
        return;
    }
    mo_gpu *gpu = state->accelerator->owner;
    mo_gpu_turn_begin(&gpu->turn);
    for (mo_gpu *g = gpu; g; g = g->next) {
        settle_drafts(g);
    }
    mo_block_pool *pool = state->there.pool;
    mo_blocks_drop(&state->there);
    mo_block_pool_sweep(pool); /* the gpu's, which outlives the session */
    close_tables(gpu, state);
    mo_gpu_turn_end(&gpu->turn);
}

/* ---- Before a step ------------------------------------------------------------------------------ */

typedef struct exchange {
    mo_gpu *head;
    const mo_blocks *blocks;
    bool any; /* something was copied or cleared */
} exchange;

static mo_status change_block(void *ctx, const mo_block_change *c, mo_error *err)
{
    exchange *x = ctx;
    const mo_blocks_layer *l = &x->blocks->layer[c->layer];
    if (c->from < 0 && !l->recurrent) {
        return MO_OK;
    }
    x->any = true;
    mo_gpu *gpu = mo_gpu_with_layer(x->head, c->layer);
    mo_status status;
    int tries = 0;
    do {
        status = c->from < 0
                     ? mo_gpu_kv_in_ram_clear(&gpu->kv_in_ram, gpu->link.main, c->to_at, l->bytes, err)
                     : mo_gpu_kv_in_ram_copy_within(&gpu->kv_in_ram, gpu->link.main, c->to_at, c->from_at,
                                                    l->bytes, err);
    } while (mo_gpu_link_again(&gpu->link, gpu->link.main, &tries, &status, err));
    return mo_gpu_link_vital(status, err);
}

/* Waits until the device, or all devices, have completed their work. */
static mo_status wait_for(mo_gpu *gpu, mo_error *err)
{
    return gpu->lost ? MO_OK : mo_dstream_wait(gpu->link.main, err);
}

static mo_status wait_for_all(mo_gpu *head, mo_error *err)
{
    mo_status status = MO_OK;
    for (mo_gpu *gpu = head; gpu && status == MO_OK; gpu = gpu->next) {
        status = wait_for(gpu, err);
    }
    return status;
}

/* Waits for copies, which are rare, so that a failure is known before the state is used. */
static mo_status own(mo_gpu *head, mo_state *state, int64_t begin, int64_t end, const bool *only,
                     mo_error *err)
{
    exchange x = {.head = head, .blocks = &state->there};
    mo_status status = mo_blocks_own(&state->there, begin, end, only, change_block, &x, err);
    if (x.any) {
        mo_error late = {0};
        const mo_status waited = wait_for_all(head, &late);
        if (waited != MO_OK) { /* some block may not have the contents that the table says */
            mo_state_reset(state);
            *err = late;
            status = waited;
        }
    }
    return status;
}

mo_status mo_gpu_session_own(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < forward->slice_count && status == MO_OK; i++) {
        mo_state *s = forward->slices[i].state;
        for (const mo_gpu *g = gpu; g; g = g->next) {
            mo_gpu_session_of(s, g)->hosted &= !s->anew;
        }
        status = own(gpu, s, s->length, s->length + forward->slices[i].count, NULL, err);
    }
    return status;
}

mo_status mo_gpu_session_send(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < forward->slice_count && status == MO_OK; i++) {
        const mo_state *s = forward->slices[i].state;
        status = send_table(gpu, s, mo_gpu_session_of(s, gpu), err);
    }
    return status;
}

void mo_gpu_session_doubt(const mo_gpu *gpu, const mo_forward *forward)
{
    for (int i = 0; i < forward->slice_count; i++) {
        for (int part = 0; forward->slices[i].state->gpu_session && part < gpu->parts; part++) {
            forward->slices[i].state->gpu_session[part].sent = false;
        }
    }
}

/* ---- Copies to RAM and back -------------------------------------------------------------------- */

/* Blocks that are consecutive on both sides are copied together. */
typedef struct run {
    uint64_t to, from;
    int64_t bytes;
} run;

static mo_status cross(mo_gpu *gpu, const run *r, bool to_device, mo_error *err)
{
    if (r->bytes == 0) {
        return MO_OK;
    }
    return to_device ? mo_gpu_kv_in_ram_copy_in(&gpu->kv_in_ram, gpu->link.main, r->to,
                                                (const void *)(uintptr_t)r->from, r->bytes, err)
                     : mo_gpu_kv_in_ram_copy_out(&gpu->kv_in_ram, gpu->link.main, (void *)(uintptr_t)r->to,
                                                 r->from, r->bytes, err);
}

/* A layer's blocks of positions begin .. length - 1. */
static mo_status copy_layer(mo_gpu *gpu, const mo_blocks *to, const mo_blocks *from, int layer, int64_t begin,
                            int64_t length, bool to_device, mo_error *err)
{
    const mo_blocks_layer *t = &to->layer[layer], *f = &from->layer[layer];
    const mo_blocks_span span = mo_blocks_span_of(t, f, length);
    const int64_t earliest = t->recurrent ? 0 : begin / MO_KV_BLOCK;
    const int64_t stride = mo_block_aligned(t->bytes);
    mo_status status = MO_OK;
    run r = {0};
    for (int64_t n = span.first > earliest ? span.first : earliest; n < span.end && status == MO_OK; n++) {
        const uint64_t there = mo_blocks_address(to, layer, n % t->length);
        const uint64_t here = mo_blocks_address(from, layer, n % f->length);
        if (!there || !here) {
            continue;
        }
        const uint64_t at = to_device ? there : here, last = to_device ? r.to : r.from;
        if (r.bytes && mo_gpu_kv_in_ram_same(&gpu->kv_in_ram, at, last) &&
            there == r.to + (uint64_t)r.bytes && here == r.from + (uint64_t)r.bytes) {
            r.bytes += stride;
        } else {
            status = cross(gpu, &r, to_device, err);
            r = (run){.to = there, .from = here, .bytes = stride};
        }
    }
    return status == MO_OK ? cross(gpu, &r, to_device, err) : status;
}

mo_status mo_gpu_session_copy(void *owner, mo_blocks *to, const mo_blocks *from, int64_t length,
                              bool to_device, mo_error *err)
{
    mo_gpu *gpu = owner;
    mo_gpu_turn_begin(&gpu->turn);
    mo_status status = mo_blocks_match(to, from, length, err);
    for (int i = 0; i < to->layers && length > 0 && status == MO_OK; i++) {
        status = copy_layer(mo_gpu_with_layer(gpu, i), to, from, i, 0, length, to_device, err);
    }
    if (status == MO_OK) {
        status = wait_for_all(gpu, err);
    }
    mo_gpu_turn_end(&gpu->turn);
    return status;
}

/* ---- Layers that the CPU computes -------------------------------------------------------------- */

static mo_status move_layers(mo_gpu *gpu, mo_state *s, int64_t begin, bool to_device, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < gpu->core.spec->layer_count && status == MO_OK; i++) {
        if (gpu->layer_buffer.cpu.layers[i]) {
            status = to_device ? copy_layer(gpu, &s->there, &s->here, i, begin, s->length, true, err)
                               : copy_layer(gpu, &s->here, &s->there, i, begin, s->length, false, err);
        }
    }
    return status;
}

static mo_status move(mo_gpu *gpu, mo_state *s, int64_t begin, bool to_device, mo_error *err)
{
    mo_status status;
    int tries = 0;
    do {
        status = move_layers(gpu, s, begin, to_device, err);
    } while (mo_gpu_link_again(&gpu->link, gpu->link.main, &tries, &status, err));
    return status == MO_OK ? wait_for(gpu, err) : mo_gpu_link_vital(status, err);
}

/* Copies newer state from RAM to the device. */
static mo_status return_state(mo_gpu *gpu, mo_state *s, mo_error *err)
{
    mo_gpu_session *g = mo_gpu_session_of(s, gpu);
    g->hosted = g->hosted && !s->anew;
    if (!g->hosted) {
        return MO_OK;
    }
    const int64_t begin = g->hosted_from < s->length ? g->hosted_from : s->length;
    mo_status status = MO_OK;
    if (begin < s->length) {
        status = own(gpu->head, s, begin, s->length, gpu->layer_buffer.cpu.layers, err);
        status = status == MO_OK ? move(gpu, s, begin, true, err) : status;
    }
    g->hosted = status != MO_OK && s->length > 0;
    return status;
}

mo_status mo_gpu_session_settle(mo_state *state, mo_error *err)
{
    mo_gpu *head = state->accelerator->owner;
    mo_status status = MO_OK;
    for (mo_gpu *gpu = head; gpu && status == MO_OK; gpu = gpu->next) {
        if (mo_gpu_session_of(state, gpu)->hosted && !state->anew) {
            mo_gpu_turn_begin(&head->turn);
            status = return_state(gpu, state, err);
            mo_gpu_turn_end(&head->turn);
        }
    }
    return status;
}

/* A lost device's blocks are in RAM and already unshared for this step: the CPU computes with them. */
static void see(const mo_gpu *gpu, mo_state *s)
{
    mo_gpu_session_of(s, gpu)->hosted = false;
    for (int i = gpu->core.first; i < gpu->core.end; i++) {
        mo_state_see_there(s, i);
    }
}

static mo_status bring(mo_gpu *gpu, mo_state *s, int64_t count, mo_error *err)
{
    mo_gpu_session *g = mo_gpu_session_of(s, gpu);
    if (gpu->lost) {
        see(gpu, s);
        return MO_OK;
    }
    const int64_t begin = g->hosted ? s->length : 0;
    mo_status status = mo_state_own(s, begin, s->length + count, gpu->layer_buffer.cpu.layers, err);
    if (status == MO_OK && !g->hosted) {
        status = move(gpu, s, 0, false, err);
        g->hosted = status == MO_OK;
        g->hosted_from = s->length;
    }
    g->hosted_from = s->length < g->hosted_from ? s->length : g->hosted_from;
    return status;
}

mo_status mo_gpu_cpu_state_bring(mo_gpu *gpu, const mo_forward *forward, bool small, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < forward->slice_count && gpu->layer_buffer.cpu.count && status == MO_OK; i++) {
        mo_state *s = forward->slices[i].state;
        status = small ? bring(gpu, s, forward->slices[i].count, err) : return_state(gpu, s, err);
    }
    return status;
}
