/* Logits that stay on the device (the last one, if there are several): rows of sessions whose token was
 * picked there. A row is copied when it is requested, or when the next step reuses its memory and its session
 * is not part of that step. Private to gpu/. */
#ifndef MO_GPU_LOGITS_H
#define MO_GPU_LOGITS_H

#include "gpu/session.h"

/* In a turn, before a step: drops the rows of the step's own sessions. If the step makes logits, copies the
 * rows of other sessions to RAM; rows that cannot be copied are lost. */
mo_status mo_gpu_logits_begin(mo_gpu *gpu, const mo_forward *forward, mo_error *err);

/* The pick of a token whose row may stay on the device; NULL: the row must be copied. `count`: rows of the
 * step. */
mo_pick *mo_gpu_logits_stays(const mo_gpu *gpu, const mo_forward *forward, int32_t token, const float *row,
                             int64_t count);

/* After a successful step: completes the picks of rows that stay. */
void mo_gpu_logits_end(mo_gpu *gpu, const mo_forward *forward, bool small);

/* After the picks of a step with drafts: assigns the row after the last accepted draft to the session. */
void mo_gpu_logits_accept(mo_gpu *head, const mo_forward *forward);

/* As in mo_accelerator. */
mo_status mo_gpu_logits_bring(const mo_state *state, mo_error *err);
void mo_gpu_logits_forget(const mo_state *state);

#endif
