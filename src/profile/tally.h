/* Tally: the counters behind a profile, always on. The thread that decodes is the only writer, so counting is
 * one plain addition per pick, without locks; any thread may take a snapshot. The counters only grow: what
 * happened since is one snapshot less an earlier one (mo_profile_subtract). */
#ifndef MO_PROFILE_TALLY_H
#define MO_PROFILE_TALLY_H

#include <stdatomic.h>

#include "profile/profile.h"

typedef _Atomic uint64_t mo_tally_count; /* written by the decoding thread, relaxed: readers want no order */

typedef struct mo_tally_layer {
    int32_t layer, experts;
    int32_t first; /* of its experts in a touch */
    mo_tally_count calls[MO_PROFILE_PHASES];
    mo_tally_count *hits[MO_PROFILE_PHASES][MO_FOUNDS]; /* [experts] */
    mo_tally_count *prompts;                            /* [experts] */
    mo_tally_count timed, time_ns[MO_TIMES];
    mo_tally_count lanes[MO_LANE_COUNTS], fallbacks[MO_FALLBACKS];
} mo_tally_layer;

typedef struct mo_tally mo_tally;

/* Counters for the routed layers of a model, all 0. Nothing allocates after creation but snapshots. */
mo_status mo_tally_create(const mo_profile_shape *shape, mo_tally **out, mo_error *err);
void mo_tally_destroy(mo_tally *t); /* NULL is allowed */

/* The counters of a layer by its number in the model, or NULL when it is not routed. O(1). */
mo_tally_layer *mo_tally_find(const mo_tally *t, int32_t layer);

/* ---- Counting: the decoding thread ---- */

void mo_tally_add(mo_tally_count *count, uint64_t n);

/* A pass through the layer. */
void mo_tally_call(mo_tally_layer *l, mo_trace_phase phase);

/* A token was routed to the expert, which was there. */
void mo_tally_pick(mo_tally_layer *l, mo_trace_phase phase, mo_found place, int32_t expert);

/* A pass whose times were taken; passes may be sampled. */
void mo_tally_time(mo_tally_layer *l, const uint64_t time_ns[MO_TIMES]);

/* A pass with lanes: which of them ran, and what fell back. */
void mo_tally_lanes(mo_tally_layer *l, bool hot, bool cold, const uint64_t fallbacks[MO_FALLBACKS]);

/* ---- Prompts ----
 * How often one conversation has picked each expert; conversations may run side by side, each with its own. */

typedef struct mo_touch {
    uint32_t *picks; /* [all experts of all layers] */
    int32_t count;
} mo_touch;

mo_status mo_touch_create(const mo_tally *t, mo_touch *out, mo_error *err);
void mo_touch_destroy(mo_touch *touch); /* a zeroed one is allowed */

void mo_touch_add(mo_touch *touch, const mo_tally_layer *l, int32_t expert, uint32_t picks);
void mo_touch_mark(mo_touch *touch, const mo_tally_layer *l, int32_t expert);

/* Records as one prompt which experts the conversation needs, and clears the counts: those with more than an even share of
 * their layer's picks, for a long text touches nearly all. One that picked nothing does not count. The decoding thread. */
void mo_tally_prompt(mo_tally *t, mo_touch *touch);

/* ---- Reading: any thread ---- */

/* A profile of the counters as they are. While decoding goes on each count is right, but a pass may be
 * counted in one layer and not yet in the next. Free with mo_profile_free(). */
mo_status mo_tally_snapshot(const mo_tally *t, mo_profile **out, mo_error *err);

#endif
