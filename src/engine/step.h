/* Step: runs tokens of one or several sessions through the whole model at once. The bits of a token's logits
 * do not depend on the other tokens in the step. */
#ifndef MO_ENGINE_STEP_H
#define MO_ENGINE_STEP_H

#include "engine/engine.h"
#include "engine/slice.h"

/* Runs the slices: at most engine->batch tokens together, each state with space for its own. On success each
 * state grows by its count. On failure the states are unchanged, so a session can feed its tokens again. (A
 * recurrent state is then empty, unless there were no blocks for the new tokens: MO_ENOMEM.) If all slices
 * are cancelled, the step ends with MO_ECANCELLED: between two layers, and on the CPU within a layer if it
 * has more than 8 tokens. Otherwise it continues for all. */
mo_status mo_step(mo_engine *engine, const mo_slice *slices, int count, mo_error *err);

/* Ends a step with deferred drafts, with the same slices, before any other step; the picks have the number of
 * accepted drafts. The step itself has not changed these states or any length, so without this call they keep
 * what they held. */
void mo_step_commit(mo_engine *engine, const mo_slice *slices, int count);
/* Gives up such a step. The other slices keep their tokens. */
void mo_step_abandon(mo_engine *engine, const mo_slice *slices, int count);

#endif
