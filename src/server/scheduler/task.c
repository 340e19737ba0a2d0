#include "server/scheduler/task.h"

#include <stdlib.h>
#include <string.h>

static mo_status no_memory(mo_error *err)
{
    err->status = MO_ENOMEM;
    strcpy(err->detail, "out of memory for a request");
    return MO_ENOMEM;
}

static bool copy(const srv_job_options *o, const mo_logit_bias *more, size_t more_count, srv_task *t)
{
    const size_t choices = (size_t)t->choices;
    t->tokens = malloc(o->count * sizeof *t->tokens);
    t->slots = malloc(choices * sizeof *t->slots);
    t->stopped = calloc(choices, sizeof *t->stopped);
    t->answers = calloc(choices, sizeof(srv_answer *));
    t->bias = malloc((o->sampler.bias_count + more_count + 1) * sizeof *t->bias);
    if (!t->tokens || !t->slots || !t->stopped || !t->answers || !t->bias) {
        return false;
    }
    memcpy(t->tokens, o->tokens, o->count * sizeof *t->tokens);
    if (more_count) {
        memcpy(t->bias, more, more_count * sizeof *more);
    }
    if (o->sampler.bias_count) {
        memcpy(t->bias + more_count, o->sampler.bias, o->sampler.bias_count * sizeof *t->bias);
    }
    for (size_t i = 0; i < choices; i++) {
        t->slots[i] = -1;
    }
    return true;
}

mo_status srv_task_open(const mo_model *model, const srv_job_options *options, const mo_logit_bias *more,
                        size_t more_count, srv_task **out, mo_error *err)
{
    srv_task *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) {
        return no_memory(err);
    }
    t->choices = options->n > 1 ? options->n : 1;
    if (!copy(options, more, more_count, t)) {
        srv_task_close(t);
        return no_memory(err);
    }
    t->client = options->client;
    t->priority = options->priority;
    t->prompt = (int64_t)options->count;
    t->max_tokens = options->max_tokens;
    t->sampler = options->sampler;
    t->sampler.bias = t->bias;
    t->sampler.bias_count = options->sampler.bias_count + more_count;
    t->options = *options;
    t->options.tokens = t->tokens;
    t->adapters = mo_adapters_identity(options->adapters, options->adapter_count);
    t->usage.prompt_tokens = t->prompt;
    for (int i = 0; i < t->choices; i++) {
        const mo_status status = srv_answer_open(model, options, &t->answers[i], err);
        if (status != MO_OK) {
            srv_task_close(t);
            return status;
        }
    }
    t->options.stop = NULL;
    t->options.reply = NULL;
    *out = t;
    return MO_OK;
}

void srv_task_close(srv_task *task)
{
    if (task) {
        for (int i = 0; task->answers && i < task->choices; i++) {
            srv_answer_close(task->answers[i]);
        }
        free(task->tokens);
        free(task->slots);
        free(task->stopped);
        free(task->answers);
        free(task->bias);
        free(task);
    }
}
