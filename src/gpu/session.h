/* A session's state on a device: blocks of the device's pool, and a table of each layer's blocks in device
 * memory. Several devices share one pool, in which each layer's blocks are in its device's memory, and have a
 * table each. `gpu` is the head of the row, unless noted. Blocks of a lost device are in RAM, and the CPU
 * computes with them. Private to gpu/. */
#ifndef MO_GPU_SESSION_H
#define MO_GPU_SESSION_H

#include "gpu/objects.h"

typedef struct mo_gpu_session {
    mo_daddr table;   /* mo_dstate[layers] and the tables of their blocks */
    int64_t bytes;    /* bytes of the table */
    mo_dstate *host;  /* the table as last sent */
    uint64_t changes; /* version of the state's tables when it was sent */
    bool sent;        /* the table has arrived */
    float *logits;    /* the session's row, pinned in place; NULL: it could not be pinned */
    atomic_bool kept; /* its row is still on the device (gpu/logits.h); changes in turns */
    atomic_bool lost; /* its row could not be copied and was overwritten; changes in turns */
    /* Layers that the CPU computes have their newest state in RAM, for positions from hosted_from on. */
    bool hosted;
    int64_t hosted_from;
} mo_gpu_session;

/* The part of a state on one device of the row: state->gpu_session has an entry for each. */
static inline mo_gpu_session *mo_gpu_session_of(const mo_state *state, const mo_gpu *gpu)
{
    return &state->gpu_session[gpu->part];
}

/* A layer's blocks in the table as last sent. */
const mo_daddr *mo_gpu_session_entries(const mo_gpu *gpu, const mo_state *state, int layer);

/* As in mo_accelerator. */
mo_status mo_gpu_session_open(void *gpu, mo_state *state, mo_error *err);
void mo_gpu_session_close(mo_state *state);
void mo_gpu_session_adopt(mo_state *state, float *logits, size_t bytes);
mo_status mo_gpu_session_settle(mo_state *state, mo_error *err);
mo_status mo_gpu_session_copy(void *gpu, mo_blocks *to, const mo_blocks *from, int64_t length, bool to_device,
                              mo_error *err);
mo_block_pool *mo_gpu_session_pool(void *gpu, mo_kv_type kv);

/* In a turn, for one device: the session's row of logits (gpu/logits.h) is no longer needed, or has been
 * copied. */
void mo_gpu_session_drop_row(mo_gpu *gpu, mo_gpu_session *s);

/* Before a step, in this order. own: the states get unshared blocks for the positions that the step writes.
 * MO_ENOMEM: no block is free, and the states are unchanged; another failure may leave one of them empty. */
mo_status mo_gpu_session_own(mo_gpu *gpu, const mo_forward *forward, mo_error *err);
/* For one device: moves the state of layers that the CPU may compute to where this step computes them. */
mo_status mo_gpu_cpu_state_bring(mo_gpu *gpu, const mo_forward *forward, bool small, mo_error *err);
/* For one device: sends the tables if they have changed. */
mo_status mo_gpu_session_send(mo_gpu *gpu, const mo_forward *forward, mo_error *err);
/* The step has failed: data sent for it may not have arrived. */
void mo_gpu_session_doubt(const mo_gpu *gpu, const mo_forward *forward);

#endif
