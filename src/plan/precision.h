/* Precision: which products of a step may be computed in bfloat16, where `prompt_precision` allows it (docs/numerics.md). */
#ifndef MO_PLAN_PRECISION_H
#define MO_PLAN_PRECISION_H

#include "moraine.h"

/* Steps of so few tokens are an answer's, and exact: in them a product reads its matrix once, which decoding it first would make slower. */
enum { MO_PRECISION_FEW = 8 };

typedef struct mo_precision_rule {
    mo_precision precision;
    int64_t more_than; /* tokens of a step */
    bool given;        /* by LLAMA_FP4_PREFILL_M, which then holds for experts too */
} mo_precision_rule;

/* From the option and the environment. LLAMA_FP4_PREFILL_M=N: steps of more than N tokens, and of more than MO_PRECISION_FEW; unset or empty: of more than 256, and the experts of a
 * layer where they have 192 rows each on average. MO_EINVAL names a value that cannot be used; it is not looked at where the option is exact.
 * text NULL: what the environment says. On failure *out is untouched. */
mo_status mo_precision_find(mo_precision option, const char *text, mo_precision_rule *out, mo_error *err);

/* Are they allowed in steps of this many tokens? */
bool mo_precision_products(const mo_precision_rule *rule, int64_t tokens);
bool mo_precision_experts(const mo_precision_rule *rule, int64_t tokens, int used, int experts);

#endif
