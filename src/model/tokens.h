/* Tokens: does another file name the same tokens by the same numbers? So it must be if one model guesses for another. */
#ifndef MO_MODEL_TOKENS_H
#define MO_MODEL_TOKENS_H

#include "gguf/read.h"

/* MO_EINVAL says what differs first. Files without a list of tokens have the same. */
mo_status mo_tokens_same(const mo_gguf *draft, const mo_gguf *model, mo_error *err);

#endif
