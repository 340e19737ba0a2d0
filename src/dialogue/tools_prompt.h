/* Tools prompt: the system text that describes tools to a model whose template does not show them. */
#ifndef MO_DIALOGUE_TOOLS_PROMPT_H
#define MO_DIALOGUE_TOOLS_PROMPT_H

#include "dialogue/style.h"
#include "dialogue/tools.h"

/* In the style in which the model makes calls (mo_dialogue_calls()). The caller frees *text. required: a call must be made. */
mo_status mo_tools_prompt_text(const mo_dialogue *d, const mo_tools *tools, bool required, char **text,
                               mo_error *err);

#endif
