/* Exchange: decides which cached experts to exchange for which others, by recent counts. Only plans; the
   code that exchanges updates `exchanged`. The number of slots of a layer never changes, so layers without slots stay
   without. */
#ifndef MO_HOTCACHE_EXCHANGE_H
#define MO_HOTCACHE_EXCHANGE_H

#include "hotcache/weighting.h"

enum { MO_HOT_MOVES = 4 }; /* maximum concurrent exchanges */

/* The cached experts of one layer. */
typedef struct mo_resident {
    int32_t layer, experts;
    const int32_t *expert; /* [slots] the expert in each slot; an invalid number, such as -1, means empty */
    int32_t slots;
    /* [slots] experts that must stay: pinned or in use. NULL: none. */
    const bool *kept;
} mo_resident;

typedef struct mo_exchange {
    int32_t layer, slot; /* the slot that changes */
    int32_t evict, add;
    uint64_t evict_score, add_score; /* the gain is their difference, which is positive */
} mo_exchange;

/* Reported by /moe-hot-cache and the log. */
typedef struct mo_exchange_stats {
    bool active;                    /* experts are cached */
    double update_rate;             /* as requested, within 0 and 1 */
    double hit_rate;                /* share of picks that found their expert hot */
    uint64_t hot_slots, cold_slots; /* counted picks */
    uint64_t candidates;            /* exchanges with a gain */
    uint64_t max_exchange;          /* number that the rate allows */
    uint64_t exchanged;             /* planned: max_exchange; after applying: exchanges done */
    uint64_t hot_experts;           /* number of cached experts */
    uint64_t layers_changed;
} mo_exchange_stats;

/* The number of exchanges that a rate allows: the smaller of candidates and rate * hot, rounded up; 0 for
   rate 0. */
uint64_t mo_exchange_limit(double rate, uint64_t hot, uint64_t candidates);

/* Plans by a ranking. The wanted set of a layer is its best experts, as many as it has slots; kept experts
   are part of it. The best expert to add is paired with the worst to evict (not counted: 0). The pairs with
   the greatest gain are chosen; ties by layer, then by the expert to add. Pairs without gain are excluded. At
   most one mo_resident for a layer; scores of one expert are summed. free() *out, which is NULL if there are
   no exchanges. MO_ENOMEM. */
mo_status mo_exchange_plan(const mo_ranked *ranking, size_t ranked, const mo_resident *residents,
                           int32_t count, double rate, mo_exchange **out, size_t *exchanges,
                           mo_exchange_stats *stats, mo_error *err);

/* The same for a profile: ranks it, plans, and fills picks and hit rate. */
mo_status mo_exchange_from_profile(const mo_profile *p, const mo_weighting_options *options,
                                   const mo_resident *residents, int32_t count, double rate,
                                   mo_exchange **out, size_t *exchanges, mo_exchange_stats *stats,
                                   mo_error *err);

/* Cost of transferring experts, in seconds per byte. */
typedef struct mo_exchange_rates {
    double miss; /* a pick of an expert that is not cached */
    double copy; /* copying an expert to the cache */
} mo_exchange_rates;

/* Removes exchanges that do not pay from a plan made from a window of picks. The next window is expected to
   have the same picks; the picks that become hits must save more time than the copy takes. Keeps the order.
   Returns the number of remaining exchanges. */
size_t mo_exchange_pay_back(mo_exchange *list, size_t count, const mo_profile *window,
                            const mo_exchange_rates *rates);

/* The number of layers in a list of exchanges. */
uint64_t mo_exchange_layers(const mo_exchange *list, size_t count);

#endif
