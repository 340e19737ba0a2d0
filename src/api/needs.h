/* Survey: what a model asks of a machine's memory, found from its file's description; nothing is loaded. */
#ifndef MO_API_NEEDS_H
#define MO_API_NEEDS_H

#include "plan/plan.h"

/* Unless the caller says otherwise. */
enum { MO_BATCH_DEFAULT = 512, MO_CONTEXT_DEFAULT = 8192 };

typedef struct mo_needs_options {
    mo_kv_type kv;
    int64_t batch, context; /* context 0: the model's own, at most context_most */
    int64_t context_most;
    int threads;
    bool all_logits; /* logits of every position will be asked for, as `eval` does */
} mo_needs_options;

/* Fills *out for mo_plan_make(). Any thread. */
mo_status mo_needs_of(const char *path, const mo_needs_options *options, mo_plan_model *out, mo_error *err);

#endif
