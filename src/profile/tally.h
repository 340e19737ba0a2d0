/* Tally: the counters of a profile, always active. Only the decoding thread writes, so counting is one plain
   addition per pick without locks. Any thread may take a snapshot. Counters only grow: the counts of a period
   are the difference of two snapshots (mo_profile_subtract()). */
#ifndef MO_PROFILE_TALLY_H
#define MO_PROFILE_TALLY_H

#include <stdatomic.h>

#include "profile/profile.h"

/* written by the decoding thread, relaxed, because readers need no order */
typedef _Atomic uint64_t mo_tally_count;

typedef struct mo_tally_layer {
    int32_t layer, experts;
    int32_t first; /* index of its first expert in a touch */
    mo_tally_count calls[MO_PROFILE_PHASES];
    mo_tally_count *hits[MO_PROFILE_PHASES][MO_FOUNDS]; /* [experts] */
    mo_tally_count *prompts;                            /* [experts] */
    mo_tally_count timed, time_ns[MO_TIMES];
    mo_tally_count lanes[MO_LANE_COUNTS], fallbacks[MO_FALLBACKS];
} mo_tally_layer;

typedef struct mo_tally mo_tally;

/* Creates zero counters for the routed layers of a model. Later only snapshots allocate. */
mo_status mo_tally_create(const mo_profile_shape *shape, mo_tally **out, mo_error *err);
void mo_tally_destroy(mo_tally *t); /* NULL is allowed */

/* The counters of a layer by its number in the model. NULL if it is not routed. O(1). */
mo_tally_layer *mo_tally_find(const mo_tally *t, int32_t layer);

/* ---- Counting: only the decoding thread ---- */

void mo_tally_add(mo_tally_count *count, uint64_t n);

/* Counts a pass through the layer. */
void mo_tally_call(mo_tally_layer *l, mo_trace_phase phase);

/* Counts a token's pick of an expert and where it was found. */
void mo_tally_pick(mo_tally_layer *l, mo_trace_phase phase, mo_found place, int32_t expert);

/* Counts a timed pass; passes may be sampled. */
void mo_tally_time(mo_tally_layer *l, const uint64_t time_ns[MO_TIMES]);

/* Counts a pass with lanes: which lanes ran, and fallbacks. */
void mo_tally_lanes(mo_tally_layer *l, bool hot, bool cold, const uint64_t fallbacks[MO_FALLBACKS]);

/* ---- Prompts ----

   How often one conversation picked each expert. Concurrent conversations have one each. */

typedef struct mo_touch {
    uint32_t *picks; /* [all experts of all layers] */
    int32_t count;
} mo_touch;

mo_status mo_touch_create(const mo_tally *t, mo_touch *out, mo_error *err);
void mo_touch_destroy(mo_touch *touch); /* a zeroed one is allowed */

void mo_touch_add(mo_touch *touch, const mo_tally_layer *l, int32_t expert, uint32_t picks);
void mo_touch_mark(mo_touch *touch, const mo_tally_layer *l, int32_t expert);

/* Records the conversation as one prompt that needs the experts with more than an average share of their
   layer's picks (a long text touches nearly all experts), and clears the counts. A conversation without picks
   is not counted. Only the decoding thread. */
void mo_tally_prompt(mo_tally *t, mo_touch *touch);

/* ---- Reading: any thread ---- */

/* A profile of the current counters. During decoding each count is correct, but a pass may be counted in one
   layer and not yet in the next. Free with mo_profile_free(). */
mo_status mo_tally_snapshot(const mo_tally *t, mo_profile **out, mo_error *err);

#endif
