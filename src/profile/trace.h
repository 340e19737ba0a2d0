/* Trace: which experts every token of some texts chose, layer by layer. Recorded by `moraine trace`, replayed
 * by `moraine replay`; small enough to keep in memory. */
#ifndef MO_PROFILE_TRACE_H
#define MO_PROFILE_TRACE_H

#include "moraine_tools.h"

/* The model it was recorded with. Layers are the routed ones only. */
typedef struct mo_trace_shape {
    uint64_t fingerprint;
    int layers, experts, used;
    int32_t *layer;        /* [layers] number of each in the model, ascending */
    int64_t *expert_bytes; /* [layers] */
    int64_t core_bytes;    /* what every token reads in addition */
} mo_trace_shape;

/* One pass through the model. */
typedef struct mo_trace_step {
    int32_t tokens;
    uint16_t text;  /* number of the text or conversation it belongs to */
    uint16_t phase; /* mo_trace_phase */
} mo_trace_step;

struct mo_trace {
    mo_trace_shape shape;
    int64_t step_count, token_count;
    mo_trace_step *steps;
    uint16_t *ids; /* [token_count][layers][used], in router order */
    void *memory;  /* private */
};

/* Recording is mo_tracer_*(), reading mo_trace_open() and mo_trace_close() of moraine.h; here is what the library
 * itself needs besides. */

/* Copies the shape. MO_EFORMAT when its numbers make no sense. */
mo_status mo_tracer_create(const mo_trace_shape *shape, mo_tracer **out, mo_error *err);

/* How often each expert was picked: [layers][experts] counts into `picks`. */
void mo_trace_picks(const mo_trace *t, uint64_t *picks);

#endif
