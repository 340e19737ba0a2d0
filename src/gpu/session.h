/* A session's state on a device: memory there with the layout of the state's own, and a table of where each layer's part
 * is in it. Private to the gpu's files. */
#ifndef MO_GPU_SESSION_H
#define MO_GPU_SESSION_H

#include "gpu/objects.h"

typedef struct mo_gpu_session {
    mo_gpu *gpu;
    mo_daddr memory, table; /* the state; mo_dstate[layers] and the tables of their blocks */
    int64_t bytes;
    float *logits; /* the session's own row, pinned in place; NULL: it could not be */
    bool hosted;   /* the layers that the CPU computes have their newest state in RAM */
} mo_gpu_session;

/* As mo_accelerator has them. */
mo_status mo_gpu_session_open(void *gpu, mo_state *state, mo_error *err);
void mo_gpu_session_close(mo_state *state);
void mo_gpu_session_adopt(mo_state *state, float *logits, size_t bytes);
mo_status mo_gpu_session_pull(const mo_state *state, mo_error *err);
mo_status mo_gpu_session_push(mo_state *state, mo_error *err);

/* Before a step: recurrent parts of those that begin anew are cleared; */
mo_status mo_gpu_session_clear(mo_gpu *gpu, const mo_forward *forward, mo_error *err);
/* the parts of layers that the CPU computes are where the step computes them. */
mo_status mo_gpu_cpu_state_bring(mo_gpu *gpu, const mo_forward *forward, bool small, mo_error *err);
/* The same for one state: to the device. */
mo_status mo_gpu_cpu_state_return(mo_gpu *gpu, const mo_state *state, mo_error *err);

#endif
