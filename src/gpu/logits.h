/* Logits that stay on the device, of several devices the last: rows of sessions whose token was found there. A row is copied when it is
 * requested, or when the next step makes others in its place and its session is not in that step. Private to the gpu's files. */
#ifndef MO_GPU_LOGITS_H
#define MO_GPU_LOGITS_H

#include "gpu/session.h"

/* In a turn, before a step: rows of its own sessions are of no use any more; if it makes logits, those of others are brought to RAM,
 * or lost where that cannot be. */
mo_status mo_gpu_logits_begin(mo_gpu *gpu, const mo_forward *forward, mo_error *err);

/* May the row of a token stay, and who picks it? NULL: it has to be copied. `count`: rows of the step. */
mo_pick *mo_gpu_logits_stays(const mo_gpu *gpu, const mo_forward *forward, int32_t token, const float *row,
                             int64_t count);

/* After a step that ended well: the picks of rows that stay are made. */
void mo_gpu_logits_end(mo_gpu *gpu, const mo_forward *forward, bool small);

/* After the picks of a step with drafts: the row behind the last accepted one is the session's. */
void mo_gpu_logits_accept(mo_gpu *head, const mo_forward *forward);

/* As mo_accelerator has them. */
mo_status mo_gpu_logits_bring(const mo_state *state, mo_error *err);
void mo_gpu_logits_forget(const mo_state *state);

#endif
