#include "answers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/model.h"
#include "check.h"

mo_model_options answers_options(mo_speculate speculate)
{
    mo_model_options o = mo_model_options_default();
    o.context = 256;
    o.batch = 64;
    o.threads = 2;
    o.sessions = MOST;
    o.device = "none";
    o.learning.profile = "off";
    o.speculate = speculate;
    return o;
}

mo_model *answers_open(const char *path, const mo_model_options *o)
{
    mo_error err;
    mo_model *model = NULL;
    check_status(mo_model_open(path, o, &model, &err), &err);
    return model;
}

void answers_drain(mo_generation *g, outcome *o)
{
    mo_generation_event e;
    while (mo_generation_next(g, &e, sizeof e)) {
        memcpy(o->text + o->length, e.text.data, e.text.length);
        o->length += e.text.length;
        for (size_t i = 0; i < e.token_count; i++) {
            o->logprobs[o->count] = e.tokens[i].logprob;
            o->tokens[o->count++] = e.tokens[i].id;
        }
        o->end = e.kind == MO_EVENT_END ? e.end : o->end;
    }
}

void answers_make_free(mo_model *model, int sequences)
{
    mo_step_times *t = &model->times;
    for (int d = 0; d <= MO_DEPTH_DRAFTS; d++) {
        t->ns[sequences - 1][d] = 1e6;
    }
    t->head_ns[sequences - 1] = 1.0;
    t->plain[sequences - 1] = 0;
    for (int c = MO_DEPTH_HEAD; c < MO_DEPTH_CLASSES; c++) {
        t->right[c] = 0.9 * t->tried[c];
    }
}

void answers_make(mo_model *model, const oracle *o, const mo_generation_options *options, int count,
                  int cancel, outcome *out)
{
    mo_error err;
    mo_session *sessions[MOST];
    mo_generation *list[MOST];
    for (int i = 0; i < count; i++) {
        mo_generation_options own = *options;
        own.seed = options->seed + i;
        check_status(mo_session_open(model, NULL, &sessions[i], &err), &err);
        check_status(mo_generation_open(model, &own, &list[i], &err), &err);
        check_status(mo_generation_prompt(list[i], sessions[i], o->tokens, ORACLE_TOKENS - i, &err), &err);
        out[i] = (outcome){0};
    }
    for (int step = 0, running = count; running > 0; step++) {
        if (step == cancel) {
            mo_generation_cancel(list[0]);
        }
        answers_make_free(model, running);
        running = mo_generation_step(list, count, &err);
        for (int i = 0; i < count; i++) {
            answers_drain(list[i], &out[i]);
        }
    }
    for (int i = 0; i < count; i++) {
        mo_generation_info info;
        mo_generation_describe(list[i], &info, sizeof info);
        out[i].drafted = info.drafted;
        out[i].accepted = info.accepted;
        mo_generation_close(list[i]);
        mo_session_close(sessions[i]);
    }
}

void answers_expect_same(const outcome *got, const outcome *want)
{
    assert_int_equal(got->end, want->end);
    assert_int_equal(got->count, want->count);
    assert_memory_equal(got->tokens, want->tokens, sizeof *want->tokens * want->count);
    assert_memory_equal(got->logprobs, want->logprobs, sizeof *want->logprobs * want->count);
    assert_int_equal(got->length, want->length);
    assert_memory_equal(got->text, want->text, want->length);
}
