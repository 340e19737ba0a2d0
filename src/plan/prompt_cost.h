/* Prompt cost: the estimated time of a prompt and where its bytes come from. */
#ifndef MO_PLAN_PROMPT_COST_H
#define MO_PLAN_PROMPT_COST_H

#include "plan/plan.h"

/* Bytes of weights a CPU multiplies with one token's row in the time it reads one byte from memory, when many
 * tokens use the weights: 5 with AVX2 to 12 with AMX (Qwen3-30B on 16 cores). */
#define MO_PLAN_CPU_REUSE 6.0
/* The same for a device whose rates do not include it: 7.5 and 8 on an H200 (Qwen3-30B 13,900 and gpt-oss-20b
 * 14,300 tokens/s, prompts of 2048). */
#define MO_PLAN_DEVICE_REUSE 8.0

/* Share of a layer's experts chosen by at least one of this many tokens. */
double mo_plan_share_used(double used, double experts, double tokens);

/* Seconds of a prompt of this many tokens in batches of model->batch, for a plan whose placement is decided.
 * Assumes evenly spread routing. Decreases with more RAM or VRAM. Of the KV cache only the link traffic is
 * counted (plan/kv_in_ram.h). */
double mo_plan_prompt_seconds(const mo_plan_model *model, const mo_rates *rates, const mo_run_plan *plan,
                              int64_t tokens);

/* The same for one batch of this many tokens, without the KV cache. */
double mo_plan_batch_seconds(const mo_plan_model *model, const mo_rates *rates, const mo_run_plan *plan,
                             double tokens);

/* Seconds of the request (plan/request.h): its prompt in half a context, and its answer at the plan's
 * speed. */
double mo_plan_request_seconds(const mo_plan_model *model, const mo_rates *rates, const mo_run_plan *plan);

/* Bytes of a batch by location. */
typedef struct mo_plan_batch_bytes {
    double used;   /* read by products, each once: the core and the chosen experts */
    double token;  /* multiplied for one token */
    double link;   /* bytes that cross to the device */
    double copies; /* number of copies for them */
    double disk;   /* read from disk first */
} mo_plan_batch_bytes;
mo_plan_batch_bytes mo_plan_batch_bytes_of(const mo_plan_model *model, const mo_run_plan *plan,
                                           double tokens);

#endif
