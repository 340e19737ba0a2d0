#include "gpu/kv_staging.h"

#include <string.h>

#include "gpu/session.h"
#include "plan/kv_in_ram.h"

_Static_assert((int)MO_PLAN_KV_BLOCK == (int)MO_KV_BLOCK, "plans count blocks of as many positions");

/* ---- Staged slices ----------------------------------------------------------------------------- */

static bool invites(const mo_gpu *gpu, const mo_slice *s, int layer)
{
    const mo_attention *a = &gpu->core.spec->layers[layer].attention;
    return gpu->kv_in_ram.layers[layer] && mo_plan_brings(s->count, a->heads / a->kv_heads);
}

static bool invites_somewhere(const mo_gpu *gpu, const mo_slice *s)
{
    bool any = false;
    for (int i = 0; i < gpu->core.spec->layer_count && !any; i++) {
        any = invites(gpu, s, i);
    }
    return any;
}

/* Lists the first slices of the batch, as many as fit the tables. */
static void list_staged(const mo_gpu *gpu, const mo_forward *forward, int64_t limit, mo_gpu_kv_staging *g)
{
    int64_t used = 0;
    for (int i = 0; i < forward->slice_count && g->count < GPU_KV_STAGED; i++) {
        const mo_slice *s = &forward->slices[i];
        const int64_t blocks = (s->state->length + s->count + MO_KV_BLOCK - 1) / MO_KV_BLOCK;
        if (s->count > 1 && used + blocks <= limit && invites_somewhere(gpu, s)) {
            g->staged[g->count++] = (mo_gpu_staged_slice){.slice = i, .blocks = blocks};
            used += blocks;
        }
    }
}

/* ---- Locations ----------------------------------------------------------------------------------- */

/* The data for the device, in RAM. */
typedef struct sent {
    mo_gpu_kv_staging_list at;
    mo_dplace *places;
    mo_dstate *states; /* [staged slices][layers] */
    mo_daddr *entries;
    mo_daddr seen; /* its address on the device */
} sent;

static sent sent_of(const mo_gpu *gpu)
{
    const mo_gpu_kv_staging_list at = mo_gpu_kv_staging_list_of(&gpu->scratch);
    uint8_t *memory = gpu->scratch.pinned.kv_staging;
    return (sent){.at = at,
                  .places = (mo_dplace *)(void *)(memory + at.places),
                  .states = (mo_dstate *)(void *)(memory + at.states),
                  .entries = (mo_daddr *)(void *)(memory + at.entries),
                  .seen = gpu->scratch.kv_staging};
}

static mo_dstate *state_of(const sent *t, const mo_gpu *gpu, int staged, int layer)
{
    return t->states + staged * gpu->core.spec->layer_count + layer;
}

/* The table of a staged slice in a layer, if it has its own. */
static mo_daddr *entries_of(const sent *t, const mo_dstate *d)
{
    return t->entries + (d->blocks - t->seen - (mo_daddr)t->at.entries) / sizeof(mo_daddr);
}

static int64_t stride_of(const mo_state *state, int layer)
{
    return mo_block_aligned(state->there.layer[layer].bytes);
}

/* Assigns space from *at on to blocks of one slice, as far as it lasts; blocks that are in VRAM already stay
 * there. */
static void place_slice(const mo_gpu *gpu, const mo_state *state, int layer, int64_t blocks, mo_daddr *at,
                        mo_daddr *entry, mo_dstate *d)
{
    const mo_daddr *home = mo_gpu_session_entries(gpu, state, layer);
    const mo_daddr end = gpu->scratch.idle + (mo_daddr)gpu->scratch.idle_bytes;
    const mo_daddr stride = (mo_daddr)stride_of(state, layer);
    bool even = true;
    for (int64_t n = 0; n < blocks; n++) {
        const bool comes = *at + stride <= end && mo_gpu_kv_in_ram_find(&gpu->kv_in_ram, home[n]);
        entry[n] = comes ? *at : home[n];
        *at += comes ? stride : 0;
        even &= entry[n] == entry[0] + (mo_daddr)n * stride;
    }
    d->length = blocks; /* later blocks are not visible */
    d->first = even ? entry[0] : 0;
    d->stride = even ? (int64_t)stride : 0;
}

/* Every layer uses the same space. */
static int64_t place_all(const mo_gpu *gpu, const mo_forward *forward, const mo_gpu_kv_staging *g,
                         const sent *t)
{
    int64_t used = 0;
    for (int k = 0; k < g->count; k++) {
        const mo_state *state = forward->slices[g->staged[k].slice].state;
        memcpy(state_of(t, gpu, k, 0), mo_gpu_session_of(state, gpu)->host,
               sizeof(mo_dstate) * (size_t)gpu->core.spec->layer_count);
    }
    for (int i = 0; i < gpu->core.spec->layer_count; i++) {
        mo_daddr at = gpu->scratch.idle;
        for (int k = 0; k < g->count; k++) {
            const mo_slice *s = &forward->slices[g->staged[k].slice];
            mo_dstate *d = state_of(t, gpu, k, i);
            if (invites(gpu, s, i)) {
                d->blocks = t->seen + (mo_daddr)t->at.entries + (mo_daddr)used * sizeof(mo_daddr);
                place_slice(gpu, s->state, i, g->staged[k].blocks, &at, t->entries + used, d);
                used += g->staged[k].blocks;
            }
        }
    }
    return used;
}

/* As in the step's block, except the tables of staged slices. */
static void write_places(const mo_gpu *gpu, const mo_forward *forward, const mo_gpu_kv_staging *g,
                         const sent *t)
{
    const mo_gpu_block b = mo_gpu_block_of(&gpu->scratch, forward->tokens);
    memcpy(t->places, gpu->scratch.pinned.block + b.places, sizeof(mo_dplace) * (size_t)forward->tokens);
    for (int64_t token = 0; token < forward->tokens; token++) {
        for (int k = 0; k < g->count; k++) {
            if (t->places[token].slice == g->staged[k].slice) {
                t->places[token].layers =
                    t->seen + (mo_daddr)((uint8_t *)state_of(t, gpu, k, 0) - gpu->scratch.pinned.kv_staging);
            }
        }
    }
}

mo_status mo_gpu_kv_staging_begin(mo_gpu *gpu, const mo_forward *forward, mo_gpu_kv_staging *g, mo_error *err)
{
    *g = (mo_gpu_kv_staging){.tokens = forward->tokens};
    if (!gpu->kv_in_ram.layers) {
        return MO_OK;
    }
    const sent t = sent_of(gpu);
    list_staged(gpu, forward, t.at.limit, g);
    if (g->count == 0) {
        return MO_OK;
    }
    const int64_t entries = place_all(gpu, forward, g, &t);
    write_places(gpu, forward, g, &t);
    return mo_gpu_link_put(&gpu->link, gpu->link.main, t.seen, gpu->scratch.pinned.kv_staging,
                           (size_t)t.at.entries + sizeof(mo_daddr) * (size_t)entries, err);
}

mo_daddr mo_gpu_kv_staging_positions(const mo_gpu_kv_staging *g, const mo_gpu *gpu, int layer)
{
    return g->count && gpu->kv_in_ram.layers[layer] ? gpu->scratch.kv_staging : 0;
}

/* ---- Copies --------------------------------------------------------------------------------------- */

/* Blocks that are consecutive on both sides are copied together. */
static mo_status bring_slice(mo_gpu *gpu, const mo_state *state, int layer, int64_t blocks,
                             const mo_daddr *entry, mo_error *err)
{
    const mo_daddr *home = mo_gpu_session_entries(gpu, state, layer);
    const mo_daddr stride = (mo_daddr)stride_of(state, layer);
    mo_status status = MO_OK;
    for (int64_t n = 0, run; n < blocks && status == MO_OK; n += run) {
        run = 1;
        if (entry[n] == home[n]) {
            continue;
        }
        while (n + run < blocks && entry[n + run] == entry[n] + (mo_daddr)run * stride &&
               home[n + run] == home[n] + (mo_daddr)run * stride &&
               mo_gpu_kv_in_ram_same(&gpu->kv_in_ram, home[n], home[n + run])) {
            run++;
        }
        const size_t bytes = (size_t)run * stride;
        status = mo_gpu_link_put(&gpu->link, gpu->link.main, entry[n],
                                 mo_gpu_kv_in_ram_find(&gpu->kv_in_ram, home[n]), bytes, err);
        gpu->kv_in_ram.brought += bytes;
    }
    return status;
}

mo_status mo_gpu_kv_staging_launch(const mo_gpu_kv_staging *g, mo_gpu *gpu, const mo_forward *forward,
                                   const mo_gpu_ops *ops, int layer, mo_error *err)
{
    const sent t = sent_of(gpu);
    mo_gpu_ops part = *ops;
    for (part.count = 0; part.count < ops->count && ops->ops[part.count].kind != MO_OP_ATTEND;) {
        part.count++;
    }
    mo_status status = mo_gpu_ops_launch(&part, &gpu->link, gpu->link.main, err);
    for (int k = 0; k < g->count && status == MO_OK; k++) {
        const mo_slice *s = &forward->slices[g->staged[k].slice];
        if (invites(gpu, s, layer)) {
            status = bring_slice(gpu, s->state, layer, g->staged[k].blocks,
                                 entries_of(&t, state_of(&t, gpu, k, layer)), err);
        }
    }
    part.ops += part.count;
    part.count = ops->count - part.count;
    return status == MO_OK ? mo_gpu_ops_launch(&part, &gpu->link, gpu->link.main, err) : status;
}
