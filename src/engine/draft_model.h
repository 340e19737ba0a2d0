/* Draft model: a small model of the same tokens, which guesses what its model will say. It stands where an MTP head would (engine/head.h), whole in RAM
 * and computed by the CPU, and needs nothing of what the model computes: a session of it has the tokens that its cache knows, and where
 * it is asked reads what the text has beyond them. What was guessed wrong, or replaced, is taken back then. What it guesses
 * changes no answer.
 *
 * Of a text that has more tokens than it may read at once, or than its own context, it reads the last ones alone. */
#ifndef MO_ENGINE_DRAFT_MODEL_H
#define MO_ENGINE_DRAFT_MODEL_H

#include "engine/head.h"

/* Tokens of texts that are read at once before guesses are made, which a step waits for; beside a device, which is much faster, so many. */
enum { MO_DRAFT_MODEL_READS = 1024, MO_DRAFT_MODEL_READS_BESIDE = 128 };

/* As mo_head_open(), of a checkpoint that has a whole model. mo_head_close() closes it. */
mo_status mo_draft_model_open(mo_engine *trunk, const mo_checkpoint *checkpoint, const mo_state_size *states,
                              mo_head **out, mo_error *err);

#endif
