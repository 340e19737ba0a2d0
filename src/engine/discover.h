/* Discovery: which experts a text will probably need, found before it runs by letting its first tokens through the
 * model without any routed expert. A guess, so it only moves bytes. */
#ifndef MO_ENGINE_DISCOVER_H
#define MO_ENGINE_DISCOVER_H

#include "engine/step.h"

/* Lets 1 to engine->batch tokens through an empty state, which is empty again afterwards, and reads what their
 * routers chose, the most chosen first, into at most half of the slots. *read says how many experts that were. Does
 * nothing where all experts are in RAM. */
mo_status mo_discover(mo_engine *engine, mo_state *state, const int32_t *tokens, int64_t count,
                      const atomic_bool *cancel, int64_t *read, mo_error *err);

#endif
