/* Exchange state: the listener's side of a request (exchange.h). */
#include "server/http/exchange_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "server/common/body.h"

/* ---- From arrival to the handler ---- */

srv_request *srv_exchange_open(const srv_exchange_host *host, void *connection, const char *target)
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

bool srv_exchange_parse(srv_request *q, const char *method, srv_fault *fault)
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

const char *srv_exchange_authority(const srv_request *q)
{
    return q->target.authority;
}

void srv_exchange_hold(srv_request *q)
{
    atomic_fetch_add(&q->holders, 1);
}

void srv_exchange_release(srv_request *q)
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

bool srv_exchange_header(srv_request *q, const char *name, const char *value)
{
    return srv_header_fields_add(&q->headers, name, value);
}

bool srv_exchange_body(srv_request *q, const char *bytes, size_t length, size_t limit)
{
    if (length > limit || q->body.length > limit - length) {
        srv_writer_free(&q->body);
        return false;
    }
    srv_put(&q->body, bytes, length);
    return true;
}

void srv_exchange_who(srv_request *q, const char *client, const srv_key_owner *holder)
{
    snprintf(q->client, sizeof q->client, "%s", client);
    q->holder = *holder;
    q->client_number = mo_hash_text(mo_hash_text(MO_HASH_SEED, client, strlen(client)), holder->owner,
                                    strlen(holder->owner)) |
                       1;
}

bool srv_exchange_part(srv_request *q, const char *text, size_t length)
{
    for (int i = 0; i < SRV_PARTS; i++) {
        if (!q->parts[i]) {
            q->parts[i] = strndup(text, length);
            return q->parts[i] != NULL;
        }
    }
    return false;
}

void srv_exchange_default_heartbeat(srv_request *q, int heartbeat_ms)
{
    q->heartbeat_ms = heartbeat_ms;
}

void srv_exchange_dispatch(srv_request *q)
{
    srv_put(&q->body, "", 1);
    q->body.length -= q->body.length > 0; /* the terminator follows */
    srv_exchange_hold(q);
}

/* ---- The client ---- */

/* With `mutex` held. */
void srv_exchange_wake(srv_request *q)
{
    if (q->sleeping && q->connection) {
        q->sleeping = false;
        q->host.wake(q->host.user, q->connection);
    }
}

void srv_exchange_notify_gone(srv_request *q)
{
    pthread_mutex_lock(&q->calls);
    void (*fn)(void *user) = q->on_gone;
    q->on_gone = NULL;
    if (fn) {
        fn(q->gone_user);
    }
    pthread_mutex_unlock(&q->calls);
}

void srv_exchange_leave(srv_request *q)
{
    pthread_mutex_lock(&q->mutex);
    atomic_store(&q->gone, true);
    srv_exchange_wake(q);
    pthread_mutex_unlock(&q->mutex);
    srv_exchange_notify_gone(q);
}

void srv_exchange_drop(srv_request *q, bool whole)
{
    pthread_mutex_lock(&q->mutex);
    q->connection = NULL;
    q->sleeping = false;
    q->whole = whole;
    pthread_mutex_unlock(&q->mutex);
    if (!whole) {
        srv_exchange_leave(q);
    }
    srv_exchange_release(q);
}

/* ---- What the listener reads ---- */

bool srv_exchange_answered(srv_request *q, void (*sleep)(void *connection), bool *slept)
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

int srv_exchange_status(const srv_request *q)
{
    return q->status;
}

bool srv_exchange_streams(const srv_request *q)
{
    return q->answer == ANSWER_STREAM;
}

const char *srv_exchange_content_type(const srv_request *q)
{
    return q->content_type;
}

mo_text srv_exchange_answer(const srv_request *q)
{
    return q->bytes.failed || !q->bytes.data ? (mo_text){"", 0} : (mo_text){q->bytes.data, q->bytes.length};
}

bool srv_exchange_reply_header(const srv_request *q, int index, const char **name, const char **value)
{
    if (index >= q->reply_headers.count) {
        return false;
    }
    *name = q->reply_headers.item[index].name;
    *value = q->reply_headers.item[index].value;
    return true;
}

void srv_exchange_describe(const srv_request *q, srv_exchange_end *out)
{
    *out = (srv_exchange_end){
        .whole = q->whole,
        .gone = q->gone,
        .status = q->status,
        .bytes_in = q->body.length,
        .bytes_out = q->answer == ANSWER_STREAM ? q->bytes_out : q->bytes.length,
        .seconds = (double)(mo_clock_ns() - q->begun_ns) * 1e-9,
        .note = &q->note,
    };
}
