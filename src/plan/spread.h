/* Spread: how the experts that a token picks in a layer fall on ranks, each of which has some of them, and how long that takes. All
 * picks are taken as equally likely, and every case is counted. */
#ifndef MO_PLAN_SPREAD_H
#define MO_PLAN_SPREAD_H

enum { MO_SPREAD_RANKS = 256 }; /* most of them */

/* A rank takes fixed + n * each seconds for n of its experts, and nothing for none. */
typedef struct mo_spread_rank {
    double fixed, each;
    int experts;
} mo_spread_rank;

/* The mean of what the rank that takes longest takes, for a token that picks this many of all ranks' experts. Of more than 64 picks it is the
 * longest mean. */
double mo_spread_longest(const mo_spread_rank *ranks, int count, int used);

/* Probability that a token that picks `used` of `experts` picks one of those `own`. */
double mo_spread_asked(int own, int experts, int used);

#endif
