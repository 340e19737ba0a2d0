/* Trace: the experts chosen by every token of some texts, layer by layer. `moraine trace` records it,
   `moraine replay` replays it. Small enough to keep in memory. */
#ifndef MO_PROFILE_TRACE_H
#define MO_PROFILE_TRACE_H

#include "moraine_tools.h"

/* The model of the trace. Only routed layers. */
typedef struct mo_trace_shape {
    uint64_t fingerprint;
    int layers, experts, used;
    int32_t *layer;        /* [layers] number in the model, ascending */
    int64_t *expert_bytes; /* [layers] */
    int64_t core_bytes;    /* other bytes that every token reads */
} mo_trace_shape;

/* One pass through the model. */
typedef struct mo_trace_step {
    int32_t tokens;
    uint16_t text;  /* number of the text or conversation */
    uint16_t phase; /* mo_trace_phase */
} mo_trace_step;

struct mo_trace {
    mo_trace_shape shape;
    int64_t step_count, token_count;
    mo_trace_step *steps;
    uint16_t *ids; /* [token_count][layers][used], in router order */
    void *memory;  /* private */
};

/* moraine.h has mo_tracer_*() for recording, and mo_trace_open() and mo_trace_close() for reading. These
   functions are for the library itself. */

/* Copies the shape. MO_EFORMAT if its numbers are invalid. */
mo_status mo_tracer_create(const mo_trace_shape *shape, mo_tracer **out, mo_error *err);

/* Counts how often each expert was picked: [layers][experts] into `picks`. */
void mo_trace_picks(const mo_trace *t, uint64_t *picks);

#endif
