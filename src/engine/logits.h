/* Logits: the model's output for the tokens of a step whose logits are requested. The output matrix is one of
 * the largest that a token reads, so sessions that decode together read it once. */
#ifndef MO_ENGINE_LOGITS_H
#define MO_ENGINE_LOGITS_H

#include "engine/forward.h"

/* Where to write the logits of a token. Rows of slices with drafts are in engine->drafts. */
float *mo_logits_row(const mo_forward *forward, int slice, int64_t token);

/* Lists the tokens of the step whose logits are requested, ascending, in w->logits.token, and their
 * destinations in w->logits.row. Returns their number; *slices: number of sessions. */
int64_t mo_logits_list(const mo_forward *forward, int *slices);

/* After the last layer: writes all requested rows. */
mo_status mo_logits_emit(mo_forward *forward, mo_error *err);

#endif
