/* Python: the arguments of a call as Llama 3.1 writes those of built-in tools, k="v", n=3, as JSON. */
#ifndef MO_DIALOGUE_PYTHON_H
#define MO_DIALOGUE_PYTHON_H

#include "dialogue/bytes.h"

/* Adds an object with the keyword arguments in `text`, what stands between the parentheses. What has no key is left out. */
void mo_python_arguments(mo_bytes *to, mo_text text);

/* Where the parenthesis that is open at the beginning of the text closes; -1: not in this text. */
ptrdiff_t mo_python_close(mo_text text);

#endif
