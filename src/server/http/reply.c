/* Reply: an answer that is given at once (request.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/exchange_state.h"

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
        srv_exchange_wake(q);
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
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;
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
