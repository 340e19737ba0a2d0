#include "generation/events.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/status.h"

enum { CALL_ID = 64 };

/* A queued event: its texts are in `bytes`, its tokens in `told`. */
typedef struct queued {
    mo_generation_event event;
    size_t text, id; /* offsets of the texts */
    size_t tokens;
} queued;

struct mo_events {
    mo_stream *stream; /* raw */
    mo_reply *reply;   /* if not raw; neither: no vocabulary */
    mo_stop *stop;     /* NULL: no stop strings */
    int met;           /* index of the stop string found; -1: none */
    mo_end end;
    mo_error error; /* of the end */
    int64_t tokens, thoughts, budget;
    char (*ids)[CALL_ID];
    size_t id_count, id_space;
    mo_sampled *waiting; /* tokens that no event has reported yet */
    size_t waiting_count, waiting_space;
    /* Events that were not taken. The buffers are reset when the last one has been taken. */
    queued *queue;
    size_t first, count, space;
    mo_bytes bytes;
    mo_sampled *told;
    size_t told_count, told_space;
    mo_generation_token *out; /* the tokens of the event taken last */
    size_t out_space;
};

static mo_status no_memory(mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "out of memory for an answer");
}

mo_status mo_events_open(const mo_model *model, const mo_generation_settings *set, bool in_thought,
                         mo_events **out, mo_error *err)
{
    mo_events *a = calloc(1, sizeof *a);
    mo_status status;
    *out = NULL;
    if (!a) {
        return no_memory(err);
    }
    a->met = -1;
    a->budget = set->thought_tokens;
    if (set->raw || !set->has_vocabulary) { /* without a vocabulary there are tokens but no text */
        status = mo_stream_open(model, &a->stream, err);
        status = status == MO_EUNSUPPORTED && !set->stop_count ? MO_OK : status;
    } else {
        mo_reply_options options = set->reply;
        options.in_thought = in_thought;
        status = mo_reply_open(model, &options, &a->reply, err);
    }
    if (status == MO_OK && set->stop_count) {
        status = mo_stop_open((const char *const *)set->stop, set->stop_count, &a->stop, err);
    }
    if (status != MO_OK) {
        mo_events_close(a);
        return status;
    }
    *out = a;
    return MO_OK;
}

void mo_events_close(mo_events *a)
{
    if (a) {
        mo_stream_close(a->stream);
        mo_reply_close(a->reply);
        mo_stop_close(a->stop);
        free(a->ids);
        free(a->waiting);
        free(a->queue);
        mo_bytes_free(&a->bytes);
        free(a->told);
        free(a->out);
        free(a);
    }
}

/* ---- The queue of events ---------------------------------------------------------------------- */

static size_t add_bytes(mo_events *a, mo_text text)
{
    const size_t at = a->bytes.length;
    mo_bytes_add(&a->bytes, text.data ? text.data : "", text.data ? text.length : 0);
    mo_bytes_add(&a->bytes, "", 1); /* the terminator */
    return at;
}

/* Queues the event with the pending tokens. */
static mo_status tell(mo_events *a, const mo_generation_event *event, mo_error *err)
{
    if (!mo_array_reserve(&a->queue, &a->space, a->count + 1, sizeof *a->queue) ||
        !mo_array_reserve(&a->told, &a->told_space, a->told_count + a->waiting_count, sizeof *a->told) ||
        !mo_array_reserve(&a->out, &a->out_space, a->waiting_count, sizeof *a->out)) {
        return no_memory(err);
    }
    queued q = {.event = *event, .tokens = a->told_count};
    q.text = add_bytes(a, event->text);
    q.id = add_bytes(a, event->id);
    if (a->bytes.failed) {
        return no_memory(err);
    }
    if (a->waiting_count) {
        memcpy(a->told + a->told_count, a->waiting, a->waiting_count * sizeof *a->told);
    }
    a->told_count += a->waiting_count;
    q.event.token_count = a->waiting_count;
    q.event.generated = a->tokens;
    a->waiting_count = 0;
    a->queue[a->count++] = q;
    return MO_OK;
}

void mo_events_forget(mo_events *a)
{
    a->first = a->count = a->told_count = 0;
    mo_bytes_clear(&a->bytes);
}

bool mo_events_take(mo_events *a, mo_generation_event *out)
{
    if (a->first == a->count) {
        mo_events_forget(a);
        return false;
    }
    const queued *q = &a->queue[a->first++];
    *out = q->event;
    out->text.data = a->bytes.data + q->text;
    out->id.data = a->bytes.data + q->id;
    out->tokens = a->out;
    out->error = out->kind == MO_EVENT_END && a->error.status != MO_OK ? &a->error : NULL;
    for (size_t i = 0; i < q->event.token_count; i++) {
        const mo_sampled *t = &a->told[q->tokens + i];
        a->out[i] = (mo_generation_token){.id = t->id,
                                          .logprob = t->logprob,
                                          .top = t->top,
                                          .top_count = t->top_count,
                                          .time_ns = t->time_ns};
    }
    return true;
}

/* ---- Parsing ---------------------------------------------------------------------------------- */

static mo_status tell_text(mo_events *a, mo_text text, mo_error *err)
{
    mo_status status = MO_OK;
    if (a->stop) {
        status = mo_stop_put(a->stop, text, &text, &a->met, err);
    }
    return status == MO_OK && text.length
               ? tell(a, &(mo_generation_event){.kind = MO_EVENT_TEXT, .text = text, .call = -1, .stop = -1},
                      err)
               : status;
}

/* Text ends here: a possible beginning of a stop string is released. */
static mo_status release_text(mo_events *a, mo_error *err)
{
    mo_text text = {0};
    if (a->stop) {
        mo_stop_flush(a->stop, &text);
    }
    return text.length
               ? tell(a, &(mo_generation_event){.kind = MO_EVENT_TEXT, .text = text, .call = -1, .stop = -1},
                      err)
               : MO_OK;
}

static mo_status note_call(mo_events *a, mo_text id, mo_error *err)
{
    if (!mo_array_reserve(&a->ids, &a->id_space, a->id_count + 1, sizeof *a->ids)) {
        return no_memory(err);
    }
    const size_t length = id.length < CALL_ID ? id.length : CALL_ID - 1;
    memcpy(a->ids[a->id_count], id.data, length);
    a->ids[a->id_count++][length] = 0;
    return MO_OK;
}

static mo_status tell_piece(mo_events *a, const mo_piece *piece, mo_error *err)
{
    static const mo_generation_event_kind kinds[] = {[MO_PIECE_TEXT] = MO_EVENT_TEXT,
                                                     [MO_PIECE_THOUGHT] = MO_EVENT_THOUGHT,
                                                     [MO_PIECE_CALL] = MO_EVENT_CALL,
                                                     [MO_PIECE_ARGUMENTS] = MO_EVENT_ARGUMENTS,
                                                     [MO_PIECE_CALL_END] = MO_EVENT_CALL_END};
    const bool call = piece->kind == MO_PIECE_CALL;
    if (piece->kind == MO_PIECE_TEXT) {
        return piece->text.length ? tell_text(a, piece->text, err) : MO_OK;
    }
    mo_status status = call ? note_call(a, piece->id, err) : MO_OK;
    if (status == MO_OK) {
        status = release_text(a, err);
    }
    const mo_generation_event event = {.kind = kinds[piece->kind],
                                       .text = piece->text,
                                       .call = piece->call,
                                       .id = call ? piece->id : (mo_text){0},
                                       .stop = -1};
    return status == MO_OK ? tell(a, &event, err) : status;
}

/* Parses a token's text, or (NULL) the pending text at the end. cut: the model has not ended the answer. */
static mo_status parse(mo_events *a, const int32_t *token, bool cut, mo_error *err)
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
        status = tell_piece(a, &pieces[i], err);
    }
    return status;
}

static mo_status tell_end(mo_events *a, mo_end end, mo_error *err)
{
    const mo_status status =
        tell(a, &(mo_generation_event){.kind = MO_EVENT_END, .call = -1, .end = end, .stop = a->met}, err);
    a->end = status == MO_OK ? end : a->end;
    return status;
}

static bool in_thought(const mo_events *a)
{
    return a->reply && mo_reply_in_thought(a->reply);
}

mo_status mo_events_put(mo_events *a, const mo_sampled *token, mo_error *err)
{
    if (a->end != MO_END_NONE) {
        return MO_OK;
    }
    if (!mo_array_reserve(&a->waiting, &a->waiting_space, a->waiting_count + 1, sizeof *a->waiting)) {
        return no_memory(err);
    }
    a->thoughts += in_thought(a);
    a->tokens++;
    a->waiting[a->waiting_count++] = *token;
    if (token->ends) {
        return MO_OK;
    }
    if (!a->reply && !a->stream) { /* there is nothing but the token to report */
        return tell(a, &(mo_generation_event){.kind = MO_EVENT_TEXT, .call = -1, .stop = -1}, err);
    }
    const mo_status status = parse(a, &token->id, false, err);
    return status == MO_OK && a->met >= 0 ? tell_end(a, MO_END_STOP, err) : status;
}

mo_status mo_events_end(mo_events *a, mo_end end, const mo_error *why, mo_error *err)
{
    mo_status status = MO_OK;
    if (a->end != MO_END_NONE) {
        return MO_OK;
    }
    if (why) {
        a->error = *why;
    }
    if (a->reply || a->stream) {
        status = parse(a, NULL, end != MO_END_MODEL, err);
        if (status == MO_OK && a->met < 0) {
            status = release_text(a, err);
        }
    }
    return status == MO_OK ? tell_end(a, a->met >= 0 && !why ? MO_END_STOP : end, err) : status;
}

mo_end mo_events_ended(const mo_events *a)
{
    return a->end;
}

int64_t mo_events_tokens(const mo_events *a)
{
    return a->tokens;
}

int64_t mo_events_thoughts(const mo_events *a)
{
    return a->thoughts;
}

size_t mo_events_thought_end(const mo_events *a, const int32_t **tokens)
{
    size_t count = 0;
    if (a->budget < 0 || a->thoughts < a->budget || !in_thought(a) ||
        mo_reply_thought_end(a->reply, tokens, &count, NULL) != MO_OK) {
        return 0;
    }
    return count;
}

const char *mo_events_call(const mo_events *a, int index)
{
    return index >= 0 && (size_t)index < a->id_count ? a->ids[index] : NULL;
}

mo_sampled *mo_events_waiting(mo_events *a, size_t *count)
{
    *count = a->waiting_count;
    return a->waiting;
}
