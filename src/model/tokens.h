/* Tokens: checks that two files have the same token ids, as a draft model and its model must. */
#ifndef MO_MODEL_TOKENS_H
#define MO_MODEL_TOKENS_H

#include "gguf/read.h"

/* MO_EINVAL names the first difference. Files without a list of tokens count as equal. */
mo_status mo_tokens_same(const mo_gguf *draft, const mo_gguf *model, mo_error *err);

#endif
