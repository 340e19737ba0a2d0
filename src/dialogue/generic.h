/* Generic: how models call that have no format of their own. They are asked, in the system message, to answer with
 * {"tool_call": {"name": N, "arguments": {...}}} or {"response": S}. */
#ifndef MO_DIALOGUE_GENERIC_H
#define MO_DIALOGUE_GENERIC_H

#include "dialogue/tools.h"

/* required: it must call. free() *text. MO_ENOMEM. */
mo_status mo_generic_text(const mo_tools *tools, bool required, char **text, mo_error *err);

#endif
