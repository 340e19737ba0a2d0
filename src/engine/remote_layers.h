/* Remote layers: how the engine uses ranks that have later layers. The implementation (cluster/leader.c) is above
 * the engine. Other ranks hold the state of sessions and snapshots for their layers, under the same numbers: they are notified
 * with the next step, so that these functions return at once, and any thread may call them. */
#ifndef MO_ENGINE_REMOTE_LAYERS_H
#define MO_ENGINE_REMOTE_LAYERS_H

#include <stddef.h>

#include "moraine.h"

struct mo_forward;
struct mo_state;

enum { MO_REMOTE_GROUPS = 4 };

typedef struct mo_remote_layers {
    void *owner; /* first argument of all */

    /* After the engine's own layers: the step's stream, w->x, goes through those of the others. Afterwards it has the rows whose
     * logits are wanted (mo_logits_list()). The caller holds the engine's lock. On failure the others hold what they held, or
     * forward->forget says that it is lost. */
    mo_status (*step)(void *owner, struct mo_forward *forward, mo_error *err);

    /* What was accepted of a step's drafts, which stand in its picks. The caller holds the engine's lock. */
    void (*accepted)(void *owner, const struct mo_forward *forward);

    /* A step of several sessions, all of whose slices want logits, may go in groups, so that all ranks work at once: into how many it is
     * best divided, at most MO_REMOTE_GROUPS. */
    int (*groups)(void *owner, int64_t tokens);
    /* The same as step in two halves: every group is begun, when its own layers are done, before the first is ended, in the same order;
     * end is called after every begin that succeeded, and its rows are spread from x on. */
    mo_status (*begin)(void *owner, struct mo_forward *forward, mo_error *err);
    mo_status (*end)(void *owner, struct mo_forward *forward, float *x, mo_error *err);

    /* A state of this format and length, and its number, which is never 0; a snapshot of the first `length` positions that
     * a state holds: after a step that failed here alone, others may hold more. */
    mo_status (*open_state)(void *owner, mo_kv_type kv, int64_t context, int64_t *number, mo_error *err);
    void (*close_state)(void *owner, int64_t number);
    mo_status (*open_snapshot)(void *owner, int64_t state, int64_t length, int64_t *number, mo_error *err);
    void (*close_snapshot)(void *owner, int64_t number);
    /* The state is the first `length` positions of the snapshot. */
    mo_status (*restore)(void *owner, int64_t state, int64_t snapshot, int64_t length, mo_error *err);

    /* What mo_state_save() returns for a snapshot's remote layers, in their order: `bytes` of it; and a state of `length` positions
     * from such bytes. These wait for the others: the caller holds the engine's lock. */
    mo_status (*save)(void *owner, int64_t snapshot, uint8_t *out, size_t bytes, mo_error *err);
    mo_status (*load)(void *owner, const struct mo_state *state, int64_t length, const uint8_t *saved,
                      mo_error *err);
} mo_remote_layers;

#endif
