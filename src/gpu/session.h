/* A session's state on a device: blocks of the device's pool, and in the device's memory a table of where each layer's are.
 * Several devices have one pool, in which each layer's blocks are in the memory of its device, and a table each. `gpu` is the head
 * of the row, unless it says otherwise. Blocks of a device that is lost are in RAM, and the CPU computes with them.
 * Private to the gpu's files. */
#ifndef MO_GPU_SESSION_H
#define MO_GPU_SESSION_H

#include "gpu/objects.h"

typedef struct mo_gpu_session {
    mo_daddr table;   /* mo_dstate[layers] and the tables of their blocks */
    int64_t bytes;    /* of it */
    mo_dstate *host;  /* the same here, as it was sent last */
    uint64_t changes; /* of the state's tables, up to when that was; */
    bool sent;        /* and whether it has arrived */
    float *logits;    /* the session's own row, pinned in place; NULL: it could not be */
    atomic_bool kept; /* what belongs there is on the device still (gpu/logits.h); changes in turns */
    atomic_bool lost; /* it could not be copied, and its place is another's now; changes in turns */
    /* The layers that the CPU computes have their newest state in RAM, of positions from hosted_from on. */
    bool hosted;
    int64_t hosted_from;
} mo_gpu_session;

/* What a state has on one device of the row: state->gpu_session has an entry for each. */
static inline mo_gpu_session *mo_gpu_session_of(const mo_state *state, const mo_gpu *gpu)
{
    return &state->gpu_session[gpu->part];
}

/* Where a layer's blocks are, in the table as it was sent last. */
const mo_daddr *mo_gpu_session_entries(const mo_gpu *gpu, const mo_state *state, int layer);

/* As mo_accelerator has them. */
mo_status mo_gpu_session_open(void *gpu, mo_state *state, mo_error *err);
void mo_gpu_session_close(mo_state *state);
void mo_gpu_session_adopt(mo_state *state, float *logits, size_t bytes);
mo_status mo_gpu_session_settle(mo_state *state, mo_error *err);
mo_status mo_gpu_session_copy(void *gpu, mo_blocks *to, const mo_blocks *from, int64_t length, bool to_device,
                              mo_error *err);
mo_block_pool *mo_gpu_session_pool(void *gpu, mo_kv_type kv);

/* In a turn, on one device: what it keeps of the session's logits (gpu/logits.h) is of no use any more, or has arrived. */
void mo_gpu_session_drop_row(mo_gpu *gpu, mo_gpu_session *s);

/* Before a step, in this order: its states get the blocks that it writes (MO_ENOMEM: none is free, and they hold what they
 * held; another failure may leave one of them empty); */
mo_status mo_gpu_session_own(mo_gpu *gpu, const mo_forward *forward, mo_error *err);
/* on one device, the parts of layers that the CPU computes are where the step computes them; */
mo_status mo_gpu_cpu_state_bring(mo_gpu *gpu, const mo_forward *forward, bool small, mo_error *err);
/* on one device, the tables are as they are here. */
mo_status mo_gpu_session_send(mo_gpu *gpu, const mo_forward *forward, mo_error *err);
/* The step has failed: what was sent for it may not have arrived. */
void mo_gpu_session_doubt(const mo_gpu *gpu, const mo_forward *forward);

#endif
