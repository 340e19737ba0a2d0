/* The delta-rule mixer: products, causal convolution, the recurrence head by head, gated norm, output. */
#include <math.h>
#include <string.h>

#include "engine/forward.h"
#include "numeric/math.h"

static int64_t channels_of(const mo_delta *d)
{
    return (2 * (int64_t)d->k_heads + d->v_heads) * d->head;
}

/* The products before the convolution are the first half of w->q, those after it the second. */
static float *before(const mo_forward *forward, int64_t t)
{
    return forward->w->q + t * channels_of(&forward->layer->delta);
}

static float *after(const mo_forward *forward, int64_t t)
{
    return forward->w->q + (forward->tokens + t) * channels_of(&forward->layer->delta);
}

static void convolve(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_delta *d = &forward->layer->delta;
    const int64_t channels = channels_of(d);
    for (int64_t t = begin; t < end; t++) {
        const mo_state *state = forward->w->state_of[t];
        const int64_t into = forward->w->position[t] - state->length; /* of its slice */
        const float *rows[16];
        for (int j = 0; j < d->taps; j++) {
            const int64_t back = d->taps - 1 - j;
            rows[j] = into >= back ? before(forward, t - back)
                                   : state->layers[forward->index].conv + (into + j) * channels;
        }
        float *c = after(forward, t);
        forward->k->convolve(c, rows, d->conv, d->taps, channels);
        forward->k->silu(c, c, channels);
        for (int h = 0; h < 2 * d->k_heads; h++) {
            forward->k->l2_norm(c + h * d->head, c + h * d->head, d->head, forward->spec->eps);
        }
    }
}

/* The last taps-1 inputs of each slice are what its next step's first tokens look back to. */
static void keep_inputs(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_delta *d = &forward->layer->delta;
    const int64_t channels = channels_of(d);
    for (int64_t i = begin; i < end; i++) {
        const mo_slice *slice = &forward->slices[i];
        float *kept = slice->state->layers[forward->index].conv;
        const int64_t keep = d->taps - 1;
        int64_t first = 0;
        for (int64_t n = 0; n < i; n++) {
            first += forward->slices[n].count;
        }
        const int64_t stay = keep > slice->count ? keep - slice->count : 0;
        memmove(kept, kept + (keep - stay) * channels, sizeof(float) * (size_t)(stay * channels));
        for (int64_t j = stay; j < keep; j++) {
            memcpy(kept + j * channels, before(forward, first + slice->count - keep + j),
                   sizeof(float) * (size_t)channels);
        }
    }
}

/* beta and decay of value head h for token t. */
static void gates(const mo_forward *forward, int64_t t, int h, float *beta, float *decay)
{
    const mo_delta *d = &forward->layer->delta;
    const float *row = forward->w->v + t * 2 * d->v_heads;
    const int r = d->v_heads / d->k_heads;
    float b, a;
    if (mo_linear_present(&d->ba)) { /* per key head: r betas, then r alphas */
        b = row[2 * r * (h / r) + h % r];
        a = row[2 * r * (h / r) + r + h % r];
    } else {
        b = row[h];
        a = row[d->v_heads + h];
    }
    *beta = mo_sigmoid(b);
    *decay = mo_exp(d->a[h] * mo_softplus(a + d->dt[h]));
}

/* One value head of one slice: its tokens one after the other. */
static void recur_head(const mo_forward *forward, int64_t slice, int64_t first, int h)
{
    const mo_delta *d = &forward->layer->delta;
    const int64_t n = d->head;
    const int key_head = d->tiled ? h % d->k_heads : h / (d->v_heads / d->k_heads);
    const float scale = 1.0f / sqrtf((float)n);
    float *state = forward->slices[slice].state->layers[forward->index].delta + h * n * n;
    for (int64_t t = first; t < first + forward->slices[slice].count; t++) {
        const float *c = after(forward, t);
        const float *q = c + key_head * n;
        const float *k = c + (d->k_heads + key_head) * n;
        const float *v = c + (2 * d->k_heads + h) * n;
        const float *z = forward->w->k + (t * d->v_heads + h) * n;
        float *o = forward->mixed.x + t * forward->mixed.cols + h * n;
        float beta, decay;
        gates(forward, t, h, &beta, &decay);
        forward->k->delta(state, n, n, q, k, v, decay, beta, scale, o);
        forward->k->rms_norm(o, o, d->norm, n, forward->spec->eps);
        forward->k->swiglu(forward->w->k + (t * d->v_heads + h) * n, z, o, n); /* silu(z) * o, over z */
        memcpy(o, forward->w->k + (t * d->v_heads + h) * n, sizeof(float) * (size_t)n);
    }
}

static void recur(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const int heads = forward->layer->delta.v_heads;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = 0;
        for (int64_t n = 0; n < i / heads; n++) {
            first += forward->slices[n].count;
        }
        recur_head(forward, i / heads, first, (int)(i % heads));
    }
}

int mo_forward_delta(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_delta *d = &forward->layer->delta;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens;
    forward->mixed = mo_acts_lay(w->mixed, n, d->v_heads * d->head);

    mo_jobs_clear(&w->mixer_in);
    mo_jobs_add(&w->mixer_in, &d->qkv, &forward->in, NULL, n, w->q, channels_of(d));
    mo_jobs_add(&w->mixer_in, &d->gate, &forward->in, NULL, n, w->k, d->v_heads * d->head);
    mo_jobs_add(&w->mixer_in, &d->ba, &forward->in, NULL, n, w->v, 2 * (int64_t)d->v_heads);
    mo_jobs_add(&w->mixer_in, &d->beta, &forward->in, NULL, n, w->v, 2 * (int64_t)d->v_heads);
    mo_jobs_add(&w->mixer_in, &d->alpha, &forward->in, NULL, n, w->v + d->v_heads, 2 * (int64_t)d->v_heads);
    phases[count++] = mo_jobs_phase(&w->mixer_in);
    phases[count++] = (mo_phase){convolve, forward, n, 1};
    phases[count++] = (mo_phase){keep_inputs, forward, forward->slice_count, 1};
    phases[count++] = (mo_phase){recur, forward, (int64_t)forward->slice_count * d->v_heads, 1};
    phases[count++] = mo_forward_mixed(forward);
    mo_jobs_clear(&w->mixer_out);
    mo_jobs_add(&w->mixer_out, &d->out, &forward->mixed, NULL, n, w->y, forward->spec->width);
    phases[count++] = mo_jobs_phase(&w->mixer_out);
    return count;
}
