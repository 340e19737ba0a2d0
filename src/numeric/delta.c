#include "numeric/delta.h"

#include <string.h>

#include "numeric/math.h"

/* Channels from `first` on, by a weight of their own. */
static void convolve_part(const mo_kernels *k, const mo_delta_rule *d, const float *const *rows,
                          const float *weight, int64_t first, int64_t n, float *after)
{
    const float *part[MO_DELTA_TAPS];
    for (int j = 0; j < d->taps; j++) {
        part[j] = rows[j] + first;
    }
    k->convolve(after + first, part, weight, d->taps, n, n);
}

static void convolve(const mo_kernels *k, const mo_delta_rule *d, const float *const *rows, float *after)
{
    const int64_t keys = d->k_heads * d->head, values = d->v_heads * d->head;
    if (!d->k_conv) {
        convolve_part(k, d, rows, d->conv, 0, 2 * keys + values, after);
        return;
    }
    convolve_part(k, d, rows, d->conv, 0, keys, after);
    convolve_part(k, d, rows, d->k_conv, keys, keys, after);
    convolve_part(k, d, rows, d->v_conv, 2 * keys, values, after);
}

void mo_delta_convolve(const mo_kernels *k, const mo_delta_rule *d, const float *before, int64_t into,
                       const float *kept, float *after)
{
    const int64_t channels = mo_delta_channels(d->k_heads, d->v_heads, d->head);
    const float *rows[MO_DELTA_TAPS];
    for (int j = 0; j < d->taps; j++) {
        const int64_t back = d->taps - 1 - j;
        rows[j] = into >= back ? before - back * channels : kept + (into + j) * channels;
    }
    convolve(k, d, rows, after);
    k->silu(after, after, channels);
    for (int h = 0; h < 2 * d->k_heads; h++) {
        k->l2_norm(after + h * d->head, after + h * d->head, d->head, d->eps);
    }
}

void mo_conv_keep(const float *before, int64_t channels, int taps, int64_t count, float *kept)
{
    const int64_t keep = taps - 1, stay = keep > count ? keep - count : 0;
    memmove(kept, kept + (keep - stay) * channels, sizeof(float) * (size_t)(stay * channels));
    for (int64_t j = stay; j < keep; j++) {
        memcpy(kept + j * channels, before + (count - keep + j) * channels, sizeof(float) * (size_t)channels);
    }
}

void mo_delta_keep(const mo_delta_rule *d, const float *before, int64_t count, float *kept)
{
    mo_conv_keep(before, mo_delta_channels(d->k_heads, d->v_heads, d->head), d->taps, count, kept);
}

/* beta and decay of value head h. */
static void gates_of(const mo_delta_rule *d, const float *gates, int h, float *beta, float *decay)
{
    const int r = d->v_heads / d->k_heads;
    const float b = d->paired ? gates[2 * r * (h / r) + h % r] : gates[h];
    const float a = d->paired ? gates[2 * r * (h / r) + r + h % r] : gates[d->v_heads + h];
    *beta = mo_sigmoid(b);
    *decay = mo_exp(d->a[h] * mo_softplus(a + d->dt[h]));
}

void mo_delta_decays(const mo_kernels *k, const mo_delta_rule *d, float *gates)
{
    for (int h = 0; d->decay != MO_DECAY_HEADS && h < d->v_heads; h++) {
        k->decay(gates + h * d->head, d->dt + h * d->head, d->a[h], d->bound, d->head);
    }
}

/* o = o * silu(z) or o * sigmoid(z), in pieces. */
static void gate_by(const mo_kernels *k, mo_decay decay, float *o, const float *z, int64_t n)
{
    void (*const open)(float *y, const float *x, int64_t n) = decay == MO_DECAY_HEADS ? k->silu : k->sigmoid;
    float g[128];
    const int64_t most = sizeof g / sizeof *g;
    for (int64_t i = 0; i < n; i += most) {
        const int64_t count = n - i < most ? n - i : most;
        open(g, z + i, count);
        k->multiply(o + i, g, count);
    }
}

void mo_delta_step(const mo_kernels *k, const mo_delta_rule *d, int h, const float *after, const float *gates,
                   const float *z, float scale, float *state, float *out)
{
    const int64_t n = d->head;
    const int key_head = d->tiled ? h % d->k_heads : h / (d->v_heads / d->k_heads);
    const float *query = after + key_head * n;
    const float *key = after + (d->k_heads + key_head) * n;
    const float *value = after + (2 * d->k_heads + h) * n;
    if (d->decay == MO_DECAY_HEADS) {
        float beta, decay;
        gates_of(d, gates, h, &beta, &decay);
        k->delta(state, n, n, query, key, value, decay, beta, scale, out);
    } else {
        const float beta = mo_sigmoid(gates[d->v_heads * n + h]);
        k->delta_rows(state, n, n, query, key, value, gates + h * n, beta, scale, out);
    }
    k->rms_norm(out, out, d->norm, n, d->eps);
    gate_by(k, d->decay, out, z, n);
}
