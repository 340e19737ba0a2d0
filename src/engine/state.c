#include "engine/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "base/status.h"

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* A window keeps what its oldest query of a batch may see, in whole chunks. */
static int64_t capacity_of(const mo_attention *a, int64_t context, int64_t batch)
{
    const int64_t ring = round_up(a->window + batch, MO_CHUNK);
    return a->window && ring < context ? ring : context;
}

static int64_t delta_channels(const mo_delta *d)
{
    return (2 * (int64_t)d->k_heads + d->v_heads) * d->head;
}

/* Lays one layer out at `at` (NULL: only counts); returns its bytes. */
static size_t lay(mo_state_layer *out, const mo_layer *l, mo_kv_type kv, int64_t context, int64_t batch,
                  uint8_t *at)
{
    mo_state_layer s = {0};
    size_t bytes = 0;
    if (l->mixer == MO_MIXER_ATTENTION) {
        const mo_attention *a = &l->attention;
        s.capacity = capacity_of(a, context, batch);
        s.ring = s.capacity < context;
        s.k_bytes = mo_kv_bytes(kv, a->k_len);
        s.v_bytes = mo_kv_bytes(kv, a->v_len);
        s.k = at;
        bytes = (size_t)round_up(a->kv_heads * s.capacity * s.k_bytes, 64);
        s.v = at ? at + bytes : NULL;
        bytes += (size_t)round_up(a->kv_heads * s.capacity * s.v_bytes, 64);
    } else {
        const mo_delta *d = &l->delta;
        s.conv_values = (d->taps - 1) * delta_channels(d);
        s.delta_values = (int64_t)d->v_heads * d->head * d->head;
        s.conv = (float *)at;
        bytes = (size_t)round_up(s.conv_values * 4, 64);
        s.delta = at ? (float *)(at + bytes) : NULL;
        bytes += (size_t)round_up(s.delta_values * 4, 64);
    }
    if (out) {
        *out = s;
    }
    return bytes;
}

size_t mo_state_bytes(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch)
{
    size_t bytes = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        bytes += lay(NULL, &spec->layers[i], kv, context, batch, NULL);
    }
    return bytes;
}

mo_status mo_state_init(mo_state *s, const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch,
                        mo_error *err)
{
    *s = (mo_state){.spec = spec, .kv = kv, .context = context, .batch = batch, .cleared = true};
    s->bytes = mo_state_bytes(spec, kv, context, batch);
    s->layers = calloc((size_t)spec->layer_count, sizeof *s->layers);
    s->memory = mo_host_alloc_huge(s->bytes);
    if (!s->layers || !s->memory) {
        mo_state_drop(s);
        return mo_fail(
            err, MO_ENOMEM,
            "the state of a session with %lld positions needs %.1f MiB, which cannot be had; choose a "
            "smaller --ctx or a smaller --kv format",
            (long long)context, (double)mo_state_bytes(spec, kv, context, batch) / (1 << 20));
    }
    uint8_t *at = s->memory;
    for (int i = 0; i < spec->layer_count; i++) {
        at += lay(&s->layers[i], &spec->layers[i], kv, context, batch, at);
        s->recurrent |= spec->layers[i].mixer == MO_MIXER_DELTA;
    }
    return MO_OK;
}

void mo_state_drop(mo_state *s)
{
    if (s->memory) {
        mo_host_free_huge(s->memory, s->bytes);
    }
    free(s->layers);
    *s = (mo_state){0};
}

void mo_state_reset(mo_state *s)
{
    for (int i = 0; i < s->spec->layer_count; i++) {
        mo_state_layer *l = &s->layers[i];
        if (l->conv) {
            memset(l->conv, 0, (size_t)l->conv_values * sizeof(float));
            memset(l->delta, 0, (size_t)l->delta_values * sizeof(float));
        }
    }
    s->length = s->written = 0;
    s->cleared = true;
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
        const int64_t window = s->spec->layers[i].attention.window;
        const int64_t oldest = length >= window ? length - window + 1 : 0;
        if (l->ring && oldest + l->capacity < s->written) {
            return false;
        }
    }
    s->length = length;
    return true;
}

mo_kv_head mo_state_head(const mo_state *s, int layer, int kv_head)
{
    const mo_state_layer *l = &s->layers[layer];
    const mo_attention *a = &s->spec->layers[layer].attention;
    return (mo_kv_head){
        .type = s->kv,
        .k = l->k + kv_head * l->capacity * l->k_bytes,
        .v = l->v + kv_head * l->capacity * l->v_bytes,
        .k_stride = l->k_bytes,
        .v_stride = l->v_bytes,
        .k_len = a->k_len,
        .v_len = a->v_len,
        .ring = l->ring ? l->capacity : 0,
    };
}

uint8_t *mo_state_key(const mo_state *s, int layer, int kv_head, int64_t u)
{
    const mo_state_layer *l = &s->layers[layer];
    return l->k + (kv_head * l->capacity + (l->ring ? u % l->capacity : u)) * l->k_bytes;
}

uint8_t *mo_state_value(const mo_state *s, int layer, int kv_head, int64_t u)
{
    const mo_state_layer *l = &s->layers[layer];
    return l->v + (kv_head * l->capacity + (l->ring ? u % l->capacity : u)) * l->v_bytes;
}

/* ---- Saving -----------------------------------------------------------------------------------
 * A windowed layer saves the positions its window can still see at the saved length; what a longer ring
 * holds besides is left out. */

static int64_t first_kept(const mo_state *s, int layer)
{
    const int64_t window = s->spec->layers[layer].attention.window;
    return window && s->length >= window ? s->length - window + 1 : 0;
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
            bytes += (size_t)(s->spec->layers[i].attention.kv_heads * kept * (l->k_bytes + l->v_bytes));
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
        const int heads = l->conv ? 0 : s->spec->layers[i].attention.kv_heads;
        for (int h = 0; h < heads; h++) {
            for (int64_t u = first_kept(s, i); u < s->length; u++) {
                uint8_t *k = mo_state_key(s, i, h, u);
                uint8_t *v = mo_state_value(s, i, h, u);
                memcpy(out ? at : k, out ? k : at, (size_t)l->k_bytes);
                at += l->k_bytes;
                memcpy(out ? at : v, out ? v : at, (size_t)l->v_bytes);
                at += l->v_bytes;
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
        return mo_fail(err, MO_EINVAL,
                       "the saved state has %lld positions, this session holds %lld; choose a larger --ctx",
                       (long long)length, (long long)s->context);
    }
    const int64_t before = s->length;
    s->length = length;
    if (mo_state_saved_bytes(s) != bytes) {
        s->length = before;
        return mo_fail(err, MO_EINVAL,
                       "the saved state has %zu bytes where this model and --kv format need others; it "
                       "belongs to another "
                       "model or format, so start anew",
                       bytes);
    }
    s->written = length;
    transfer(s, (uint8_t *)saved, false);
    return MO_OK;
}
