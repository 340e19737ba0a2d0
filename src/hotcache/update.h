/* Update: the hot cache adapts while it serves. After a request, and on a device also after a number of
   generated tokens, it ranks the counts since the last update and exchanges rarely used experts for more
   frequent ones. It owns the window of counts and makes the plan; experts/ahead.h executes it and knows where
   experts are.

   One thread at a time, and not during a step: the caller holds the engine's lock. */
#ifndef MO_HOTCACHE_UPDATE_H
#define MO_HOTCACHE_UPDATE_H

#include "experts/ahead.h"
#include "hotcache/exchange.h"
#include "profile/tally.h"

typedef struct mo_hot_update_options {
    mo_ahead *ahead;       /* used, not owned */
    const char *subsystem; /* of log lines */
    int64_t window;        /* generated tokens between updates; 0: only after requests */
    double rate;           /* maximum share of experts exchanged by one update */
    mo_weighting_options weighting;
    /* The current cost of a missing pick and of a copy, called with `owner`. NULL: every exchange with a
       gain pays. */
    mo_exchange_rates (*rates)(const void *owner);
    const void *owner;
} mo_hot_update_options;

/* Always counted: */
typedef struct mo_hot_counters {
    uint64_t updates, exchanged, failed;
    size_t planned; /* currently planned and not begun */
    int under_way;  /* currently in progress */
} mo_hot_counters;

typedef struct mo_hot_update mo_hot_update;

/* The shape is copied. MO_ENOMEM. */
mo_status mo_hot_update_open(const mo_hot_update_options *options, const mo_profile_shape *shape,
                             mo_hot_update **out, mo_error *err);
void mo_hot_update_close(mo_hot_update *u); /* NULL is allowed */

/* Call before a step that generates this many tokens (0: a prompt) and before mo_ahead_turn(). Plans an
   update if one is due. tally NULL: nothing is counted, so no updates. A failed plan is logged. */
mo_status mo_hot_update_turn(mo_hot_update *u, const mo_tally *tally, int64_t tokens, mo_error *err);

/* Call when a request has ended. Plans an update and begins it. */
mo_status mo_hot_update_request_done(mo_hot_update *u, const mo_tally *tally, mo_error *err);

/* On request: exchanges by a profile, at most the rate's share of the residents, and waits for completion.
   The next window begins now (tally NULL: it is unchanged). Stops at the first failed read or copy: *stats
   says what was done. */
mo_status mo_hot_update_apply(mo_hot_update *u, const mo_profile *profile, double rate, const mo_tally *tally,
                              mo_exchange_stats *stats, mo_error *err);

/* The next update uses counts from now on. */
mo_status mo_hot_update_begin_window(mo_hot_update *u, const mo_tally *tally, mo_error *err);

mo_hot_counters mo_hot_update_count(const mo_hot_update *u);

#endif
