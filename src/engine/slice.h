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
    mo_state *state;       /* tokens get positions state->length and up */
    const int32_t *tokens; /* all within the vocabulary */
    const float *states;   /* for an MTP head: [count][D] the model's output at the token before each */
    /* Receives the computed tokens[count] at position `at` and [count][D] outputs of the last layer, in RAM,
     * under the engine's lock (engine/head.h); may be NULL. */
    void (*follow)(struct mo_head_session *head, const mo_model_spec *spec, const int32_t *tokens, int64_t at,
                   int64_t count, const float *stream);
    struct mo_head_session *head;
    int64_t count;
    bool prompt;         /* part of a given text, not a generated token: for statistics */
    float *logits;       /* destination for rows of vocab floats, or NULL: */
    int64_t logits_from; /* for tokens logits_from .. count-1 of the slice */
    /* Called after each routed layer with the experts of every token, or NULL. For tests and traces. */
    void (*routes)(void *user, int layer, int64_t token, const int32_t *ids, const float *weights, int used);
    /* Called for every token of which a layer's own indexer keeps only some positions (or blocks, in
     * compressed attention), ascending, or NULL. For tests; a device does not report them. */
    void (*kept)(void *user, int layer, int64_t token, const int32_t *positions, int64_t count);
    void *user;
    mo_touch *touch; /* records the experts this conversation uses, or NULL */
    /* Taken from the first slice, for all: routers choose, but routed experts are not computed. Only to learn
     * what routers would choose; nothing is counted. */
    bool routers_only;
    bool uncounted; /* a step of only such slices changes no statistics */
    /* NULL, or set by any thread to cancel this session's part. */
    const atomic_bool *cancel;
    mo_pick *pick; /* NULL, or the sampler and mask for the next token, and the result */
    /* The last tokens are drafts, with a pick; all but one of the other tokens are in earlier slices. The
     * state keeps only the accepted ones, and `logits` gets the row of the last of these. */
    int64_t drafts;
    /* with drafts, and `pick` only for their count: for layers before the rank that picks. mo_step_commit()
     * ends the step */
    bool deferred;
    /* images of the state's whole sequence, if some tokens below 0 are their rows; or NULL */
    const mo_image_list *images;
    /* On ranks with later layers, in place of images: the first rank's data about the tokens, and features of
     * some of them for layers first_feature and up of the whole model. NULL: no rows of pictures. */
    const mo_row_place *places; /* [count] */
    const float *features;
    int first_feature;
    /* adapters of this slice (engine/adapter.h), or NULL */
    const struct mo_adapter_list *adapters;
} mo_slice;

#endif
