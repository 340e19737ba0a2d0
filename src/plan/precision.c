#include "plan/precision.h"

#include <errno.h>
#include <stdlib.h>

#include "base/status.h"

/* Measured on an H200 (bench/RESULTS.md, "prompts in bfloat16"): matrices that all tokens share are at least
 * 1.9 times faster from 512 tokens on. Experts are decoded for few rows each; they break even between 86 rows
 * (NVFP4) and 171 (Q4_K). */
enum { TOKENS = 256, EXPERT_ROWS = 192, MOST = 1 << 30 };

static const char variable[] = "LLAMA_FP4_PREFILL_M";

mo_status mo_precision_find(mo_precision option, const char *text, mo_precision_rule *out, mo_error *err)
{
    mo_precision_rule rule = {.precision = option, .more_than = TOKENS};
    text = text ? text : getenv(variable);
    if (option == MO_PRECISION_BF16 && text && *text) {
        char *end;
        errno = 0;
        const long long number = strtoll(text, &end, 10);
        if (*end || errno || number < 0 || number > MOST) {
            return mo_fail(err, MO_EINVAL,
                           "%s=%.60s: must be an integer number of tokens from 0 to %d; change or unset it",
                           variable, text, (int)MOST);
        }
        rule.more_than = number < MO_PRECISION_FEW ? MO_PRECISION_FEW : number;
        rule.given = true;
    }
    *out = rule;
    return MO_OK;
}

bool mo_precision_products(const mo_precision_rule *rule, int64_t tokens)
{
    return rule->precision == MO_PRECISION_BF16 && tokens > rule->more_than;
}

bool mo_precision_experts(const mo_precision_rule *rule, int64_t tokens, int used, int experts)
{
    return mo_precision_products(rule, tokens) &&
           (rule->given || tokens * used >= (int64_t)EXPERT_ROWS * experts);
}
