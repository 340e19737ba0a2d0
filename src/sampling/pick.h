/* Pick: the next token of a slice, drawn by its sampler from the last row of its logits, under its mask, with log
 * probabilities if they are wanted. A slice that ends in draft tokens has a row for each: they are drawn from in order while the
 * token drawn is the draft. The picks of a step are made side by side. */
#ifndef MO_SAMPLING_PICK_H
#define MO_SAMPLING_PICK_H

#include "moraine_server.h"

typedef struct mo_pick {
    mo_sampler *sampler;
    const uint32_t *mask; /* bit t % 32 of word t / 32: may token t be picked? NULL: all may */
    const uint32_t *(*late_mask)(void *user); /* NULL, or who says it now */
    void *user;                               /* of late_mask */
    const int32_t *recent;                    /* the sequence so far */
    int64_t recent_count;
    bool logprobs; /* the next four are wanted */
    int top_wanted;
    bool made; /* a device has found the token */
    /* [draft_count] guesses of the tokens that follow, in their order after `recent`, and how many of them were drawn and
     * accepted. accept takes a token that equals its draft; false: nothing may follow it. */
    const int32_t *drafts;
    const int32_t
        *best; /* [1 + draft_count] the likeliest token of each row, where a device has found it; NULL */
    int64_t draft_count, accepted;
    bool (*accept)(void *user, const mo_feed_report *picked);
    int32_t token; /* -1: none was allowed */
    float logprob;
    int top_count;
    mo_logprob top[MO_TOP_MAX];
} mo_pick;

/* Draws from a row of vocab logits. */
void mo_pick_run(mo_pick *pick, const float *row, int64_t vocab);
/* Draws from the rows of a slice with drafts: [1 + draft_count][vocab]. */
void mo_pick_run_drafts(mo_pick *pick, const float *rows, int64_t vocab);

/* Is the likeliest token what it draws, and nothing else requested? Then the row is not needed. */
bool mo_pick_plain(const mo_pick *pick);

/* Does a sampler without a mask take the likeliest token as it is? */
bool mo_sampler_plain(const mo_sampler *sampler);

/* MO_EINVAL names the option that is invalid. */
mo_status mo_sampler_options_check(const mo_sampler_options *options, int64_t vocab, mo_error *err);

/* What a sampler has become by its picks. */
typedef struct mo_sampler_state {
    uint64_t random;
    float mu; /* of mirostat */
} mo_sampler_state;
mo_sampler_state mo_sampler_save(const mo_sampler *sampler);
void mo_sampler_restore(mo_sampler *sampler, mo_sampler_state state);

/* The size of the vocabulary that a sampler was opened for. */
int64_t mo_sampler_vocab(const mo_sampler *sampler);

#endif
