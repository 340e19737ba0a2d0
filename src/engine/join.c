/* Join: the input of an MTP head's layer: one stream, or several. */
#include "engine/forward.h"

typedef struct joining {
    mo_forward *forward;
    mo_acts in;      /* one row per stream of a token */
    int64_t streams; /* 1 without several streams */
} joining;

static void norm_both(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const joining *j = ctx;
    const mo_forward *forward = j->forward;
    const mo_model_spec *spec = forward->spec;
    const int64_t n = spec->width;
    for (int64_t i = begin; i < end; i++) {
        const int64_t t = i / j->streams, of = i % j->streams;
        const mo_slice *s = &forward->slices[forward->w->slice_of[t]];
        const float *state = s->states + ((forward->w->position[t] - s->state->length) * j->streams + of) * n;
        float *row = j->in.x + 2 * i * n;
        mo_forward_norm(forward, row, forward->w->x + t * n, spec->head.embed_norm, NULL);
        mo_forward_norm(forward, row + n, state, spec->head.state_norm, NULL);
        mo_forward_quantize(forward->k, &j->in, i);
    }
}

void mo_forward_join(mo_forward *forward)
{
    mo_workspace *w = forward->w;
    const int64_t n = forward->spec->width, several = forward->spec->streams.count,
                  streams = several ? several : 1, rows = forward->tokens * streams;
    joining j = {.forward = forward, .in = mo_acts_lay(w->joined, rows, 2 * n), .streams = streams};
    mo_phase phases[4] = {{.fn = norm_both, .ctx = &j, .count = rows, .grain = 1, .part = MO_PART_OTHER}};
    mo_jobs_clear(&w->phases.join);
    mo_jobs_add(&w->phases.join, &forward->spec->head.join, &j.in, NULL, rows, several ? w->streams.x : w->x,
                n);
    mo_forward_run(forward, phases, mo_jobs_phases(&w->phases.join, phases, 1));
}
