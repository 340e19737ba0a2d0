/* Selection: the likeliest of many logits, in order: the larger logit first, the lower token among equals. What is not wanted
 * is not sorted. */
#ifndef MO_SAMPLING_SELECTION_H
#define MO_SAMPLING_SELECTION_H

#include <stdint.h>

/* A token with its place in the order, as a number that is smaller the earlier it comes. */
typedef struct mo_ranked {
    uint32_t rank;
    int32_t token;
} mo_ranked;

/* The largest value. */
float mo_largest(const float *logits, int64_t vocab);
/* The first of the likeliest; -1: all are -INFINITY. */
int32_t mo_likeliest(const float *logits, int64_t vocab);

/* Writes the `count` likeliest, 1 to vocab of them. ranked: [2 * vocab], for its own use. */
void mo_select_count(const float *logits, int64_t vocab, int64_t count, int32_t *tokens, mo_ranked *ranked);

/* Puts these tokens in order. ranked: [2 * count], for its own use. */
void mo_select_among(const float *logits, int32_t *tokens, int64_t count, mo_ranked *ranked);

/* Sorts by rank; equals stay in their order. other: [count], for its own use. */
void mo_rank_sort(mo_ranked *list, mo_ranked *other, int64_t count);

/* What exp(logit - best) comes to: of all tokens, added in their order, and of those in each step below the best logit. */
enum { MO_SHARE_STEPS = 1024 };
typedef struct mo_shares {
    float best;
    double total;
    double steps[MO_SHARE_STEPS];
} mo_shares;

/* best: the largest logit. */
void mo_shares_add(mo_shares *shares, const float *logits, int64_t vocab, float best);

/* Writes the likeliest: at least enough that their exp(logit - best), added one after the other, reach `sum`, or else all;
 * none below `least`. Returns how many. ranked: [2 * vocab], for its own use. */
int64_t mo_select_share(const mo_shares *shares, const float *logits, int64_t vocab, double sum, float least,
                        int32_t *tokens, mo_ranked *ranked);

#endif
