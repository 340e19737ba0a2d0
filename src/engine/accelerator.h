/* Accelerator: what the engine knows of a device that computes whole steps in its stead. Who implements it (gpu/gpu.c)
 * stands above the engine; the engine calls it through these functions alone. When step or open has answered MO_EDEVICE it
 * asks what is left (lose), and stops calling step, open, settle and copy where nothing is. */
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
    mo_precision
        precision; /* of its largest steps, in some layers at least: BF16 makes what sessions hold inexact (engine/session.h) */

    /* Most tokens of a step with drafts that it computes exactly; 0: it takes none. */
    int64_t draft_rows;

    /* The step of forward->slices, all of whose states are on the device. The caller holds the engine's lock; tokens are
     * placed and embedded in the workspace, which afterwards has what came out of the last layer, as far as heads take it in (mo_head_leaves_out()). MO_EDEVICE: the device is lost. MO_ECANCELLED: as mo_step(). */
    mo_status (*step)(void *owner, struct mo_forward *forward, mo_error *err);

    /* After the picks of a step with drafts. Of the layers that devices computed in it, what was accepted enters recurrent states, and
     * forward->engine->drafts.applied is set; a row of logits that stays on the device is the one behind the last accepted draft.
     * Any failure is that of a device that is lost. Under the engine's lock. */
    mo_status (*apply_drafts)(void *owner, struct mo_forward *forward, mo_error *err);

    /* A device is lost, as the error says. True: others go on, and what the lost one held is computed by the CPU in the steps
     * that follow; states are to be made again from their tokens, and what snapshots kept on devices is gone. One line in
     * the log says so. False: nothing is left, and the CPU computes the steps that follow. Under the engine's lock. */
    bool (*lose)(void *owner, const mo_error *why);

    /* The state of a session on the device: state->gpu_session. open and close may be called by any thread, also while a
     * step runs that does not use this state; close also after the device was lost. */
    mo_status (*open_session)(void *owner, struct mo_state *state, mo_error *err);
    void (*close_session)(struct mo_state *state); /* one that is not on the device is allowed */
    /* The session's row of logits (page-aligned, `bytes` a multiple of a page) may be written by the device directly. */
    void (*adopt_logits)(struct mo_state *state, float *logits, size_t bytes);
    /* A step that found the token itself (mo_pick.made) leaves the row on the device until it is requested: it is in the session's
     * memory afterwards. On failure it is lost. Any thread; waits for the step that runs only where the row is still there. */
    mo_status (*bring_logits)(const struct mo_state *state, mo_error *err);
    /* That row is no longer needed, and the device does not write it again. */
    void (*forget_logits)(const struct mo_state *state);
    /* The state's newest blocks are on the device afterwards, also those of layers that the CPU computes. */
    mo_status (*settle)(struct mo_state *state, mo_error *err);
    /* Makes `to` hold a copy of what `from` has of a sequence of `length`; one of them is in RAM, the other on the device.
     * On failure it holds nothing of use. */
    mo_status (*copy)(void *owner, struct mo_blocks *to, const struct mo_blocks *from, int64_t length,
                      bool to_device, mo_error *err);
    /* An adapter (mo_lora) that is there from now on, or no more; under the engine's lock, so that no step runs. */
    mo_status (*open_adapter)(void *owner, const struct mo_lora *lora, mo_error *err);
    void (*close_adapter)(void *owner, const struct mo_lora *lora);
    /* The device's blocks for sessions of a format; NULL: there have been none yet. */
    struct mo_block_pool *(*pool)(void *owner, mo_kv_type kv);
} mo_accelerator;

#endif
