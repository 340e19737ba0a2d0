/* Picks: the router's choice for one step in one layer: which experts each token chose with what weights, and the rows in which
 * experts compute them, expert by expert. This is the only sort of tokens by expert; who computes an expert is not its business.
 * The arrays belong to the caller and nothing is allocated. One thread at a time. */
#ifndef MO_EXPERTS_PICKS_H
#define MO_EXPERTS_PICKS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mo_picks {
    int experts, used; /* experts of the layer; of a token */
    int64_t tokens;
    int32_t *ids;      /* [tokens][used] in router order; after sorting a negative one is left out */
    float *weights;    /* [tokens][used] */
    int32_t *count;    /* [experts] tokens that chose it */
    int32_t *first;    /* [experts + 1] its first row, where count is not 0; [experts]: all rows */
    int32_t *row_of;   /* [tokens][used] the row of each pick; of one that was left out before: -1 */
    int32_t *token_of; /* [rows] the token of each row; ascending within an expert */
} mo_picks;

/* Of another step or layer. */
void mo_picks_begin(mo_picks *p, int experts, int used, int64_t tokens);
int64_t mo_picks_rows(const mo_picks *p);

/* Fills count from ids. Returns how many experts were chosen. */
int mo_picks_count(mo_picks *p);
/* Counts, and lays rows out in the order of the experts' numbers: first[e] + count[e] == first[e + 1]. Returns as above. */
int mo_picks_sort(mo_picks *p);
/* After mo_picks_count(): rows follow `order`, which names every chosen expert once, but those that were left out. first of the others
 * is not set. */
void mo_picks_sort_in(mo_picks *p, const int *order, int chosen);
/* Lossy (--skip-missing): leaves out picks of experts that are missing, whose ids become -1, and gives their weight to the token's
 * others, in proportion. A token of which nothing would remain keeps its pick of most weight, so that expert is no longer missing: for
 * no token. Follows mo_picks_count(), and changes neither counts nor rows. Returns how many picks are left out. */
int64_t mo_picks_skip(mo_picks *p, bool *missing);
/* If count and token_of came from another source, in the order of the experts' numbers: fills first alone. */
void mo_picks_lay(mo_picks *p);

#endif
