#include "server/answer.h"

#include <stdlib.h>
#include <string.h>

struct srv_answer {
    mo_stream *stream; /* raw */
    mo_reply *reply;   /* otherwise */
    mo_stop *stop;     /* NULL: no strings */
    int met;
    int64_t tokens, thoughts, budget;
    bool thinking; /* the last piece was of a thought */
    /* Tokens that no event has carried yet, with their likeliest beside them. */
    srv_token *waiting;
    mo_logprob (*tops)[MO_TOP_MAX];
    size_t count, capacity;
};

mo_status srv_answer_open(const mo_model *model, const srv_job_options *options, srv_answer **out,
                          mo_error *err)
{
    srv_answer *a = calloc(1, sizeof *a);
    mo_status status = MO_OK;
    *out = NULL;
    if (!a) {
        err->status = MO_ENOMEM;
        strcpy(err->detail, "no memory for an answer");
        return MO_ENOMEM;
    }
    a->met = -1;
    a->budget = options->reasoning_budget;
    if (options->raw) { /* a model without a vocabulary has tokens, but no text */
        status = mo_stream_open(model, &a->stream, err);
        status = status == MO_EUNSUPPORTED && !options->stop_count ? MO_OK : status;
    } else {
        status = mo_reply_open(model, NULL, &a->reply, err);
    }
    if (status == MO_OK && options->stop_count) {
        status = mo_stop_open(options->stop, options->stop_count, &a->stop, err);
    }
    if (status != MO_OK) {
        srv_answer_close(a);
        return status;
    }
    *out = a;
    return MO_OK;
}

void srv_answer_close(srv_answer *answer)
{
    if (answer) {
        mo_stream_close(answer->stream);
        mo_reply_close(answer->reply);
        mo_stop_close(answer->stop);
        free(answer->waiting);
        free(answer->tops);
        free(answer);
    }
}

static mo_status remember(srv_answer *a, const srv_token *token, mo_error *err)
{
    if (a->count == a->capacity) {
        const size_t more = a->capacity ? 2 * a->capacity : 8;
        srv_token *waiting = realloc(a->waiting, more * sizeof *waiting);
        a->waiting = waiting ? waiting : a->waiting;
        mo_logprob(*tops)[MO_TOP_MAX] = realloc(a->tops, more * sizeof *tops);
        a->tops = tops ? tops : a->tops;
        if (!waiting || !tops) {
            err->status = MO_ENOMEM;
            strcpy(err->detail, "no memory for an answer");
            return MO_ENOMEM;
        }
        a->capacity = more;
    }
    a->waiting[a->count] = *token;
    memcpy(a->tops[a->count], token->top, sizeof(mo_logprob) * (size_t)token->top_count);
    a->count++;
    return MO_OK;
}

size_t srv_answer_rest(srv_answer *a, const srv_token **tokens)
{
    const size_t count = a->count;
    for (size_t i = 0; i < count; i++) { /* now, since the array may have moved */
        a->waiting[i].top = a->tops[i];
    }
    *tokens = a->waiting;
    a->count = 0;
    return count;
}

/* An event with the tokens that wait. */
static void tell(srv_answer *a, srv_event event, srv_answer_fn fn, void *user)
{
    event.stop = -1;
    event.token_count = srv_answer_rest(a, &event.tokens);
    fn(user, &event);
}

static mo_status tell_text(srv_answer *a, mo_text text, srv_answer_fn fn, void *user, mo_error *err)
{
    mo_status status = MO_OK;
    if (a->stop) {
        status = mo_stop_put(a->stop, text, &text, &a->met, err);
    }
    if (status == MO_OK && text.length) {
        tell(a, (srv_event){.kind = SRV_TEXT, .text = text}, fn, user);
    }
    return status;
}

/* Something other than text follows, or nothing: what may have become a stop string does not. */
static void release_text(srv_answer *a, srv_answer_fn fn, void *user)
{
    mo_text text;
    if (!a->stop) {
        return;
    }
    mo_stop_flush(a->stop, &text);
    if (text.length) {
        tell(a, (srv_event){.kind = SRV_TEXT, .text = text}, fn, user);
    }
}

static mo_status tell_piece(srv_answer *a, mo_text text, bool thought, srv_answer_fn fn, void *user,
                            mo_error *err)
{
    a->thinking = thought;
    if (!text.length) {
        return MO_OK;
    }
    if (!thought) {
        return tell_text(a, text, fn, user, err);
    }
    release_text(a, fn, user);
    tell(a, (srv_event){.kind = SRV_THOUGHT, .text = text}, fn, user);
    return MO_OK;
}

mo_status srv_answer_put(srv_answer *a, const srv_token *token, bool quiet, srv_answer_fn fn, void *user,
                         mo_error *err)
{
    mo_text text = {0};
    bool thought = false;
    if (a->met >= 0) {
        return MO_OK;
    }
    a->tokens++;
    mo_status status = remember(a, token, err);
    if (status != MO_OK || quiet || (!a->reply && !a->stream)) {
        return status;
    }
    status = a->reply ? mo_reply_put(a->reply, token->id, &text, &thought, err)
                      : mo_stream_put(a->stream, token->id, &text, err);
    if (status == MO_OK) {
        status = tell_piece(a, text, thought, fn, user, err);
    }
    a->thoughts += a->thinking;
    return status;
}

mo_status srv_answer_end(srv_answer *a, srv_answer_fn fn, void *user, mo_error *err)
{
    mo_text text = {0};
    bool thought = false;
    if (a->met >= 0 || (!a->reply && !a->stream)) {
        return MO_OK;
    }
    mo_status status =
        a->reply ? mo_reply_flush(a->reply, &text, &thought, err) : mo_stream_flush(a->stream, &text, err);
    if (status == MO_OK) {
        status = tell_piece(a, text, thought, fn, user, err);
    }
    if (status == MO_OK && a->met < 0) {
        release_text(a, fn, user);
    }
    return status;
}

int srv_answer_stop(const srv_answer *answer)
{
    return answer->met;
}

int64_t srv_answer_tokens(const srv_answer *answer)
{
    return answer->tokens;
}

int64_t srv_answer_thoughts(const srv_answer *answer)
{
    return answer->thoughts;
}

bool srv_answer_spent(srv_answer *a, const int32_t **tokens, size_t *count)
{
    *tokens = NULL;
    *count = 0;
    return a->budget >= 0 && a->thinking && a->thoughts >= a->budget;
}
