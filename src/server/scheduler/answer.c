#include "server/scheduler/answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

struct srv_answer {
    mo_stream *stream; /* raw */
    mo_reply *reply;   /* otherwise */
    mo_stop *stop;     /* NULL: no strings */
    int met;
    int64_t tokens, thoughts, budget;
    /* Ids of calls, for who wants to find the answer by them: */
    char (*ids)[SRV_CALL_ID];
    int id_count;
    int32_t *all; /* every token so far */
    size_t all_capacity;
    /* Tokens that no event has carried yet, with their likeliest alternatives. */
    srv_token *waiting;
    mo_logprob (*tops)[MO_TOP_MAX];
    size_t count, capacity, top_capacity;
};

mo_status srv_answer_open(const mo_model *model, const srv_job_options *options, srv_answer **out,
                          mo_error *err)
{
    srv_answer *a = calloc(1, sizeof *a);
    mo_status status = MO_OK;
    *out = NULL;
    if (!a) {
        err->status = MO_ENOMEM;
        strcpy(err->detail, "out of memory for an answer");
        return MO_ENOMEM;
    }
    a->met = -1;
    a->budget = options->reasoning_budget;
    if (options->raw) { /* a model without a vocabulary has tokens, but no text */
        status = mo_stream_open(model, &a->stream, err);
        status = status == MO_EUNSUPPORTED && !options->stop_count ? MO_OK : status;
    } else {
        status = mo_reply_open(model, options->reply, &a->reply, err);
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
        free(answer->ids);
        free(answer->all);
        free(answer);
    }
}

static mo_status no_memory(mo_error *err)
{
    err->status = MO_ENOMEM;
    strcpy(err->detail, "out of memory for an answer");
    return MO_ENOMEM;
}

static mo_status remember(srv_answer *a, const srv_token *token, mo_error *err)
{
    if (!mo_array_reserve(&a->waiting, &a->capacity, a->count + 1, sizeof *a->waiting) ||
        !mo_array_reserve(&a->tops, &a->top_capacity, a->count + 1, sizeof *a->tops) ||
        !mo_array_reserve(&a->all, &a->all_capacity, (size_t)a->tokens + 1, sizeof *a->all)) {
        return no_memory(err);
    }
    a->all[a->tokens++] = token->id;
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

static mo_status note_call(srv_answer *a, mo_text id, mo_error *err)
{
    char(*ids)[SRV_CALL_ID] = realloc(a->ids, sizeof *ids * (size_t)(a->id_count + 1));
    if (!ids) {
        return no_memory(err);
    }
    a->ids = ids;
    const size_t length = id.length < SRV_CALL_ID ? id.length : SRV_CALL_ID - 1;
    memcpy(a->ids[a->id_count], id.data, length);
    a->ids[a->id_count++][length] = 0;
    return MO_OK;
}

static mo_status tell_piece(srv_answer *a, const mo_piece *piece, srv_answer_fn fn, void *user, mo_error *err)
{
    static const srv_event_kind kinds[] = {[MO_PIECE_TEXT] = SRV_TEXT,
                                           [MO_PIECE_THOUGHT] = SRV_THOUGHT,
                                           [MO_PIECE_CALL] = SRV_CALL,
                                           [MO_PIECE_ARGUMENTS] = SRV_ARGUMENTS,
                                           [MO_PIECE_CALL_END] = SRV_CALL_END};
    if (piece->kind == MO_PIECE_TEXT) {
        return piece->text.length ? tell_text(a, piece->text, fn, user, err) : MO_OK;
    }
    if (piece->kind == MO_PIECE_CALL && note_call(a, piece->id, err) != MO_OK) {
        return err->status;
    }
    release_text(a, fn, user);
    const mo_text text = piece->text.data ? piece->text : (mo_text){"", 0};
    tell(a,
         (srv_event){.kind = kinds[piece->kind],
                     .text = text,
                     .call = piece->call,
                     .call_id = piece->kind == MO_PIECE_CALL ? piece->id.data : NULL},
         fn, user);
    return MO_OK;
}

/* A token's text, or (NULL) what is left at the end. */
static mo_status take_apart(srv_answer *a, const int32_t *token, bool cut, srv_answer_fn fn, void *user,
                            mo_error *err)
{
    mo_piece one = {.kind = MO_PIECE_TEXT};
    const mo_piece *pieces = &one;
    size_t count = 1;
    mo_status status;
    if (a->reply) {
        status = token ? mo_reply_put(a->reply, *token, &pieces, &count, err)
                 : cut ? mo_reply_cut(a->reply, &pieces, &count, err)
                       : mo_reply_flush(a->reply, &pieces, &count, err);
    } else {
        status = token ? mo_stream_put(a->stream, *token, &one.text, err)
                       : mo_stream_flush(a->stream, &one.text, err);
    }
    for (size_t i = 0; status == MO_OK && i < count && a->met < 0; i++) {
        status = tell_piece(a, &pieces[i], fn, user, err);
    }
    return status;
}

/* Is it in a thought now? */
static bool in_thought(const srv_answer *a)
{
    return a->reply && mo_reply_in_thought(a->reply);
}

mo_status srv_answer_put(srv_answer *a, const srv_token *token, bool quiet, srv_answer_fn fn, void *user,
                         mo_error *err)
{
    if (a->met >= 0) {
        return MO_OK;
    }
    a->thoughts += in_thought(a);
    const mo_status status = remember(a, token, err);
    if (status != MO_OK || quiet) {
        return status;
    }
    if (!a->reply && !a->stream) { /* the token is all there is to tell */
        tell(a, (srv_event){.kind = SRV_TEXT, .text = {"", 0}}, fn, user);
        return MO_OK;
    }
    return take_apart(a, &token->id, false, fn, user, err);
}

mo_status srv_answer_end(srv_answer *a, bool cut, srv_answer_fn fn, void *user, mo_error *err)
{
    if (a->met >= 0 || (!a->reply && !a->stream)) {
        return MO_OK;
    }
    const mo_status status = take_apart(a, NULL, cut, fn, user, err);
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

size_t srv_answer_thought_end(srv_answer *a, const int32_t **tokens)
{
    size_t count = 0;
    if (a->budget < 0 || a->thoughts < a->budget || !in_thought(a) ||
        mo_reply_thought_end(a->reply, tokens, &count, NULL) != MO_OK) {
        return 0;
    }
    return count;
}

const char *srv_answer_call(const srv_answer *answer, int index)
{
    return index < answer->id_count ? answer->ids[index] : NULL;
}

const int32_t *srv_answer_all(const srv_answer *answer)
{
    return answer->all;
}
