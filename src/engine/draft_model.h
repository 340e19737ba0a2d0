/* Draft model: a small model with the same vocabulary that proposes draft tokens. It takes the place of an
 * MTP head (engine/head.h). It is completely in RAM, runs on the CPU, and needs no output of the main model.
 * Its session holds the tokens in its KV cache. When drafts are requested, it first reads the tokens that the
 * text has beyond those, and drops rejected drafts and replaced tokens. Drafts never change an answer.
 *
 * If a text has more new tokens than it may read at once, or more than its own context, it reads only the
 * last ones. */
#ifndef MO_ENGINE_DRAFT_MODEL_H
#define MO_ENGINE_DRAFT_MODEL_H

#include "engine/head.h"

/* Maximum tokens to read before drafting, which a step waits for; fewer with a device, which is much
 * faster. */
enum { MO_DRAFT_MODEL_READS = 1024, MO_DRAFT_MODEL_READS_BESIDE = 128 };

/* Like mo_head_open(), for a checkpoint with a whole model. Close it with mo_head_close(). */
mo_status mo_draft_model_open(mo_engine *trunk, const mo_checkpoint *checkpoint, const mo_state_size *states,
                              mo_head **out, mo_error *err);

#endif
