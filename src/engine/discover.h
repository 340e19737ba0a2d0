/* Discovery: predicts the experts of a text before it runs, by running its first tokens through the model
 * without routed experts. The prediction only moves bytes. */
#ifndef MO_ENGINE_DISCOVER_H
#define MO_ENGINE_DISCOVER_H

#include "engine/step.h"

/* Runs 1 to engine->batch tokens through an empty state, which is empty again afterwards, and reads the
 * experts that the routers chose, the most chosen first, into at most half of the slots. *read: number of
 * experts read. Does nothing if all experts are in RAM. */
mo_status mo_discover(mo_engine *engine, mo_state *state, const int32_t *tokens, int64_t count,
                      const atomic_bool *cancel, int64_t *read, mo_error *err);

#endif
