/* Selection: the most likely of many logits: larger logit first, of equals the lower token. */
#ifndef MO_SAMPLING_SELECTION_H
#define MO_SAMPLING_SELECTION_H

#include <stdint.h>

/* A token and its rank; a smaller rank is first. */
typedef struct mo_ranked {
    uint32_t rank;
    int32_t token;
} mo_ranked;

/* The largest value. */
float mo_largest(const float *logits, int64_t vocab);
/* The first of the most likely tokens. -1: all are -INFINITY. */
int32_t mo_likeliest(const float *logits, int64_t vocab);

/* Writes the `count` most likely tokens, 1 to vocab. ranked: [2 * vocab], scratch. */
void mo_select_count(const float *logits, int64_t vocab, int64_t count, int32_t *tokens, mo_ranked *ranked);

/* Sorts these tokens. ranked: [2 * count], scratch. */
void mo_select_among(const float *logits, int32_t *tokens, int64_t count, mo_ranked *ranked);

/* Sorts by rank; stable. other: [count], scratch. */
void mo_rank_sort(mo_ranked *list, mo_ranked *other, int64_t count);

/* Sums of exp(logit - best): of all tokens in order, and of those in each step below the best logit. */
enum { MO_SHARE_STEPS = 1024 };
typedef struct mo_shares {
    float best;
    double total;
    double steps[MO_SHARE_STEPS];
} mo_shares;

/* best: the largest logit. */
void mo_shares_add(mo_shares *shares, const float *logits, int64_t vocab, float best);

/* Writes the most likely tokens: enough that their exp(logit - best), added in order, reach `sum`, or all;
   none below `least`. Returns their number. ranked: [2 * vocab], scratch. */
int64_t mo_select_share(const mo_shares *shares, const float *logits, int64_t vocab, double sum, float least,
                        int32_t *tokens, mo_ranked *ranked);

#endif
