/* Request: what a plan is made for if nobody says what is asked: a chat, with prompts of 2,048 tokens, or as long as a shorter
 * context, and answers of an eighth of that, 256 tokens. */
#ifndef MO_PLAN_REQUEST_H
#define MO_PLAN_REQUEST_H

#include <stdint.h>

enum { MO_PLAN_PROMPT_MOST = 2048, MO_PLAN_PROMPT_PER_ANSWER = 8 };

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
