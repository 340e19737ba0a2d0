#include "gpu/piece.h"

#include <stdlib.h>

/* Cuts the logits request to a slice's tokens `from` to `from + count`. */
static void cut_logits(mo_slice *s, int64_t from, int64_t vocab)
{
    if (!s->logits || s->logits_from >= from + s->count) {
        s->logits = NULL;
        s->logits_from = 0;
        return;
    }
    s->logits += from > s->logits_from ? (from - s->logits_from) * vocab : 0;
    s->logits_from = from > s->logits_from ? 0 : s->logits_from - from;
}

/* Cuts the slices to tokens begin .. end - 1 of the step. */
static void cut_slices(mo_gpu_piece *p, const mo_forward *step, int64_t begin, int64_t end)
{
    int64_t at = 0;
    int count = 0, first = 0;
    for (int i = 0; i < step->slice_count; at += step->slices[i++].count) {
        const mo_slice *whole = &step->slices[i];
        const int64_t from = begin > at ? begin - at : 0;
        const int64_t to = end - at < whole->count ? end - at : whole->count;
        if (from >= to) {
            continue;
        }
        mo_slice *s = &p->slices[count];
        first = count == 0 ? i : first;
        p->states[count] = *whole->state;
        p->states[count].length += from;
        *s = *whole;
        s->state = &p->states[count];
        s->tokens += from;
        s->count = to - from;
        s->pick = to == whole->count ? whole->pick : NULL;
        s->cancel = step->slice_count == 1 ? whole->cancel : NULL; /* several are only cancelled together */
        cut_logits(s, from, step->spec->vocab);
        for (int64_t t = at + from; t < at + to; t++) {
            p->own.slice_of[t - begin] = count;
        }
        count++;
    }
    p->forward.slice_count = count;
    p->space.adapting.uses = step->w->adapting.uses + (int64_t)first * MO_ADAPTERS_USED;
}

void mo_gpu_piece_cut(mo_gpu_piece *p, const mo_forward *step, int number, int count)
{
    const int64_t begin = step->tokens * number / count, end = step->tokens * (number + 1) / count;
    p->forward = (mo_forward){.engine = step->engine,
                              .tally = step->tally,
                              .spec = step->spec,
                              .k = step->k,
                              .w = &p->space,
                              .slices = p->slices,
                              .tokens = end - begin,
                              .features = step->features,
                              .left_out = step->left_out};
    p->whole = step->tokens;
    p->space = *step->w;
    p->space.x += begin * step->spec->width;
    p->space.rope += begin * p->space.rope_stride;
    p->space.q_factor += p->space.q_factor ? begin : 0;
    p->space.position += begin;
    p->space.row_of += p->space.row_of ? begin : 0;
    p->space.sees += p->space.sees ? begin : 0;
    p->space.state_of += begin;
    p->space.slice_of = p->own.slice_of;
    p->space.adapting.slice_of = p->own.slice_of;
    p->space.picks.ids = p->own.ids;
    p->space.picks.token_of = p->own.token_of;
    p->space.picks.first = p->own.first;
    p->space.picks.count = p->own.count;
    p->space.needs = p->own.needs;
    cut_slices(p, step, begin, end);
}

static int64_t rounded(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Lays out the memory; NULL: only counts the bytes. */
static int64_t lay(mo_gpu_piece_space *p, const mo_extent *e, int64_t batch, uint8_t *memory)
{
    const int64_t rows = batch * (e->used > 0 ? e->used : 1), experts = e->experts + 1;
    const int64_t slice_of = 0, ids = rounded(batch * (int64_t)sizeof *p->slice_of);
    const int64_t token_of = ids + rounded(rows * (int64_t)sizeof *p->ids);
    const int64_t first = token_of + rounded(rows * (int64_t)sizeof *p->token_of);
    const int64_t count = first + rounded(experts * (int64_t)sizeof *p->first);
    const int64_t needs = count + rounded(experts * (int64_t)sizeof *p->count);
    if (memory) {
        p->slice_of = (int32_t *)(void *)(memory + slice_of);
        p->ids = (int32_t *)(void *)(memory + ids);
        p->token_of = (int32_t *)(void *)(memory + token_of);
        p->first = (int32_t *)(void *)(memory + first);
        p->count = (int32_t *)(void *)(memory + count);
        p->needs = (mo_need *)(void *)(memory + needs);
    }
    return needs + rounded(experts * (int64_t)sizeof *p->needs);
}

int64_t mo_gpu_piece_bytes(const mo_model_spec *spec, int64_t batch)
{
    mo_gpu_piece_space own;
    const mo_extent e = mo_extent_of(spec);
    return lay(&own, &e, batch, NULL) + (int64_t)sizeof(mo_gpu_piece);
}

mo_gpu_piece *mo_gpu_piece_open(const mo_model_spec *spec, int64_t batch)
{
    mo_gpu_piece *p = calloc(1, sizeof *p);
    const mo_extent e = mo_extent_of(spec);
    if (p) {
        p->memory = calloc(1, (size_t)lay(&p->own, &e, batch, NULL));
    }
    if (!p || !p->memory) {
        free(p);
        return NULL;
    }
    lay(&p->own, &e, batch, p->memory);
    return p;
}

void mo_gpu_piece_close(mo_gpu_piece *piece)
{
    free(piece ? piece->memory : NULL);
    free(piece);
}
