/* Picks: the router's choice for one step in one layer: the experts and weights of each token, and the rows
 * in which experts compute the tokens, expert by expert. This is the only sort of tokens by expert. It does
 * not know who computes an expert. The caller owns the arrays, and nothing is allocated. One thread at a
 * time. */
#ifndef MO_EXPERTS_PICKS_H
#define MO_EXPERTS_PICKS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mo_picks {
    int experts, used; /* experts of the layer; per token */
    int64_t tokens;
    int32_t *ids;   /* [tokens][used] in router order; negative after sorting: left out */
    float *weights; /* [tokens][used] */
    int32_t *count; /* [experts] tokens that chose it */
    /* [experts + 1] first row of an expert whose count is not 0; [experts]: number of rows */
    int32_t *first;
    int32_t *row_of;   /* [tokens][used] row of each pick; -1: the pick was left out before sorting */
    int32_t *token_of; /* [rows] token of each row; ascending within an expert */
} mo_picks;

/* Starts another step or layer. */
void mo_picks_begin(mo_picks *p, int experts, int used, int64_t tokens);
int64_t mo_picks_rows(const mo_picks *p);

/* Fills count from ids. Returns the number of chosen experts. */
int mo_picks_count(mo_picks *p);
/* Counts, and lays out rows by expert number: first[e] + count[e] == first[e + 1]. Returns the number of
 * chosen experts. */
int mo_picks_sort(mo_picks *p);
/* After mo_picks_count(): lays out rows in the given order, which names every chosen expert once, except
 * those left out. first of the others is not set. */
void mo_picks_sort_in(mo_picks *p, const int *order, int chosen);
/* Lossy (--skip-missing): leaves out picks of missing experts, sets their ids to -1, and distributes their
 * weight over the token's other picks in proportion. A token that would lose all picks keeps the one with the
 * largest weight, and that expert is then not missing for any token. Call it after mo_picks_count(); it
 * changes neither counts nor rows. Returns the number of picks left out. */
int64_t mo_picks_skip(mo_picks *p, bool *missing);
/* Fills only first, if count and token_of came from another source, in order of expert numbers. */
void mo_picks_lay(mo_picks *p);

#endif
