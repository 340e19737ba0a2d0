/* Exchange: which experts of the upper tier should be exchanged for which others, given what was counted
 * lately. Only says what to do; who does it keeps the statistics' `exchanged` true. A layer's number of
 * places never changes here: layers without any stay without. */
#ifndef MO_HOTCACHE_EXCHANGE_H
#define MO_HOTCACHE_EXCHANGE_H

#include "hotcache/weighting.h"

enum { MO_HOT_MOVES = 4 }; /* most exchanges under way at once */

/* What the upper tier holds of one layer. */
typedef struct mo_resident {
    int32_t layer, experts;
    const int32_t *expert; /* [slots] the expert of each; one that cannot be, such as -1, is an empty slot */
    int32_t slots;
    /* [slots] those that must stay: pinned, or computed right now. NULL: none. */
    const bool *kept;
} mo_resident;

typedef struct mo_exchange {
    int32_t layer, slot; /* the slot that changes */
    int32_t evict, add;
    uint64_t evict_score, add_score; /* the gain is their difference, > 0 */
} mo_exchange;

/* What the reply of /moe-hot-cache and the log say. */
typedef struct mo_exchange_stats {
    bool active;                    /* there are experts in the upper tier */
    double update_rate;             /* as asked for, within 0 and 1 */
    double hit_rate;                /* share of the hot slots */
    uint64_t hot_slots, cold_slots; /* picks that were counted */
    uint64_t candidates;            /* exchanges that would help */
    uint64_t max_exchange;          /* of those, as many as the rate allows */
    uint64_t exchanged;             /* planned: max_exchange; after applying: those that were done */
    uint64_t hot_experts;           /* in the upper tier */
    uint64_t layers_changed;
} mo_exchange_stats;

/* How many exchanges a rate allows: the smaller of candidates and rate * hot, rounded up; none at rate 0. */
uint64_t mo_exchange_limit(double rate, uint64_t hot, uint64_t candidates);

/* Plans by a ranking: per layer the desired set is the best as many as have places; the best to add is
 * paired with the worst to evict (unobserved: 0); the pairs with the greatest gain are taken, ties by
 * layer, then by the expert to add. A pair without gain is none: it would move bytes for nothing. Experts
 * that are kept take their place in the desired set. At most one resident per layer; scores of one expert
 * are summed. free() *out, NULL when there is nothing to do. Pure. MO_ENOMEM. */
mo_status mo_exchange_plan(const mo_ranked *ranking, size_t ranked, const mo_resident *residents,
                           int32_t count, double rate, mo_exchange **out, size_t *exchanges,
                           mo_exchange_stats *stats, mo_error *err);

/* The same by what a profile says: ranks it, plans, and fills the picks and the hit rate. */
mo_status mo_exchange_from_profile(const mo_profile *p, const mo_weighting_options *options,
                                   const mo_resident *residents, int32_t count, double rate,
                                   mo_exchange **out, size_t *exchanges, mo_exchange_stats *stats,
                                   mo_error *err);

/* Rates of the wires that experts use, in seconds per byte. */
typedef struct mo_exchange_rates {
    double miss; /* a pick of an expert that is not in the upper tier */
    double copy; /* bringing it there */
} mo_exchange_rates;

/* Leaves out, of a plan made from a window of picks, the exchanges that would not pay: what the window saw is expected
 * of the next one, and the picks that an exchange would turn into hits must save more time than its copy takes. The
 * order stays; returns how many do. Pure. */
size_t mo_exchange_pay_back(mo_exchange *list, size_t count, const mo_profile *window,
                            const mo_exchange_rates *rates);

/* Layers that a list changes. */
uint64_t mo_exchange_layers(const mo_exchange *list, size_t count);

#endif
