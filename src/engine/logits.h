/* Logits: the model's output for the tokens of a step whose logits are requested. The output matrix is one of the
 * largest a token reads, so sessions that decode together read it once. */
#ifndef MO_ENGINE_LOGITS_H
#define MO_ENGINE_LOGITS_H

#include "engine/forward.h"

/* Where a token of a slice that wants them has its logits: rows of slices with drafts are in engine->drafts. */
float *mo_logits_row(const mo_forward *forward, int slice, int64_t token);

/* Lists the tokens of the step that want logits, ascending, in w->logits.token, and where these go in w->logits.row. Returns
 * how many; *slices: of how many sessions. */
int64_t mo_logits_list(const mo_forward *forward, int *slices);

/* After the last layer: writes every row that a slice asked for. */
mo_status mo_logits_emit(mo_forward *forward, mo_error *err);

#endif
