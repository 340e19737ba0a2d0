/* Slice: one session's part of a step. */
#ifndef MO_ENGINE_SLICE_H
#define MO_ENGINE_SLICE_H

#include <stdatomic.h>

#include "engine/image.h"
#include "kv/state.h"
#include "profile/tally.h"
#include "sampling/pick.h"

struct mo_head_session;

/* Consecutive tokens of one session. Slices of a step belong to different states. */
typedef struct mo_slice {
    mo_state *state;       /* tokens go to positions state->length and up */
    const int32_t *tokens; /* in range of the vocabulary */
    const float *states;   /* of an MTP head: [count][D] what the model gave out at the token before each */
    /* NULL, or hears under the engine's lock what was computed, in RAM: tokens[count] at position `at`, and [count][D] what came out of the last
     * layer (engine/head.h). */
    void (*follow)(struct mo_head_session *head, const mo_model_spec *spec, const int32_t *tokens, int64_t at,
                   int64_t count, const float *stream);
    struct mo_head_session *head;
    int64_t count;
    bool prompt;         /* part of a text that was given, not a token that was just made: for statistics */
    float *logits;       /* NULL, or where rows of vocab floats go: */
    int64_t logits_from; /* for tokens logits_from .. count-1 of the slice */
    /* Called with the chosen experts of every token after each routed layer, or NULL. For tests and traces. */
    void (*routes)(void *user, int layer, int64_t token, const int32_t *ids, const float *weights, int used);
    /* Called with the positions (or blocks, of compressed attention) that a layer's own indexer has kept, ascending, of every token that does not keep all, or NULL. For
     * tests; a device does not say them. */
    void (*kept)(void *user, int layer, int64_t token, const int32_t *positions, int64_t count);
    void *user;
    mo_touch *touch; /* marks the experts this conversation uses, or NULL */
    /* From the first slice, for all: no routed expert is computed, routers still choose. Only good for learning what
     * they would choose; nothing is counted. */
    bool routers_only;
    bool uncounted; /* a step of such slices alone changes no statistics */
    /* NULL, or set by any thread when this session's part is not wanted any more. */
    const atomic_bool *cancel;
    mo_pick *pick; /* NULL, or who draws the token that follows: sampler, mask, and what came of it */
    /* The last tokens that are guesses, with a pick; all others but one are in earlier slices. The state gets only those that the pick
     * accepts, and `logits` the row of the last of these. */
    int64_t drafts;
    bool
        deferred; /* with drafts, and `pick` for their count alone: of layers behind which another rank picks. mo_step_commit() ends the step */
    const mo_image_list
        *images; /* of the state's whole sequence, where some tokens below 0 are their rows; or NULL */
    /* On ranks with later layers, in the place of images: what the first rank says of the tokens, and features of some of them behind layers
     * first_feature and up of the whole model. NULL: there are no rows of pictures. */
    const mo_row_place *places; /* [count] */
    const float *features;
    int first_feature;
    const struct mo_adapter_list
        *adapters; /* what changes the model's weights for this slice (engine/adapter.h), or NULL */
} mo_slice;

#endif
