/* Step: tokens of one or several sessions through the whole model, at once. The bits of a token's logits do
 * not depend on what else is in its step. */
#ifndef MO_ENGINE_STEP_H
#define MO_ENGINE_STEP_H

#include "engine/engine.h"
#include "engine/slice.h"

/* Runs the slices: at most engine->batch tokens together, each state with space for its own. On success each
 * state is longer by its count. On failure the states hold what they held (a recurrent one is empty, unless blocks for the
 * new tokens could not be had: MO_ENOMEM), so a session can feed its tokens again. When all slices are cancelled the step ends with MO_ECANCELLED: between two
 * layers, and on the CPU within one where the step has more than 8 tokens; while one of them is wanted it goes on for all. */
mo_status mo_step(mo_engine *engine, const mo_slice *slices, int count, mo_error *err);

/* The end of a step that had deferred drafts, with the same slices, before any other step: their picks say how many were accepted. The step has
 * changed no state of them, nor the length of any; without this call they hold what they held. */
void mo_step_commit(mo_engine *engine, const mo_slice *slices, int count);
/* It is not going to end: the other slices of it hold their tokens. */
void mo_step_abandon(mo_engine *engine, const mo_slice *slices, int count);

#endif
