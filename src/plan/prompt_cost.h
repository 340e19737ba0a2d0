/* Prompt cost: what a prompt takes, by the plan's arithmetic, and what of it comes from where. */
#ifndef MO_PLAN_PROMPT_COST_H
#define MO_PLAN_PROMPT_COST_H

#include "plan/plan.h"

/* How many bytes of weights a CPU multiplies with one token's row while it reads one byte from memory, where many tokens use it: 5
 * with AVX2 to 12 with AMX (Qwen3-30B on 16 cores). */
#define MO_PLAN_CPU_REUSE 6.0
/* The same of a device whose rates do not say it: 7.5 and 8 on an H200 (Qwen3-30B 13,900 and gpt-oss-20b 14,300 tokens/s, prompts of 2048). */
#define MO_PLAN_DEVICE_REUSE 8.0

/* The share of a layer's experts chosen by at least one of this many tokens. */
double mo_plan_share_used(double used, double experts, double tokens);

/* Seconds of a prompt of this many tokens in batches of model->batch, for a plan whose places are decided. Routing is taken as
 * evenly spread. It falls when more is in RAM or VRAM. For the KV cache it counts link traffic (plan/kv_in_ram.h). */
double mo_plan_prompt_seconds(const mo_plan_model *model, const mo_rates *rates, const mo_run_plan *plan,
                              int64_t tokens);

/* The same for a single batch of this many tokens, without the KV cache. */
double mo_plan_batch_seconds(const mo_plan_model *model, const mo_rates *rates, const mo_run_plan *plan,
                             double tokens);

/* Of the request (plan/request.h): its prompt in half a context, and its answer at the plan's speed. */
double mo_plan_request_seconds(const mo_plan_model *model, const mo_rates *rates, const mo_run_plan *plan);

/* Bytes of a batch, by where they are found. */
typedef struct mo_plan_batch_bytes {
    double used;   /* read by products, each once: the core and the chosen experts */
    double token;  /* multiplied, for one token */
    double link;   /* that cross to the device, */
    double copies; /* and in how many copies */
    double disk;   /* that are read from disk first */
} mo_plan_batch_bytes;
mo_plan_batch_bytes mo_plan_batch_bytes_of(const mo_plan_model *model, const mo_run_plan *plan,
                                           double tokens);

#endif
