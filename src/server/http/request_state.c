/* Request state: a request from its arrival to its end: the listener's side (request_state.h), and what handlers ask
 * (request.h). */
#include "server/http/request_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/hash.h"
#include "server/common/body.h"

/* The listener's side of a request (request_state.h). */

/* ---- From arrival to the handler ---- */

srv_request *srv_request_open(const srv_request_host *host, void *connection, const char *target)
{
    static _Atomic uint64_t ids;
    srv_request *q = calloc(1, sizeof *q);
    if (!q || !(q->raw_target = strdup(target))) {
        free(q);
        return NULL;
    }
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&q->calls, &attributes);
    pthread_mutexattr_destroy(&attributes);
    pthread_mutex_init(&q->mutex, NULL);
    q->host = *host;
    q->connection = connection;
    q->id = atomic_fetch_add(&ids, 1) + 1;
    q->begun_ns = mo_clock_ns();
    q->holders = 1;
    snprintf(q->method, sizeof q->method, "GET");
    return q;
}

bool srv_request_parse(srv_request *q, const char *method, srv_fault *fault)
{
    const char *why;
    snprintf(q->method, sizeof q->method, "%s", strcmp(method, "HEAD") == 0 ? "GET" : method);
    if (!srv_target_parse(q->raw_target, &q->target, &why)) {
        return srv_fault_set(fault, why ? SRV_FAULT_REQUEST : SRV_FAULT_SERVER, NULL, "%s",
                             why ? why : "out of memory");
    }
    q->shape = srv_shape_of(q->target.path);
    return true;
}

const char *srv_request_authority(const srv_request *q)
{
    return q->target.authority;
}

void srv_request_hold(srv_request *q)
{
    atomic_fetch_add(&q->holders, 1);
}

void srv_request_release(srv_request *q)
{
    if (atomic_fetch_sub(&q->holders, 1) != 1) {
        return;
    }
    if (q->host.finished) {
        q->host.finished(q->host.user, q);
    }
    for (int i = 0; i < SRV_PARTS; i++) {
        free(q->parts[i]);
    }
    srv_header_fields_free(&q->headers);
    srv_header_fields_free(&q->reply_headers);
    srv_writer_free(&q->body);
    srv_writer_free(&q->bytes);
    srv_target_free(&q->target);
    free(q->raw_target);
    srv_text_release(q->text_held);
    pthread_mutex_destroy(&q->mutex);
    pthread_mutex_destroy(&q->calls);
    free(q);
}

bool srv_request_add_header(srv_request *q, const char *name, const char *value)
{
    return srv_header_fields_add(&q->headers, name, value);
}

bool srv_request_add_body(srv_request *q, const char *bytes, size_t length, size_t limit)
{
    if (length > limit || q->body.length > limit - length) {
        srv_writer_free(&q->body);
        return false;
    }
    srv_put(&q->body, bytes, length);
    return true;
}

void srv_request_set_client(srv_request *q, const char *client, const srv_key_owner *holder)
{
    snprintf(q->client, sizeof q->client, "%s", client);
    q->holder = *holder;
    q->client_number = mo_hash_text(mo_hash_text(MO_HASH_SEED, client, strlen(client)), holder->owner,
                                    strlen(holder->owner)) |
                       1;
}

bool srv_request_add_part(srv_request *q, const char *text, size_t length)
{
    for (int i = 0; i < SRV_PARTS; i++) {
        if (!q->parts[i]) {
            q->parts[i] = strndup(text, length);
            return q->parts[i] != NULL;
        }
    }
    return false;
}

void srv_request_set_heartbeat(srv_request *q, int heartbeat_ms)
{
    q->heartbeat_ms = heartbeat_ms;
}

void srv_request_dispatch(srv_request *q)
{
    srv_put(&q->body, "", 1);
    q->body.length -= q->body.length > 0; /* the terminator follows */
    srv_request_hold(q);
}

/* ---- The client ---- */

/* With `mutex` held. */
void srv_request_wake(srv_request *q)
{
    if (q->sleeping && q->connection) {
        q->sleeping = false;
        q->host.wake(q->host.user, q->connection);
    }
}

void srv_request_notify_gone(srv_request *q)
{
    pthread_mutex_lock(&q->calls);
    void (*fn)(void *user) = q->on_gone;
    q->on_gone = NULL;
    if (fn) {
        fn(q->gone_user);
    }
    pthread_mutex_unlock(&q->calls);
}

void srv_request_leave(srv_request *q)
{
    pthread_mutex_lock(&q->mutex);
    atomic_store(&q->gone, true);
    srv_request_wake(q);
    pthread_mutex_unlock(&q->mutex);
    srv_request_notify_gone(q);
}

void srv_request_drop(srv_request *q, bool whole)
{
    pthread_mutex_lock(&q->mutex);
    q->connection = NULL;
    q->sleeping = false;
    q->whole = whole;
    pthread_mutex_unlock(&q->mutex);
    if (!whole) {
        srv_request_leave(q);
    }
    srv_request_release(q);
}

/* ---- What the listener reads ---- */

bool srv_request_answered(srv_request *q, void (*sleep)(void *connection), bool *slept)
{
    *slept = false;
    pthread_mutex_lock(&q->mutex);
    const bool answered = q->answer != ANSWER_NONE;
    if (!answered && !q->gone) {
        q->sleeping = *slept = true;
        sleep(q->connection);
    }
    pthread_mutex_unlock(&q->mutex);
    return answered;
}

int srv_request_status(const srv_request *q)
{
    return q->status;
}

bool srv_request_streams(const srv_request *q)
{
    return q->answer == ANSWER_STREAM;
}

const char *srv_request_content_type(const srv_request *q)
{
    return q->content_type;
}

mo_text srv_request_answer(const srv_request *q)
{
    return q->bytes.failed || !q->bytes.data ? (mo_text){"", 0} : (mo_text){q->bytes.data, q->bytes.length};
}

bool srv_request_reply_header(const srv_request *q, int index, const char **name, const char **value)
{
    if (index >= q->reply_headers.count) {
        return false;
    }
    *name = q->reply_headers.item[index].name;
    *value = q->reply_headers.item[index].value;
    return true;
}

void srv_request_describe(const srv_request *q, srv_request_outcome *out)
{
    *out = (srv_request_outcome){
        .whole = q->whole,
        .gone = q->gone,
        .status = q->status,
        .bytes_in = q->body.length,
        .bytes_out = q->answer == ANSWER_STREAM ? q->bytes_out : q->bytes.length,
        .seconds = (double)(mo_clock_ns() - q->begun_ns) * 1e-9,
        .note = &q->note,
    };
}

/* Question: what was asked, who asks, and the end of it (request.h). */

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

srv_caller srv_request_caller(const srv_request *q)
{
    return q->holder.caller;
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
        srv_request_notify_gone(q);
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
    srv_request_release(q);
}

bool srv_header_fields_add(srv_header_fields *f, const char *name, const char *value)
{
    if (!mo_array_reserve(&f->item, &f->capacity, f->count + 1, sizeof *f->item)) {
        return false;
    }
    struct srv_header_field *added = &f->item[f->count];
    added->name = strdup(name);
    added->value = strdup(value);
    if (!added->name || !added->value) {
        free(added->name);
        free(added->value);
        return false;
    }
    f->count++;
    return true;
}

void srv_header_fields_free(srv_header_fields *f)
{
    for (int i = 0; i < f->count; i++) {
        free(f->item[i].name);
        free(f->item[i].value);
    }
    free(f->item);
}
