/* Precision: which products of a step may be computed in bfloat16 if `prompt_precision` allows it
 * (docs/numerics.md). */
#ifndef MO_PLAN_PRECISION_H
#define MO_PLAN_PRECISION_H

#include "moraine.h"

/* Steps with at most this many tokens belong to an answer and are exact. Their products read the matrix once;
 * decoding it first would be slower. */
enum { MO_PRECISION_FEW = 8 };

typedef struct mo_precision_rule {
    mo_precision precision;
    int64_t more_than; /* tokens per step */
    bool given;        /* set by LLAMA_FP4_PREFILL_M, which then applies to experts too */
} mo_precision_rule;

/* Combines the option and the environment. LLAMA_FP4_PREFILL_M=N allows steps of more than N tokens and more
 * than MO_PRECISION_FEW. Unset or empty: steps of more than 256 tokens, and the experts of a layer if they
 * have at least 192 rows each on average. MO_EINVAL names an invalid value; the variable is not read if the
 * option is exact. text NULL: read the environment. On failure *out is unchanged. */
mo_status mo_precision_find(mo_precision option, const char *text, mo_precision_rule *out, mo_error *err);

/* True if bfloat16 is allowed in steps of this many tokens. */
bool mo_precision_products(const mo_precision_rule *rule, int64_t tokens);
bool mo_precision_experts(const mo_precision_rule *rule, int64_t tokens, int used, int experts);

#endif
