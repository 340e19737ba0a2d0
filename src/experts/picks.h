/* Picks: the router's choice for one step in one layer: which experts each token chose with what weights, and the rows in which
 * experts compute them, expert by expert. This is the only sort of tokens by expert; who computes an expert is not its business.
 * The arrays belong to the caller and nothing is allocated. One thread at a time. */
#ifndef MO_EXPERTS_PICKS_H
#define MO_EXPERTS_PICKS_H

#include <stdint.h>

typedef struct mo_picks {
    int experts, used; /* experts of the layer; of a token */
    int64_t tokens;
    int32_t *ids;      /* [tokens][used] in router order; after sorting a negative one is left out */
    float *weights;    /* [tokens][used] */
    int32_t *count;    /* [experts] tokens that chose it */
    int32_t *first;    /* [experts + 1] its first row, where count is not 0; [experts]: all rows */
    int32_t *row_of;   /* [tokens][used] the row of each pick */
    int32_t *token_of; /* [rows] the token of each row; ascending within an expert */
} mo_picks;

static inline void mo_picks_begin(mo_picks *p, int experts, int used, int64_t tokens)
{
    p->experts = experts;
    p->used = used;
    p->tokens = tokens;
}

static inline int64_t mo_picks_rows(const mo_picks *p)
{
    return p->tokens * p->used;
}

/* Fills count from ids. Returns how many experts were chosen. */
int mo_picks_count(mo_picks *p);
/* Counts, and lays rows out in the order of the experts' numbers: first[e] + count[e] == first[e + 1]. Returns as above. */
int mo_picks_sort(mo_picks *p);
/* After mo_picks_count(): rows follow `order`, which names every chosen expert once. first of the others is not set. */
void mo_picks_sort_in(mo_picks *p, const int *order, int chosen);
/* If count and token_of came from another source, in the order of the experts' numbers: fills first alone. */
void mo_picks_lay(mo_picks *p);

#endif
