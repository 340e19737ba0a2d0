/* Remote layers: the engine's interface to ranks that have later layers. The implementation
 * (cluster/leader.c) is above the engine. Other ranks hold the state of sessions and snapshots for their
 * layers, under the same numbers. They are notified with the next step, so these functions return at once,
 * and any thread may call them. */
#ifndef MO_ENGINE_REMOTE_LAYERS_H
#define MO_ENGINE_REMOTE_LAYERS_H

#include <stddef.h>

#include "moraine.h"

struct mo_forward;
struct mo_state;

enum { MO_REMOTE_GROUPS = 4 };

typedef struct mo_remote_layers {
    void *owner; /* first argument of all calls */

    /* After the engine's own layers: runs the step's stream, w->x, through the remote layers. Afterwards w->x
     * has the rows whose logits are requested (mo_logits_list()). The caller holds the engine's lock. On
     * failure the remote state is unchanged, or forward->forget says that it is lost. */
    mo_status (*step)(void *owner, struct mo_forward *forward, mo_error *err);

    /* Reports the accepted drafts of a step, from its picks. The caller holds the engine's lock. */
    void (*accepted)(void *owner, const struct mo_forward *forward);

    /* A step of several sessions, all with requested logits, may run in groups, so that all ranks work at
     * once. Returns the best number of groups, at most MO_REMOTE_GROUPS. */
    int (*groups)(void *owner, int64_t tokens);
    /* step in two halves. begin is called for every group, after its own layers, before the first end; ends
     * follow in the same order. end is called after every successful begin, and its rows are spread from x
     * on. */
    mo_status (*begin)(void *owner, struct mo_forward *forward, mo_error *err);
    mo_status (*end)(void *owner, struct mo_forward *forward, float *x, mo_error *err);

    /* Opens a state of this format and length, or a snapshot of a state's first `length` positions, and
     * returns its number, which is never 0. After a step that failed only locally, remote states may be
     * longer. */
    mo_status (*open_state)(void *owner, mo_kv_type kv, int64_t context, int64_t *number, mo_error *err);
    void (*close_state)(void *owner, int64_t number);
    mo_status (*open_snapshot)(void *owner, int64_t state, int64_t length, int64_t *number, mo_error *err);
    void (*close_snapshot)(void *owner, int64_t number);
    /* Sets the state to the first `length` positions of the snapshot. */
    mo_status (*restore)(void *owner, int64_t state, int64_t snapshot, int64_t length, mo_error *err);

    /* save: the part of mo_state_save()'s result that belongs to a snapshot's remote layers, in order,
     * `bytes` long. load: sets a state of `length` positions from such bytes. These calls wait for the other
     * ranks; the caller holds the engine's lock. */
    mo_status (*save)(void *owner, int64_t snapshot, uint8_t *out, size_t bytes, mo_error *err);
    mo_status (*load)(void *owner, const struct mo_state *state, int64_t length, const uint8_t *saved,
                      mo_error *err);
} mo_remote_layers;

#endif
