/* Question: what was asked, who asks, and the end of it (request.h). */
#include <stdio.h>
#include <strings.h>

#include "server/common/body.h"
#include "server/http/exchange_state.h"

const char *srv_request_method(const srv_request *q)
{
    return q->method;
}

const char *srv_request_path(const srv_request *q)
{
    return q->target.path ? q->target.path : "";
}

const char *srv_request_part(const srv_request *q, int index)
{
    return index >= 0 && index < SRV_PARTS && q->parts[index] ? q->parts[index] : "";
}

const char *srv_request_query(const srv_request *q, const char *name)
{
    return srv_target_query(&q->target, name);
}

const char *srv_request_header(const srv_request *q, const char *name)
{
    for (int i = 0; i < q->headers.count; i++) {
        if (strcasecmp(q->headers.item[i].name, name) == 0) {
            return q->headers.item[i].value;
        }
    }
    return NULL;
}

mo_text srv_request_body(const srv_request *q)
{
    return q->body.failed || !q->body.data ? (mo_text){"", 0} : (mo_text){q->body.data, q->body.length};
}

const char *srv_request_client(const srv_request *q)
{
    return q->client;
}

const char *srv_request_key(const srv_request *q)
{
    return q->holder.name;
}

const char *srv_request_owner(const srv_request *q)
{
    return q->holder.owner;
}

int srv_request_priority(const srv_request *q)
{
    return q->holder.priority;
}

uint64_t srv_request_client_number(const srv_request *q)
{
    return q->client_number;
}

uint64_t srv_request_id(const srv_request *q)
{
    return q->id;
}

int64_t srv_request_begun_ns(const srv_request *q)
{
    return q->begun_ns;
}

/* ---- The client ---- */

bool srv_request_gone(const srv_request *q)
{
    return atomic_load(&q->gone);
}

void srv_request_on_gone(srv_request *q, void (*fn)(void *user), void *user)
{
    pthread_mutex_lock(&q->calls);
    q->on_gone = fn;
    q->gone_user = user;
    pthread_mutex_unlock(&q->calls);
    if (srv_request_gone(q)) {
        srv_exchange_notify_gone(q);
    }
}

/* ---- The end ---- */

void srv_request_note(srv_request *q, const srv_answer_note *note)
{
    pthread_mutex_lock(&q->mutex);
    q->note = *note;
    if (note->model) {
        snprintf(q->note_model, sizeof q->note_model, "%s", note->model);
        q->note.model = q->note_model;
    }
    if (note->finish) {
        snprintf(q->note_finish, sizeof q->note_finish, "%s", note->finish);
        q->note.finish = q->note_finish;
    }
    pthread_mutex_unlock(&q->mutex);
}

bool srv_request_hold_text(srv_request *q, size_t bytes, srv_fault *fault)
{
    const bool held = srv_text_hold(bytes, fault);
    q->text_held += held ? bytes : 0;
    return held;
}

void srv_request_end(srv_request *q)
{
    pthread_mutex_lock(&q->calls);
    q->on_gone = NULL;
    q->on_drained = NULL;
    pthread_mutex_unlock(&q->calls);
    pthread_mutex_lock(&q->mutex);
    const srv_answer_state answer = q->answer;
    pthread_mutex_unlock(&q->mutex);
    if (answer == ANSWER_NONE) {
        srv_fault fault;
        srv_fault_set(&fault, SRV_FAULT_SERVER, NULL, "the request was not answered");
        srv_reply_fault(q, &fault);
    } else if (answer == ANSWER_STREAM) {
        srv_stream_close(q);
    }
    srv_exchange_release(q);
}
