#include "engine/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* ---- Sizes ------------------------------------------------------------------------------------ */

static int64_t delta_channels(const mo_delta *d)
{
    return (2 * (int64_t)d->k_heads + d->v_heads) * d->head;
}

static int64_t conv_bytes(const mo_delta *d)
{
    return ((d->taps - 1) * delta_channels(d) * 4 + 63) / 64 * 64;
}

static mo_kv_shape shape_of(const mo_attention *a, mo_kv_type kv)
{
    return (mo_kv_shape){.type = kv, .heads = a->kv_heads, .k_len = (int)a->k_len, .v_len = (int)a->v_len};
}

static mo_block_need need_of(const mo_layer *l, mo_kv_type kv, int64_t context, int64_t batch)
{
    if (l->mixer == MO_MIXER_DELTA) {
        const mo_delta *d = &l->delta;
        return (mo_block_need){.bytes = conv_bytes(d) + (int64_t)d->v_heads * d->head * d->head * 4,
                               .count = 1};
    }
    return (mo_block_need){.bytes = mo_kv_block_bytes(shape_of(&l->attention, kv)),
                           .count = mo_kv_table_length(context, l->attention.window, batch)};
}

size_t mo_state_bytes(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch)
{
    size_t bytes = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        const mo_block_need need = need_of(&spec->layers[i], kv, context, batch);
        bytes += mo_block_pool_bytes(&need, 1, 1);
    }
    return bytes;
}

int64_t mo_state_entries(const mo_model_spec *spec, int64_t context, int64_t batch)
{
    int64_t entries = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        entries += need_of(&spec->layers[i], MO_KV_F16, context, batch).count;
    }
    return entries;
}

/* ---- Opening and closing ---------------------------------------------------------------------- */

mo_status mo_state_pool(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch, int states,
                        mo_block_pool **out, mo_error *err)
{
    const size_t layers = (size_t)spec->layer_count;
    mo_block_need *needs = calloc(layers, sizeof *needs);
    for (size_t i = 0; needs && i < layers; i++) {
        needs[i] = need_of(&spec->layers[i], kv, context, batch);
    }
    *out = needs ? mo_block_pool_open(needs, spec->layer_count, states) : NULL;
    free(needs);
    return *out ? MO_OK
                : mo_fail(err, MO_ENOMEM,
                          "the state of a session with %lld positions needs %.1f MiB, which cannot be had; "
                          "choose a smaller `context` or a smaller `kv` format",
                          (long long)context, (double)mo_state_bytes(spec, kv, context, batch) / (1 << 20));
}

static void hold_layer(mo_state *s, int index, uint8_t **table)
{
    mo_state_layer *l = &s->layers[index];
    const mo_layer *layer = &s->spec->layers[index];
    const mo_block_need need = need_of(layer, s->kv, s->context, s->batch);
    *l = (mo_state_layer){.blocks = table, .length = need.count};
    for (int64_t i = 0; i < l->length; i++) {
        l->blocks[i] = mo_block_acquire(s->pool, index);
    }
    if (layer->mixer == MO_MIXER_DELTA) {
        const mo_delta *d = &layer->delta;
        l->conv_values = (d->taps - 1) * delta_channels(d);
        l->delta_values = (int64_t)d->v_heads * d->head * d->head;
        l->conv = (float *)(void *)l->blocks[0];
        l->delta = (float *)(void *)(l->blocks[0] + conv_bytes(d));
        s->recurrent = true;
    } else {
        l->kv = shape_of(&layer->attention, s->kv);
        l->circular = l->length * MO_KV_BLOCK < s->context;
    }
}

mo_status mo_state_init_in(mo_state *s, mo_block_pool *pool, const mo_model_spec *spec, mo_kv_type kv,
                           int64_t context, int64_t batch, mo_error *err)
{
    const size_t layers = (size_t)spec->layer_count;
    *s = (mo_state){.spec = spec, .kv = kv, .context = context, .batch = batch, .cleared = true};
    s->bytes = mo_state_bytes(spec, kv, context, batch);
    s->layers = calloc(layers, sizeof *s->layers);
    s->tables = calloc((size_t)mo_state_entries(spec, context, batch) + 1, sizeof *s->tables);
    if (!s->layers || !s->tables) {
        mo_state_drop(s);
        return mo_fail(err, MO_ENOMEM, "no memory for the tables of a session's state");
    }
    s->pool = pool;
    uint8_t **table = s->tables;
    for (int i = 0; i < spec->layer_count; i++) {
        hold_layer(s, i, table);
        table += s->layers[i].length;
    }
    return MO_OK;
}

mo_status mo_state_init(mo_state *s, const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch,
                        mo_error *err)
{
    mo_block_pool *pool;
    *s = (mo_state){0};
    mo_status status = mo_state_pool(spec, kv, context, batch, 1, &pool, err);
    if (status != MO_OK) {
        return status;
    }
    status = mo_state_init_in(s, pool, spec, kv, context, batch, err);
    if (status != MO_OK) {
        mo_block_pool_close(pool);
        return status;
    }
    s->owns_pool = true;
    s->memory = mo_block_pool_memory(pool);
    return MO_OK;
}

void mo_state_drop(mo_state *s)
{
    for (int i = 0; s->layers && s->pool && !s->owns_pool && i < s->spec->layer_count; i++) {
        for (int64_t b = 0; s->layers[i].blocks && b < s->layers[i].length; b++) {
            mo_block_release(s->pool, i, s->layers[i].blocks[b]);
        }
    }
    if (s->owns_pool) {
        mo_block_pool_close(s->pool);
    }
    free(s->tables);
    free(s->layers);
    *s = (mo_state){0};
}

/* ---- Forgetting ------------------------------------------------------------------------------- */

void mo_state_reset(mo_state *s)
{
    for (int i = 0; i < s->spec->layer_count; i++) {
        mo_state_layer *l = &s->layers[i];
        if (l->conv) {
            memset(l->conv, 0, (size_t)l->conv_values * sizeof(float));
            memset(l->delta, 0, (size_t)l->delta_values * sizeof(float));
        }
    }
    s->length = s->written = s->restored = 0;
    s->cleared = true;
}

/* The first position that a token at `position` sees in a layer. */
static int64_t first_seen(const mo_state *s, int layer, int64_t position)
{
    const int64_t window = s->spec->layers[layer].attention.window;
    return window && position >= window ? position - window + 1 : 0;
}

bool mo_state_trim(mo_state *s, int64_t length)
{
    if (length >= s->length) {
        return length == s->length;
    }
    if (length == 0) {
        mo_state_reset(s);
        return true;
    }
    if (s->recurrent) {
        return false;
    }
    for (int i = 0; i < s->spec->layer_count; i++) {
        const mo_state_layer *l = &s->layers[i];
        const int64_t oldest = first_seen(s, i, length);
        const bool overwritten = l->circular && oldest + l->length * MO_KV_BLOCK < s->written;
        if (overwritten || (length < s->restored && oldest < first_seen(s, i, s->restored))) {
            return false;
        }
    }
    s->length = length;
    return true;
}

/* ---- Sharing ---------------------------------------------------------------------------------- */

void mo_state_share(mo_state *to, mo_state *from)
{
    for (int i = 0; i < to->spec->layer_count; i++) {
        mo_state_layer *t = &to->layers[i];
        const mo_state_layer *f = &from->layers[i];
        if (t->conv) {
            memcpy(t->conv, f->conv, sizeof(float) * (size_t)t->conv_values);
            memcpy(t->delta, f->delta, sizeof(float) * (size_t)t->delta_values);
            continue;
        }
        for (int64_t b = 0; b < t->length && b * MO_KV_BLOCK < from->length; b++) {
            mo_block_share(to->pool, i, f->blocks[b]);
            mo_block_release(to->pool, i, t->blocks[b]);
            t->blocks[b] = f->blocks[b];
        }
    }
    to->length = from->length;
    to->written = from->written;
    to->restored = from->restored;
    to->sharing = from->sharing = true;
}

void mo_state_own(mo_state *s, int64_t begin, int64_t end)
{
    for (int i = 0; s->sharing && i < s->spec->layer_count; i++) {
        const mo_state_layer *l = &s->layers[i];
        for (int64_t u = begin; !l->conv && u < end; u += MO_KV_BLOCK - u % MO_KV_BLOCK) {
            uint8_t **entry = &l->blocks[mo_kv_entry(u, l->length)];
            if (mo_block_is_shared(s->pool, i, *entry)) {
                uint8_t *own = mo_block_acquire(s->pool, i);
                memcpy(own, *entry, (size_t)mo_kv_block_bytes(l->kv));
                mo_block_release(s->pool, i, *entry);
                *entry = own;
            }
        }
    }
}

mo_kv_head mo_state_head(const mo_state *s, int layer, int kv_head)
{
    const mo_state_layer *l = &s->layers[layer];
    return mo_kv_head_of(l->kv, kv_head, l->blocks, l->length);
}

/* ---- Saving -----------------------------------------------------------------------------------
 * A windowed layer saves the positions its window can still see at the saved length; what a longer table
 * holds besides is left out. */

static int64_t first_kept(const mo_state *s, int layer)
{
    return first_seen(s, layer, s->length);
}

size_t mo_state_saved_bytes(const mo_state *s)
{
    size_t bytes = 0;
    for (int i = 0; i < s->spec->layer_count; i++) {
        const mo_state_layer *l = &s->layers[i];
        if (l->conv) {
            bytes += (size_t)(l->conv_values + l->delta_values) * sizeof(float);
        } else {
            const int64_t kept = s->length - first_kept(s, i);
            bytes += (size_t)(kept * (mo_kv_block_bytes(l->kv) / MO_KV_BLOCK));
        }
    }
    return bytes;
}

/* Moves every saved piece between the state and `saved`, in one fixed order. */
static void transfer(const mo_state *s, uint8_t *saved, bool out)
{
    uint8_t *at = saved;
    for (int i = 0; i < s->spec->layer_count; i++) {
        const mo_state_layer *l = &s->layers[i];
        uint8_t *pieces[2] = {(uint8_t *)l->conv, (uint8_t *)l->delta};
        const int64_t sizes[2] = {l->conv_values * 4, l->delta_values * 4};
        for (int p = 0; l->conv && p < 2; p++) {
            memcpy(out ? at : pieces[p], out ? pieces[p] : at, (size_t)sizes[p]);
            at += sizes[p];
        }
        const int heads = l->conv ? 0 : l->kv.heads;
        for (int h = 0; h < heads; h++) {
            const mo_kv_head kv = mo_state_head(s, i, h);
            for (int64_t u = first_kept(s, i); u < s->length; u++) {
                uint8_t *k = mo_kv_key(&kv, u);
                uint8_t *v = mo_kv_value(&kv, u);
                memcpy(out ? at : k, out ? k : at, (size_t)kv.k_bytes);
                at += kv.k_bytes;
                memcpy(out ? at : v, out ? v : at, (size_t)kv.v_bytes);
                at += kv.v_bytes;
            }
        }
    }
}

void mo_state_save(const mo_state *s, uint8_t *out)
{
    transfer(s, out, true);
}

mo_status mo_state_restore(mo_state *s, const uint8_t *saved, size_t bytes, int64_t length, mo_error *err)
{
    if (length < 0 || length > s->context) {
        return mo_fail(
            err, MO_EINVAL,
            "the saved state has %lld positions, this session holds %lld; choose a larger `context`",
            (long long)length, (long long)s->context);
    }
    const int64_t before = s->length;
    s->length = length;
    if (mo_state_saved_bytes(s) != bytes) {
        s->length = before;
        return mo_fail(err, MO_EINVAL,
                       "the saved state has %zu bytes where this model and `kv` format need others; it "
                       "belongs to another "
                       "model or format, so start anew",
                       bytes);
    }
    s->written = s->restored = length;
    mo_state_own(s, 0, length);
    transfer(s, (uint8_t *)saved, false);
    return MO_OK;
}
