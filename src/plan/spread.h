/* Spread: how a token's chosen experts in one layer are distributed over ranks that each have some experts,
 * and how long that takes. All choices are taken as equally likely, and every case is counted. */
#ifndef MO_PLAN_SPREAD_H
#define MO_PLAN_SPREAD_H

enum { MO_SPREAD_RANKS = 256 }; /* maximum ranks */

/* A rank takes fixed + n * each seconds for n of its experts, and no time for none. */
typedef struct mo_spread_rank {
    double fixed, each;
    int experts;
} mo_spread_rank;

/* Mean time of the slowest rank for a token that picks `used` of all ranks' experts. For more than 64 picks
 * it is the largest mean of a rank. */
double mo_spread_longest(const mo_spread_rank *ranks, int count, int used);

/* Probability that a token that picks `used` of `experts` picks one of these `own`. */
double mo_spread_asked(int own, int experts, int used);

#endif
