#include "sampling/pick.h"

bool mo_pick_plain(const mo_pick *pick)
{
    return !pick->mask && !pick->late_mask && !pick->logprobs && mo_sampler_plain(pick->sampler);
}

void mo_pick_run(mo_pick *pick, const float *row, int64_t vocab)
{
    const uint32_t *mask = pick->late_mask ? pick->late_mask(pick->user) : pick->mask;
    pick->token = -1;
    pick->logprob = 0.0f;
    pick->top_count = 0;
    if (mask || !pick->late_mask) {
        pick->token = mo_sampler_pick(pick->sampler, row, mask, pick->recent, (size_t)pick->recent_count);
    }
    if (pick->logprobs && pick->token >= 0) {
        pick->top_count = pick->top_wanted < vocab ? pick->top_wanted : (int)vocab;
        pick->logprob = mo_logprobs(row, vocab, pick->token, pick->top, pick->top_count);
    }
}

static bool accept(mo_pick *pick)
{
    const mo_feed_report picked = {
        .token = pick->token, .logprob = pick->logprob, .top_count = pick->top_count, .top = pick->top};
    return pick->token == pick->drafts[pick->accepted] && pick->accept(pick->user, &picked);
}

static void draw(mo_pick *pick, const float *rows, int64_t vocab)
{
    if (pick->best) {
        pick->token = pick->best[pick->accepted];
    } else {
        mo_pick_run(pick, rows + pick->accepted * vocab, vocab);
    }
}

void mo_pick_run_drafts(mo_pick *pick, const float *rows, int64_t vocab)
{
    draw(pick, rows, vocab);
    while (pick->accepted < pick->draft_count && accept(pick)) {
        pick->accepted++;
        pick->recent_count++; /* the draft is at this position */
        draw(pick, rows, vocab);
    }
}
