/* Update: the hot cache learns while it serves. Now and then (after a request, and on a device also after a number of generated
 * tokens) the counts since the last update are ranked, and what was used more is exchanged for what was used less. The update
 * owns the window of counts and makes the plan; experts/ahead.h carries it out and knows what is where.
 *
 * One thread at a time, and none while a step runs: the caller holds the engine's lock. */
#ifndef MO_HOTCACHE_UPDATE_H
#define MO_HOTCACHE_UPDATE_H

#include "experts/ahead.h"
#include "hotcache/exchange.h"
#include "profile/tally.h"

typedef struct mo_hot_update_options {
    mo_ahead *ahead;       /* kept and used, not owned */
    const char *subsystem; /* of log lines */
    int64_t window;        /* generated tokens between two updates; 0: they come after requests alone */
    double rate;           /* share of the experts that one update may exchange */
    mo_weighting_options weighting;
    /* What a pick that misses costs now, and a copy; gets `owner`. NULL: whatever helps pays. */
    mo_exchange_rates (*rates)(const void *owner);
    const void *owner;
} mo_hot_update_options;

/* Always counted. */
typedef struct mo_hot_counters {
    uint64_t updates, exchanged, failed;
    size_t planned; /* now: not begun yet */
    int under_way;  /* now */
} mo_hot_counters;

typedef struct mo_hot_update mo_hot_update;

/* The shape is copied. MO_ENOMEM. */
mo_status mo_hot_update_open(const mo_hot_update_options *options, const mo_profile_shape *shape,
                             mo_hot_update **out, mo_error *err);
void mo_hot_update_close(mo_hot_update *u); /* NULL is allowed */

/* Before a step that generates this many tokens (0: a prompt) and before mo_ahead_turn(): plans an update when one is due.
 * tally NULL: nothing is counted, so none is. An update that cannot be planned is one line in the log. */
mo_status mo_hot_update_turn(mo_hot_update *u, const mo_tally *tally, int64_t tokens, mo_error *err);

/* A request has ended: plans an update, and begins it. */
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
