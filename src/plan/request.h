/* Request: used to compare choices of a plan if the length of prompts is unknown: a prompt as long as the context, but for
 * at most this many tokens, and an answer of a sixteenth of that. */
#ifndef MO_PLAN_REQUEST_H
#define MO_PLAN_REQUEST_H

#include <stdint.h>

enum { MO_PLAN_PROMPT_MOST = 8192, MO_PLAN_PROMPT_PER_ANSWER = 16 };

/* Tokens of its prompt; context 0: not known. */
static inline int64_t mo_plan_request_prompt(int64_t context)
{
    return context > 0 && context < MO_PLAN_PROMPT_MOST ? context : MO_PLAN_PROMPT_MOST;
}

/* It comes in half a context: positions before it. */
static inline int64_t mo_plan_request_from(int64_t context, int64_t prompt)
{
    return context > prompt ? (context - prompt) / 2 : 0;
}

/* For faster prompts, a token of the answer may take at most this much longer than with its best batch: working memory is
 * lost to experts that could stay. So no ceiling that rises costs more than that of a token's speed, and where prompts become
 * slower tokens become faster. */
#define MO_PLAN_TOKEN_WORTH 1.10

#endif
