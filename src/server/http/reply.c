/* Reply: an answer that is given at once, or piece by piece as the client takes it (request.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "server/http/request_state.h"

/* Reply: an answer that is given at once (request.h). */

static const char json_media[] = "application/json; charset=utf-8";

void srv_reply_header(srv_request *q, const char *name, const char *value)
{
    pthread_mutex_lock(&q->mutex);
    if (q->answer == ANSWER_NONE) {
        srv_header_fields_add(&q->reply_headers, name, value);
    }
    pthread_mutex_unlock(&q->mutex);
}

void srv_reply(srv_request *q, int status, const char *content_type, const char *bytes, size_t length)
{
    pthread_mutex_lock(&q->mutex);
    if (q->answer == ANSWER_NONE) {
        q->answer = ANSWER_WHOLE;
        q->status = status;
        snprintf(q->content_type, sizeof q->content_type, "%s", content_type ? content_type : json_media);
        srv_put(&q->bytes, bytes, length);
        if (q->bytes.failed) {
            q->status = 500;
        }
        srv_request_wake(q);
    }
    pthread_mutex_unlock(&q->mutex);
}

void srv_reply_writer(srv_request *q, int status, const srv_writer *body)
{
    if (body->failed) {
        srv_fault fault;
        srv_fault_set(&fault, SRV_FAULT_SERVER, NULL, "out of memory");
        srv_reply_fault(q, &fault);
        return;
    }
    srv_reply(q, status, NULL, body->data ? body->data : "", body->length);
}

void srv_reply_json(srv_request *q, int status, json_t *json)
{
    char *text = json ? mo_json_dump(json, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(json);
    if (text) {
        srv_reply(q, status, NULL, text, strlen(text));
    } else {
        srv_fault fault;
        srv_fault_set(&fault, SRV_FAULT_SERVER, NULL, "out of memory");
        srv_reply_fault(q, &fault);
    }
    free(text);
}

void srv_reply_fault(srv_request *q, const srv_fault *fault)
{
    srv_writer w = {0};
    const int retry = srv_fault_retry_after(fault->kind);
    if (retry > 0) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", retry);
        srv_reply_header(q, "Retry-After", seconds);
    }
    srv_fault_write(fault, q->shape, &w);
    srv_reply(q, srv_fault_http(fault->kind, q->shape), NULL, w.data ? w.data : "", w.failed ? 0 : w.length);
    srv_writer_free(&w);
}

void srv_reply_refusal(srv_request *q, srv_fault_kind kind, const char *param, const char *message)
{
    srv_fault fault;
    srv_fault_set(&fault, kind, param, "%s", message);
    srv_reply_fault(q, &fault);
    srv_request_end(q);
}

/* Stream: an answer sent in pieces (request.h), read as the client takes it (request_state.h). */

enum { STREAM_BOUND = 1 << 20, STREAM_MOST = 16 << 20 };

void srv_stream_open(srv_request *q, srv_stream_kind kind, int heartbeat_ms)
{
    pthread_mutex_lock(&q->mutex);
    if (q->answer == ANSWER_NONE) {
        const int ms = heartbeat_ms == 0 ? q->heartbeat_ms : heartbeat_ms;
        q->answer = ANSWER_STREAM;
        q->status = 200;
        q->kind = kind;
        q->beat_ns = kind == SRV_STREAM_NDJSON || ms < 0 ? 0 : (int64_t)ms * 1000000;
        q->said_ns = mo_clock_ns();
        snprintf(q->content_type, sizeof q->content_type, "%s",
                 kind == SRV_STREAM_NDJSON ? "application/x-ndjson" : "text/event-stream");
        if (kind != SRV_STREAM_NDJSON) {
            srv_header_fields_add(&q->reply_headers, "Cache-Control", "no-cache");
        }
        srv_header_fields_add(&q->reply_headers, "X-Accel-Buffering", "no");
        srv_request_wake(q);
    }
    pthread_mutex_unlock(&q->mutex);
}

/* With `mutex` held: moves what waits to the front when what is before it has grown to half. */
static void append(srv_request *q, const char *bytes, size_t length)
{
    srv_writer *w = &q->bytes;
    if (q->head == w->length) {
        q->head = w->length = 0;
    } else if (q->head > w->length / 2 && w->capacity - w->length < length) {
        memmove(w->data, w->data + q->head, w->length - q->head);
        w->length -= q->head;
        q->head = 0;
    }
    srv_put(w, bytes, length);
    q->said_ns = mo_clock_ns();
    srv_request_wake(q);
}

bool srv_stream_write(srv_request *q, const char *bytes, size_t length)
{
    bool room = false, lost = false;
    pthread_mutex_lock(&q->mutex);
    if (q->answer == ANSWER_STREAM && !q->closed && !q->gone) {
        append(q, bytes, length);
        const size_t waiting = q->bytes.length - q->head;
        lost = waiting > STREAM_MOST || q->bytes.failed;
        q->over = q->over || waiting >= STREAM_BOUND;
        room = !q->over;
    }
    pthread_mutex_unlock(&q->mutex);
    if (lost) { /* what was left out cannot be made up for */
        srv_request_leave(q);
    }
    return room;
}

void srv_stream_on_drained(srv_request *q, void (*fn)(void *user), void *user)
{
    pthread_mutex_lock(&q->calls);
    q->on_drained = fn;
    q->drained_user = user;
    pthread_mutex_unlock(&q->calls);
}

void srv_stream_close(srv_request *q)
{
    pthread_mutex_lock(&q->mutex);
    q->closed = true;
    srv_request_wake(q);
    pthread_mutex_unlock(&q->mutex);
}

void srv_request_beat(srv_request *q, int64_t now)
{
    static const char comment[] = ":\n\n", ping[] = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    pthread_mutex_lock(&q->mutex);
    if (q->answer == ANSWER_STREAM && !q->closed && !q->gone && q->beat_ns > 0 &&
        q->head == q->bytes.length && now - q->said_ns >= q->beat_ns) {
        const char *text = q->kind == SRV_STREAM_ANTHROPIC ? ping : comment;
        append(q, text, strlen(text));
    }
    pthread_mutex_unlock(&q->mutex);
}

int64_t srv_request_read(srv_request *q, char *to, size_t size, void (*sleep)(void *connection))
{
    bool drained = false;
    int64_t read = 0;
    pthread_mutex_lock(&q->mutex);
    const size_t waiting = q->bytes.length - q->head;
    if (q->gone) {
        read = -2;
    } else if (waiting > 0) {
        read = (int64_t)(waiting < size ? waiting : size);
        memcpy(to, q->bytes.data + q->head, (size_t)read);
        q->head += (size_t)read;
        q->bytes_out += (uint64_t)read;
        drained = q->over && waiting - (size_t)read < STREAM_BOUND / 2;
        q->over = q->over && !drained;
    } else if (q->closed) {
        read = -1;
    } else {
        q->sleeping = true;
        sleep(q->connection);
    }
    pthread_mutex_unlock(&q->mutex);
    if (drained) {
        pthread_mutex_lock(&q->calls);
        if (q->on_drained) {
            q->on_drained(q->drained_user);
        }
        pthread_mutex_unlock(&q->calls);
    }
    return read;
}
