/* Accelerator: the engine's interface to a device that computes whole steps in its place. The implementation
 * (gpu/gpu.c) is above the engine; the engine calls it only through these functions. If step or open returns
 * MO_EDEVICE, the engine calls lose, and if that returns false stops calling step, open, settle and copy. */
#ifndef MO_ENGINE_ACCELERATOR_H
#define MO_ENGINE_ACCELERATOR_H

#include <stddef.h>

#include "moraine.h"

struct mo_block_pool;
struct mo_blocks;
struct mo_forward;
struct mo_lora;
struct mo_state;

typedef struct mo_accelerator {
    void *owner; /* first argument of step, lose and open */
    /* precision of its largest steps, in at least some layers; BF16 makes session state inexact
     * (engine/session.h) */
    mo_precision precision;

    /* Maximum tokens of a step with drafts that it computes exactly; 0: it supports no drafts. */
    int64_t draft_rows;

    /* Runs the step of forward->slices, whose states are all on the device. The caller holds the engine's
     * lock; tokens are placed and embedded in the workspace. Afterwards the workspace has the output of the
     * last layer, as far as MTP heads read it (mo_head_leaves_out()). MO_EDEVICE: the device is lost.
     * MO_ECANCELLED: as in mo_step(). */
    mo_status (*step)(void *owner, struct mo_forward *forward, mo_error *err);

    /* Called after the picks of a step with drafts: in the layers that devices computed, accepted tokens
     * update the recurrent states, and forward->engine->drafts.applied is set. The row of logits that stays
     * on the device is the one after the last accepted draft. Any failure means that the device is lost.
     * Under the engine's lock. */
    mo_status (*apply_drafts)(void *owner, struct mo_forward *forward, mo_error *err);

    /* A device is lost; `why` has the error. True: other devices continue, and the CPU computes the lost
     * device's part in later steps. States must be rebuilt from their tokens, and snapshots kept on devices
     * are gone; the log gets one line. False: no device is left, and the CPU computes later steps. Under the
     * engine's lock. */
    bool (*lose)(void *owner, const mo_error *why);

    /* The state of a session on the device: state->gpu_session. Any thread may call open and close, even
     * while a step runs that does not use this state; close also after the device was lost. */
    mo_status (*open_session)(void *owner, struct mo_state *state, mo_error *err);
    void (*close_session)(struct mo_state *state); /* no effect if the state is not on the device */
    /* The device may write the session's row of logits (page-aligned, `bytes` a multiple of a page)
     * directly. */
    void (*adopt_logits)(struct mo_state *state, float *logits, size_t bytes);
    /* Copies the row into the session's memory if it is still on the device, after a step that picked the
     * token there (mo_pick.made). On failure the row is lost. Any thread; waits for a running step only if
     * the row is still on the device. */
    mo_status (*bring_logits)(const struct mo_state *state, mo_error *err);
    /* The row is no longer needed, and the device does not write it again. */
    void (*forget_logits)(const struct mo_state *state);
    /* Copies the state's newest blocks to the device, also those of layers that the CPU computes. */
    mo_status (*settle)(struct mo_state *state, mo_error *err);
    /* Copies the first `length` positions of `from` to `to`; one is in RAM, the other on the device. On
     * failure the contents of `to` are undefined. */
    mo_status (*copy)(void *owner, struct mo_blocks *to, const struct mo_blocks *from, int64_t length,
                      bool to_device, mo_error *err);
    /* Adds or removes an adapter (mo_lora). Under the engine's lock, so that no step runs. */
    mo_status (*open_adapter)(void *owner, const struct mo_lora *lora, mo_error *err);
    void (*close_adapter)(void *owner, const struct mo_lora *lora);
    /* The device's blocks for sessions of a format; NULL: none were needed so far. */
    struct mo_block_pool *(*pool)(void *owner, mo_kv_type kv);
} mo_accelerator;

#endif
