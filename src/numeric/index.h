/* Index: what the indexer of a layer (mo_indexer in model/parts.h) computes: a token's key and queries, their scores, and which positions
 * are kept of those that were scored (docs/numerics.md: The indexer). */
#ifndef MO_NUMERIC_INDEX_H
#define MO_NUMERIC_INDEX_H

#include "numeric/kernels.h"

typedef struct mo_index_rule {
    int heads;
    int64_t length;           /* values of a key, and of a head's query */
    int64_t still;            /* of which these do not rotate, */
    int64_t n_rot;            /* and these behind them do, */
    bool neox;                /* in halves; the rest stays, too */
    float scale;              /* of the shares */
    const float *norm, *bias; /* [length] of keys */
} mo_index_rule;

/* A token's key, key[length], from its product, in place. False when a value is not finite. */
bool mo_index_key(const mo_kernels *k, const mo_index_rule *r, float *key, const float *c, const float *s);

/* A token's queries, q[heads][length], and its heads' shares[heads], from their products, in place. */
void mo_index_query(const mo_kernels *k, const mo_index_rule *r, float *q, float *share, const float *c,
                    const float *s);

/* Scores of `count` tokens, whose queries and shares follow each other, over n keys, at most MO_KV_BLOCK: row t of scores is
 * [n], `stride` floats behind the one before. products: space for count * heads * n floats. */
void mo_index_scores(const mo_kernels *k, const mo_index_rule *r, const float *keys, int64_t n,
                     const float *q, const float *share, int64_t count, float *products, float *scores,
                     int64_t stride, mo_scratch *scratch);

/* The best `most` positions of those that were offered so far: the higher score first, and of equal ones the lower position. Scores are
 * compared as numbers; one that is none is below all others. */
typedef struct mo_index_best {
    int64_t most;
    uint32_t
        *rank; /* [2 * most] of candidates, in the order of their positions; the owner's memory, as is: */
    int32_t *position; /* [2 * most] */
    int64_t count;
    uint32_t floor; /* `most` candidates have at least this rank */
} mo_index_best;

static inline mo_index_best mo_index_best_of(int64_t most, uint32_t *rank, int32_t *position)
{
    return (mo_index_best){.most = most, .rank = rank, .position = position};
}

/* Offers positions first .. first + n - 1; those of later calls are higher. */
void mo_index_offer(mo_index_best *b, const float *scores, int64_t first, int64_t n);

/* The positions that are kept, ascending; returns how many: `most`, if that many were offered. */
int64_t mo_index_take(mo_index_best *b, int32_t *kept);

/* The same of positions 0 .. n - 1 whose scores are all there. */
int64_t mo_index_choose(const float *scores, int64_t n, int64_t most, int32_t *kept);

/* Copies the latent row of position u to that of another cache of the same shape, which may be without the indexer's keys. */
void mo_index_copy(const mo_kv_head *from, int64_t u, const mo_kv_head *to, int64_t place);

/* Copies positions kept[0 .. count - 1], at most as many as `to` has places for, to the places of 0 .. count - 1 in `to`, whose blocks are the caller's:
 * attention over those is attention over these. */
void mo_index_gather(const mo_kv_head *from, const int32_t *kept, int64_t count, const mo_kv_head *to);

#endif
