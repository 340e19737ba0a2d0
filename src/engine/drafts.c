#include "engine/drafts.h"

#include "base/host.h"
#include "engine/cutter.h"
#include "numeric/delta.h"
#include "numeric/mamba.h"

/* Rows of logits, and rows of all recurrent layers together, have this much memory at most: fewer drafts otherwise. */
#define PART_BYTES_MAX ((int64_t)64 << 20)
/* Rows for other sessions that have short drafts in the same step. */
enum { MORE_ROWS = 16 };

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Values of a row; all 0: the layer is not recurrent. */
static mo_draft_inputs inputs_of(const mo_layer *l)
{
    mo_draft_inputs in = {0};
    if (l->mixer == MO_MIXER_DELTA) {
        const mo_delta *d = &l->delta;
        in.before_values = in.after_values = mo_delta_channels(d->k_heads, d->v_heads, d->head);
        in.gate_values = mo_delta_gate_values(d->decay, d->v_heads, d->head);
    } else if (l->mixer == MO_MIXER_SHORT_CONV) {
        in.before_values = 3 * l->short_conv.channels;
    } else if (l->mixer == MO_MIXER_MAMBA) {
        const mo_mamba *m = &l->mamba;
        in.before_values = in.after_values = mo_mamba_channels(m);
        in.gate_values = m->heads ? m->heads : m->inner;
        in.part_values = m->heads ? 0 : m->rank + 2 * m->states;
    }
    return in;
}

/* The piece of a state that a thread copies, with a row that is not wanted. */
static int64_t copy_values(const mo_layer *l)
{
    if (l->mixer == MO_MIXER_DELTA) {
        return l->delta.head * l->delta.head + l->delta.head;
    }
    if (l->mixer == MO_MIXER_SHORT_CONV) {
        return max64(l->short_conv.taps - 1, 1) * l->short_conv.channels;
    }
    if (l->mixer == MO_MIXER_MAMBA) {
        const mo_mamba *m = &l->mamba;
        const int64_t conv = (m->taps - 1) * mo_mamba_channels(m);
        return max64(max64(conv, m->inner), mo_mamba_copy_values(m->inner, m->states, m->heads));
    }
    return 0;
}

static int64_t values_of(const mo_draft_inputs *in)
{
    return in->before_values + in->after_values + in->gate_values + in->part_values;
}

int64_t mo_drafts_rows(const mo_model_spec *spec, int64_t drafts)
{
    int64_t values = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        const mo_draft_inputs in = inputs_of(&spec->layers[i]);
        values += values_of(&in);
    }
    const int64_t most = PART_BYTES_MAX / (int64_t)sizeof(float);
    const int64_t rows =
        min64(min64(drafts, MO_DRAFTS_MAX) + MORE_ROWS, min64(most / spec->vocab, most / max64(values, 1)));
    return drafts > 0 && rows > 1 ? rows : 0;
}

static void lay_out(mo_cutter *c, mo_drafts *d, const mo_model_spec *spec, int64_t drafts, int threads)
{
    *d = (mo_drafts){.rows = mo_drafts_rows(spec, drafts)};
    d->most = d->rows ? min64(min64(drafts, MO_DRAFTS_MAX), d->rows - 1) : 0;
    if (!d->most) {
        return;
    }
    d->inputs = mo_cut(c, spec->layer_count, sizeof *d->inputs);
    for (int i = 0; i < spec->layer_count; i++) {
        const mo_layer *l = &spec->layers[i];
        mo_draft_inputs in = inputs_of(l);
        in.before = mo_cut(c, d->rows * in.before_values, sizeof(float));
        in.after = mo_cut(c, d->rows * in.after_values, sizeof(float));
        in.gates = mo_cut(c, d->rows * in.gate_values, sizeof(float));
        in.parts = mo_cut(c, d->rows * in.part_values, sizeof(float));
        if (d->inputs) {
            d->inputs[i] = in;
        }
        d->copy_values = max64(d->copy_values, copy_values(l));
        if (l->routed) {
            d->used = (int)max64(d->used, l->moe.used);
            d->experts = (int)max64(d->experts, l->moe.experts);
            d->used_total += l->moe.used;
        }
    }
    d->logits = mo_cut(c, d->rows * spec->vocab, sizeof(float));
    d->best = mo_cut(c, d->rows, sizeof *d->best);
    d->applied = mo_cut(c, spec->layer_count, sizeof *d->applied);
    d->copies = mo_cut(c, threads * d->copy_values, sizeof(float));
    d->picked = mo_cut(c, spec->layer_count * d->rows * d->used, sizeof *d->picked);
    d->guessed = mo_cut(c, d->experts, sizeof *d->guessed);
    d->cold = mo_cut(c, (int64_t)spec->layer_count * d->experts, sizeof *d->cold);
}

size_t mo_drafts_bytes(const mo_model_spec *spec, int64_t drafts, int threads)
{
    mo_drafts d;
    mo_cutter c = {0};
    lay_out(&c, &d, spec, drafts, threads);
    return c.used;
}

mo_status mo_drafts_init(mo_drafts *d, const mo_model_spec *spec, int64_t drafts, int threads, mo_error *err)
{
    const size_t bytes = mo_drafts_bytes(spec, drafts, threads);
    mo_cutter c = {.base = bytes ? mo_host_alloc_huge(bytes) : NULL};
    *d = (mo_drafts){0};
    if (bytes && !c.base) {
        return mo_fail(
            err, MO_ENOMEM,
            "working memory of %.1f MiB for draft tokens is not available; choose a smaller `draft_max`",
            (double)bytes / (1 << 20));
    }
    if (bytes) {
        mo_host_touch(c.base, bytes); /* otherwise the first steps with drafts look as slow as making it is */
        lay_out(&c, d, spec, drafts, threads);
        d->memory = c.base;
        d->bytes = bytes;
    }
    return MO_OK;
}

void mo_drafts_limit(mo_drafts *d, int64_t rows)
{
    d->rows = min64(d->rows, rows > 1 ? rows : 0);
    d->most = min64(d->most, max64(d->rows - 1, 0));
}

void mo_drafts_drop(mo_drafts *d)
{
    if (d->memory) {
        mo_host_free_huge(d->memory, d->bytes);
    }
    *d = (mo_drafts){0};
}
