/* Pick: draws the next token of a slice with its sampler from the last row of logits, under a mask, with log
   probabilities on request. A slice that ends in draft tokens has a row for each: tokens are drawn in order
   while each equals its draft. The picks of a step run in parallel. */
#ifndef MO_SAMPLING_PICK_H
#define MO_SAMPLING_PICK_H

#include "moraine_server.h"

typedef struct mo_pick {
    mo_sampler *sampler;
    const uint32_t *mask; /* bit t % 32 of word t / 32: is token t allowed? NULL: all are */
    const uint32_t *(*late_mask)(void *user); /* returns the mask when it is needed; NULL: use `mask` */
    void *user;                               /* of late_mask */
    const int32_t *recent;                    /* all tokens of the sequence */
    int64_t recent_count;
    bool logprobs; /* fill the next four members */
    int top_wanted;
    bool made; /* a device has chosen the token */
    /* [draft_count] guesses of the next tokens, in order after `recent`; the number of accepted ones.
       accept() is called with a token that equals its draft; false: stop there. */
    const int32_t *drafts;
    /* [1 + draft_count] the most likely token of each row, if a device has found it; otherwise NULL */
    const int32_t *best;
    int64_t draft_count, accepted;
    bool (*accept)(void *user, const mo_feed_report *picked);
    int32_t token; /* -1: none is allowed */
    float logprob;
    int top_count;
    mo_logprob top[MO_TOP_MAX];
} mo_pick;

/* Draws from a row of vocab logits. */
void mo_pick_run(mo_pick *pick, const float *row, int64_t vocab);
/* Draws from the rows of a slice with drafts: [1 + draft_count][vocab]. */
void mo_pick_run_drafts(mo_pick *pick, const float *rows, int64_t vocab);

/* Is the result the most likely token, with no other output? Then the row is not needed. */
bool mo_pick_plain(const mo_pick *pick);

/* Does the sampler, without a mask, choose the most likely token unchanged? */
bool mo_sampler_plain(const mo_sampler *sampler);

/* MO_EINVAL names the option that is invalid. */
mo_status mo_sampler_options_check(const mo_sampler_options *options, int64_t vocab, mo_error *err);

/* The state of a sampler that picks change. */
typedef struct mo_sampler_state {
    uint64_t random;
    float mu; /* state of mirostat */
} mo_sampler_state;
mo_sampler_state mo_sampler_save(const mo_sampler *sampler);
void mo_sampler_restore(mo_sampler *sampler, mo_sampler_state state);

/* The vocabulary size that the sampler was opened with. */
int64_t mo_sampler_vocab(const mo_sampler *sampler);

#endif
