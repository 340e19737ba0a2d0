/* Step: tokens of one or several sessions through the whole model, at once. The bits of a token's logits do
 * not depend on what else is in its step. */
#ifndef MO_ENGINE_STEP_H
#define MO_ENGINE_STEP_H

#include "engine/engine.h"

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
    /* Of the first slice, for all: no routed expert is computed, routers still choose. Only good for learning what
     * they would choose; nothing is counted. */
    bool routers_only;
} mo_slice;

/* Runs the slices: at most engine->batch tokens together, each state with room for its own. On success each
 * state is longer by its count. On failure the states hold what they held (a recurrent one is empty), so a
 * session can feed its tokens again. cancel, when not NULL and set, ends the step with MO_ECANCELLED. */
mo_status mo_step(mo_engine *engine, const mo_slice *slices, int count, const atomic_bool *cancel,
                  mo_error *err);

#endif
