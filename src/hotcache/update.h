/* Update: the hot cache learns while it serves. Which experts a tier holds is looked at now and then (after a request, and
 * in a tier that can copy during steps also after a number of generated tokens), the counts since the last update are
 * ranked, and what was used more takes the place of what was used less. The update owns the residents' list, the window of
 * counts, the plan and what of it has not begun; a tier only moves bytes. Two tiers exist: RAM (hotcache/ram.c) and a
 * device's slots (gpu/exchange.c).
 *
 * One thread at a time, and none while a step runs: the caller holds the engine's lock. */
#ifndef MO_HOTCACHE_UPDATE_H
#define MO_HOTCACHE_UPDATE_H

#include "hotcache/exchange.h"
#include "profile/tally.h"

enum { MO_HOT_NOW = -1 }; /* in place of an exchange's number: the caller waits for it */

/* What became of an exchange that was to begin. */
typedef enum mo_hot_begun {
    MO_HOT_LATER,     /* nothing: it can be asked for again */
    MO_HOT_UNDER_WAY, /* the old expert serves until the new one has landed */
    MO_HOT_DONE,      /* the new expert serves */
    MO_HOT_VOID,      /* nothing, and there is no use in asking again */
    MO_HOT_FAILED,    /* the new expert is not there */
} mo_hot_begun;

/* What an update needs of the place where hot experts are. Functions get `owner`. */
typedef struct mo_hot_tier {
    const char *subsystem; /* of log lines */
    int moves;      /* exchanges under way at once, at most MO_HOT_MOVES; 0: only those asked for by hand */
    int64_t window; /* generated tokens between two updates; 0: they come after requests alone */
    void *owner;
    /* Nothing is under way any more, neither an exchange nor anything that exchanges by hand would disturb. */
    mo_status (*settle)(void *owner, mo_error *err);
    /* Is the expert there, as one that may be exchanged? */
    bool (*holds)(const void *owner, int layer, int expert);
    /* Begins exchange number `move` (below `moves`), or does it at once (MO_HOT_NOW). An error ends what the caller was
     * about to do; *begun is set in any case. */
    mo_status (*begin)(void *owner, int move, const mo_exchange *x, mo_hot_begun *begun, mo_error *err);
    /* Has exchange number `move` landed? Then the new expert has its place and the old one has none. Never asked of a
     * tier that has everything done when it begins. */
    mo_status (*landed)(void *owner, int move, const mo_exchange *x, bool *done, mo_error *err);
    /* From here on steps see what has landed; `wait`: and nothing of that is under way. NULL: they do anyway. */
    mo_status (*switch_over)(void *owner, bool wait, mo_error *err);
    /* What a pick that misses costs now, and a copy. NULL: whatever helps pays. */
    mo_exchange_rates (*rates)(const void *owner);
} mo_hot_tier;

/* Always counted. */
typedef struct mo_hot_counters {
    uint64_t updates, exchanged, failed;
    size_t planned; /* now: not begun yet */
    int under_way;  /* now */
} mo_hot_counters;

typedef struct mo_hot_update mo_hot_update;

/* The tier's owner outlives it; the shape is copied. MO_ENOMEM. */
mo_status mo_hot_update_open(const mo_hot_tier *tier, const mo_profile_shape *shape,
                             const mo_weighting_options *weighting, double rate, mo_hot_update **out,
                             mo_error *err);
void mo_hot_update_close(mo_hot_update *u); /* NULL is allowed */

/* Before a step that generates this many tokens (0: a prompt): steps see what has arrived, more exchanges begin,
 * and now and then an update is planned. tally NULL: nothing is counted, so none is. Fails as the tier does; an update
 * that cannot be planned is one line in the log. */
mo_status mo_hot_update_turn(mo_hot_update *u, const mo_tally *tally, int64_t tokens, mo_error *err);

/* A request has ended: plans an update, and begins it. Fails likewise. */
mo_status mo_hot_update_request_done(mo_hot_update *u, const mo_tally *tally, mo_error *err);

/* By hand: exchanges what the profile ranks higher for what it ranks lower, at most the rate's share of the residents, and
 * waits until it is done. The next update looks at what is counted from then on (tally NULL: as before). A read or a copy
 * that fails ends it: *stats tells what was done. */
mo_status mo_hot_update_apply(mo_hot_update *u, const mo_profile *profile, double rate, const mo_tally *tally,
                              mo_exchange_stats *stats, mo_error *err);

/* The next update looks at what is counted from now on. */
mo_status mo_hot_update_begin_window(mo_hot_update *u, const mo_tally *tally, mo_error *err);

mo_hot_counters mo_hot_update_count(const mo_hot_update *u);

#endif
