/* Several residual streams (hyper-connections, numeric/streams.h) around the parts of a layer. The first
 * layer initializes them with the embedding. After the last layer, w->x is the output's input. The streams of
 * an MTP head are initialized before its layer (join.c). */
#include <string.h>

#include "base/clock.h"
#include "engine/forward.h"

static mo_streams_rule rule_of(const mo_forward *forward)
{
    const mo_model_spec *spec = forward->spec;
    return (mo_streams_rule){
        .width = spec->width, .iterations = spec->streams.iterations, .eps = spec->streams.eps};
}

static float *streams_of(const mo_forward *forward, int64_t t)
{
    return forward->w->streams.x + t * MO_STREAMS * forward->spec->width;
}

static mo_acts acts_of(const mo_forward *forward)
{
    return mo_acts_lay(forward->w->streams.in, forward->tokens, MO_STREAMS * forward->spec->width);
}

static float *mix_of(const mo_forward *forward, int64_t t)
{
    return forward->w->streams.mix + t * MO_STREAMS_MIX;
}

/* Norms all streams of a token together, as input of the products. */
static void norm_streams(const mo_forward *forward, int64_t t)
{
    const mo_acts in = acts_of(forward);
    forward->k->rms_norm(in.x + t * in.cols, streams_of(forward, t), NULL, in.cols, forward->spec->eps);
    mo_forward_quantize(forward->k, &in, t);
}

/* Adds a part's result to the streams. */
static void write_streams(mo_forward *forward, const float *made, int64_t t)
{
    const mo_streams_rule rule = rule_of(forward);
    if (!mo_streams_write(forward->k, &rule, &forward->w->streams.shares[t], made + t * rule.width,
                          streams_of(forward, t))) {
        atomic_store_explicit(&forward->infinite, true, memory_order_relaxed);
    }
}

/* Computes a part's input, normed, in forward->in. w->y is the intermediate sum of the streams. */
static void read_streams(const mo_forward *forward, const mo_streams_part *part, const float *norm, int64_t t)
{
    const mo_streams_rule rule = rule_of(forward);
    mo_streams_shares *shares = &forward->w->streams.shares[t];
    float *sum = forward->w->y + t * rule.width;
    mo_streams_balance(forward->k, &rule, mix_of(forward, t), part->base, part->scale, shares);
    mo_streams_read(forward->k, &rule, shares->in, streams_of(forward, t), sum);
    mo_forward_norm(forward, forward->in.x + t * rule.width, sum, norm, NULL);
    mo_forward_quantize(forward->k, &forward->in, t);
}

/* ---- Phases ----------------------------------------------------------------------------------- */

static void begin_layer(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const int64_t n = forward->spec->width;
    const bool begins = forward->index == 0 && !mo_linear_present(&forward->spec->head.join);
    for (int64_t t = begin; t < end; t++) {
        for (int s = 0; begins && s < MO_STREAMS; s++) {
            memcpy(streams_of(forward, t) + s * n, forward->w->x + t * n, sizeof(float) * (size_t)n);
        }
        norm_streams(forward, t);
    }
}

static void read_for_mixer(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    for (int64_t t = begin; t < end; t++) {
        read_streams(forward, &forward->layer->mixer_streams, forward->layer->mixer_norm, t);
    }
}

static void write_mixer(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_forward *forward = ctx;
    for (int64_t t = begin; t < end; t++) {
        write_streams(forward, forward->w->y, t);
        norm_streams(forward, t);
    }
}

/* Clears x, so that the merge adds the part's result to 0. */
static void read_for_ffn(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_forward *forward = ctx;
    const int64_t n = forward->spec->width;
    for (int64_t t = begin; t < end; t++) {
        read_streams(forward, &forward->layer->ffn_streams, forward->layer->ffn_norm, t);
        memset(forward->w->x + t * n, 0, sizeof(float) * (size_t)n);
    }
    if (end == forward->tokens && forward->engine->timed) { /* on one thread */
        forward->routed_from = mo_clock_ns();
    }
}

static void write_ffn(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_forward *forward = ctx;
    for (int64_t t = begin; t < end; t++) {
        write_streams(forward, forward->w->x, t);
        if (forward->index == forward->spec->layer_count - 1) {
            norm_streams(forward, t);
        }
    }
}

static void read_for_output(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_streams_part *last = &forward->spec->streams.last;
    const mo_streams_rule rule = rule_of(forward);
    for (int64_t t = begin; t < end; t++) {
        float in[MO_STREAMS];
        mo_streams_last(forward->k, &rule, mix_of(forward, t), last->base, last->scale, in);
        mo_streams_read(forward->k, &rule, in, streams_of(forward, t), forward->w->x + t * rule.width);
    }
}

/* Adds the product of the region's first or second use of the streams. */
static int add_product(mo_forward *forward, int which, const mo_streams_part *part, mo_phase *phases,
                       int count)
{
    mo_jobs *jobs = &forward->w->phases.streams[which];
    forward->in_streams = acts_of(forward);
    mo_jobs_clear(jobs);
    mo_jobs_add(jobs, &part->product, &forward->in_streams, NULL, forward->tokens, forward->w->streams.mix,
                MO_STREAMS_MIX);
    return mo_jobs_phases(jobs, phases, count);
}

static mo_phase of_tokens(mo_forward *forward, void (*fn)(void *, int64_t, int64_t, int))
{
    return (mo_phase){.fn = fn, .ctx = forward, .count = forward->tokens, .grain = 1, .part = MO_PART_OTHER};
}

int mo_forward_streams_mixer(mo_forward *forward, mo_phase *phases, int count)
{
    phases[count++] = of_tokens(forward, begin_layer);
    count = add_product(forward, 0, &forward->layer->mixer_streams, phases, count);
    phases[count++] = of_tokens(forward, read_for_mixer);
    return count;
}

int mo_forward_streams_ffn(mo_forward *forward, mo_phase *phases, int count)
{
    phases[count++] = of_tokens(forward, write_mixer);
    count = add_product(forward, 1, &forward->layer->ffn_streams, phases, count);
    phases[count++] = of_tokens(forward, read_for_ffn);
    return count;
}

void mo_forward_streams_end(mo_forward *forward)
{
    mo_phase phases[4];
    int count = 0;
    phases[count++] = of_tokens(forward, write_ffn);
    if (forward->index == forward->spec->layer_count - 1) {
        count = add_product(forward, 0, &forward->spec->streams.last, phases, count);
        phases[count++] = of_tokens(forward, read_for_output);
    }
    mo_forward_run(forward, phases, count);
}
