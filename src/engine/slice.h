/* Slice: one session's part of a step. */
#ifndef MO_ENGINE_SLICE_H
#define MO_ENGINE_SLICE_H

#include <stdatomic.h>

#include "kv/state.h"
#include "profile/tally.h"
#include "sampling/pick.h"

/* Consecutive tokens of one session. Slices of a step belong to different states. */
typedef struct mo_slice {
    mo_state *state;       /* tokens go to positions state->length and up */
    const int32_t *tokens; /* in range of the vocabulary */
    int64_t count;
    bool prompt;         /* part of a text that was given, not a token that was just made: for statistics */
    float *logits;       /* NULL, or where rows of vocab floats go: */
    int64_t logits_from; /* for tokens logits_from .. count-1 of the slice */
    /* Called with the chosen experts of every token after each routed layer, or NULL. For tests and traces. */
    void (*routes)(void *user, int layer, int64_t token, const int32_t *ids, const float *weights, int used);
    void *user;
    mo_touch *touch; /* marks the experts this conversation uses, or NULL */
    /* From the first slice, for all: no routed expert is computed, routers still choose. Only good for learning what
     * they would choose; nothing is counted. */
    bool routers_only;
    bool uncounted; /* a step of such slices alone changes no statistics */
    /* NULL, or set by any thread when this session's part is not wanted any more. */
    const atomic_bool *cancel;
    mo_pick *pick; /* NULL, or who draws the token that follows: sampler, mask, and what came of it */
    const struct mo_adapter_list
        *adapters; /* what changes the model's weights for this slice (engine/adapter.h), or NULL */
} mo_slice;

#endif
