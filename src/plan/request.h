/* Request: the default request of a plan. A chat whose prompts have 2,048 tokens, or the whole context if
 * that is shorter, and whose answers have an eighth of that, 256 tokens. */
#ifndef MO_PLAN_REQUEST_H
#define MO_PLAN_REQUEST_H

#include <stdint.h>

enum { MO_PLAN_PROMPT_MOST = 2048, MO_PLAN_PROMPT_PER_ANSWER = 8 };

/* Tokens of the prompt; context 0: not known. */
static inline int64_t mo_plan_request_prompt(int64_t context)
{
    return context > 0 && context < MO_PLAN_PROMPT_MOST ? context : MO_PLAN_PROMPT_MOST;
}

/* Positions before the prompt: it comes in the middle of the context. */
static inline int64_t mo_plan_request_from(int64_t context, int64_t prompt)
{
    return context > prompt ? (context - prompt) / 2 : 0;
}

/* A token of the answer may take this much longer than with its best batch to make prompts faster, because
 * working memory takes space from permanent experts. So a higher ceiling never costs more token speed than
 * this, and where prompts become slower tokens become faster. */
#define MO_PLAN_TOKEN_WORTH 1.10

#endif
