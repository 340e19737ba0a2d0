#include "engine/pick.h"

#include "engine/slice.h"

void mo_pick_run(mo_pick *pick, const float *row, int64_t vocab)
{
    pick->token = mo_sampler_pick(pick->sampler, row, pick->mask, pick->recent, (size_t)pick->recent_count);
    pick->logprob = 0.0f;
    pick->top_count = 0;
    if (pick->logprobs && pick->token >= 0) {
        pick->top_count = pick->top_wanted < vocab ? pick->top_wanted : (int)vocab;
        pick->logprob = mo_logprobs(row, vocab, pick->token, pick->top, pick->top_count);
    }
}

typedef struct picks {
    const mo_slice *slices;
    int64_t vocab;
} picks;

static void pick_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const picks *p = ctx;
    for (int64_t i = begin; i < end; i++) {
        const mo_slice *s = &p->slices[i];
        if (s->pick && s->logits && s->logits_from < s->count) {
            mo_pick_run(s->pick, s->logits + (s->count - 1 - s->logits_from) * p->vocab, p->vocab);
        }
    }
}

void mo_pick_all(mo_pool *pool, const mo_slice *slices, int count, int64_t vocab)
{
    int wanted = 0;
    for (int i = 0; i < count; i++) {
        wanted += slices[i].pick != NULL;
    }
    picks p = {slices, vocab};
    if (wanted > 1) {
        mo_pool_run(pool, count, 1, pick_some, &p);
    } else if (wanted == 1) {
        pick_some(&p, 0, count, 0);
    }
}
