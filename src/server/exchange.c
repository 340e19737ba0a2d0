/* Exchange: a request and its answer, seen by handlers (request.h) and by the listener (exchange.h). */
#include "server/exchange.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "server/routes.h"
#include "server/target.h"

enum { STREAM_BOUND = 1 << 20, STREAM_MOST = 16 << 20 };

static const char json_media[] = "application/json; charset=utf-8";

typedef struct field {
    char *name, *value;
} field;

typedef struct fields {
    field *item;
    int count, capacity;
} fields;

typedef enum answer_state { ANSWER_NONE, ANSWER_WHOLE, ANSWER_STREAM } answer_state;

struct srv_request {
    srv_exchange_host host;
    uint64_t id;
    int64_t begun_ns;
    _Atomic int holders;

    /* What was asked: constant once the handler runs. */
    char method[16];
    char *raw_target;
    srv_target target;
    char *parts[SRV_PARTS];
    fields headers;
    srv_writer body;
    char client[64], key[64];
    uint64_t client_number;
    int priority, heartbeat_ms;
    srv_shape shape;

    pthread_mutex_t mutex; /* of what follows */
    void *connection;      /* NULL: it has been dropped */
    bool sleeping, whole;
    _Atomic bool gone;
    answer_state answer;
    int status;
    char content_type[64];
    fields reply_headers;
    srv_writer bytes; /* a whole answer, or what waits of a stream: from `head` on */
    size_t head;
    bool closed, over;
    srv_stream_kind kind;
    int64_t beat_ns, said_ns; /* heartbeats; when something was said last */
    uint64_t bytes_out;
    srv_answer_note note;
    char note_model[128], note_finish[24];

    /* Held while one of the functions below runs, so that srv_request_end() can wait for it; may be taken again by the
     * same thread. Never taken with `mutex` held. */
    pthread_mutex_t calls;
    void (*on_gone)(void *user);
    void *gone_user;
    void (*on_drained)(void *user);
    void *drained_user;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- Fields ---- */

static bool add_field(fields *f, const char *name, const char *value)
{
    if (f->count == f->capacity) {
        const int capacity = f->capacity ? 2 * f->capacity : 16;
        field *item = realloc(f->item, (size_t)capacity * sizeof *item);
        if (!item) {
            return false;
        }
        f->item = item;
        f->capacity = capacity;
    }
    field *added = &f->item[f->count];
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

static void free_fields(fields *f)
{
    for (int i = 0; i < f->count; i++) {
        free(f->item[i].name);
        free(f->item[i].value);
    }
    free(f->item);
}

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
    q->begun_ns = now_ns();
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
    free_fields(&q->headers);
    free_fields(&q->reply_headers);
    srv_writer_free(&q->body);
    srv_writer_free(&q->bytes);
    srv_target_free(&q->target);
    free(q->raw_target);
    pthread_mutex_destroy(&q->mutex);
    pthread_mutex_destroy(&q->calls);
    free(q);
}

bool srv_exchange_header(srv_request *q, const char *name, const char *value)
{
    return add_field(&q->headers, name, value);
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

size_t srv_exchange_body_bytes(const srv_request *q)
{
    return q->body.length;
}

/* FNV-1a: clients are told apart, nothing more. */
static uint64_t hash(uint64_t h, const char *text)
{
    for (; *text; text++) {
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    }
    return (h ^ 0xff) * 0x100000001b3u;
}

void srv_exchange_who(srv_request *q, const char *client, const char *key, int priority)
{
    snprintf(q->client, sizeof q->client, "%s", client);
    snprintf(q->key, sizeof q->key, "%s", key);
    q->priority = priority;
    q->client_number = hash(hash(0xcbf29ce484222325u, client), key) | 1;
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

/* ---- What was asked ---- */

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
    return q->key;
}

int srv_request_priority(const srv_request *q)
{
    return q->priority;
}

uint64_t srv_request_client_number(const srv_request *q)
{
    return q->client_number;
}

uint64_t srv_request_id(const srv_request *q)
{
    return q->id;
}

srv_shape srv_request_shape(const srv_request *q)
{
    return q->shape;
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

/* With `mutex` held. */
static void wake(srv_request *q)
{
    if (q->sleeping && q->connection) {
        q->sleeping = false;
        q->host.wake(q->host.user, q->connection);
    }
}

static void tell_gone(srv_request *q)
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
    wake(q);
    pthread_mutex_unlock(&q->mutex);
    tell_gone(q);
}

void srv_request_on_gone(srv_request *q, void (*fn)(void *user), void *user)
{
    pthread_mutex_lock(&q->calls);
    q->on_gone = fn;
    q->gone_user = user;
    pthread_mutex_unlock(&q->calls);
    if (srv_request_gone(q)) {
        tell_gone(q);
    }
}

/* ---- An answer at once ---- */

void srv_reply_header(srv_request *q, const char *name, const char *value)
{
    pthread_mutex_lock(&q->mutex);
    if (q->answer == ANSWER_NONE) {
        add_field(&q->reply_headers, name, value);
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
        wake(q);
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

/* ---- A stream ---- */

void srv_stream_open(srv_request *q, srv_stream_kind kind, int heartbeat_ms)
{
    pthread_mutex_lock(&q->mutex);
    if (q->answer == ANSWER_NONE) {
        const int ms = heartbeat_ms == 0 ? q->heartbeat_ms : heartbeat_ms;
        q->answer = ANSWER_STREAM;
        q->status = 200;
        q->kind = kind;
        q->beat_ns = kind == SRV_STREAM_NDJSON || ms < 0 ? 0 : (int64_t)ms * 1000000;
        q->said_ns = now_ns();
        snprintf(q->content_type, sizeof q->content_type, "%s",
                 kind == SRV_STREAM_NDJSON ? "application/x-ndjson" : "text/event-stream");
        if (kind != SRV_STREAM_NDJSON) {
            add_field(&q->reply_headers, "Cache-Control", "no-cache");
        }
        add_field(&q->reply_headers, "X-Accel-Buffering", "no");
        wake(q);
    }
    pthread_mutex_unlock(&q->mutex);
}

/* With `mutex` held: moves what waits to the front when what is before it has grown to half. */
static void say(srv_request *q, const char *bytes, size_t length)
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
    q->said_ns = now_ns();
    wake(q);
}

bool srv_stream_write(srv_request *q, const char *bytes, size_t length)
{
    bool room = false, lost = false;
    pthread_mutex_lock(&q->mutex);
    if (q->answer == ANSWER_STREAM && !q->closed && !q->gone) {
        say(q, bytes, length);
        const size_t waiting = q->bytes.length - q->head;
        lost = waiting > STREAM_MOST || q->bytes.failed;
        q->over = q->over || waiting >= STREAM_BOUND;
        room = !q->over;
    }
    pthread_mutex_unlock(&q->mutex);
    if (lost) { /* what was left out cannot be made up for */
        srv_exchange_leave(q);
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
    wake(q);
    pthread_mutex_unlock(&q->mutex);
}

void srv_exchange_beat(srv_request *q, int64_t now)
{
    static const char comment[] = ":\n\n", ping[] = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    pthread_mutex_lock(&q->mutex);
    if (q->answer == ANSWER_STREAM && !q->closed && !q->gone && q->beat_ns > 0 &&
        q->head == q->bytes.length && now - q->said_ns >= q->beat_ns) {
        const char *text = q->kind == SRV_STREAM_ANTHROPIC ? ping : comment;
        say(q, text, strlen(text));
    }
    pthread_mutex_unlock(&q->mutex);
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

int64_t srv_exchange_read(srv_request *q, char *to, size_t size, void (*sleep)(void *connection))
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

void srv_exchange_describe(const srv_request *q, srv_exchange_end *out)
{
    *out = (srv_exchange_end){
        .whole = q->whole,
        .gone = q->gone,
        .status = q->status,
        .bytes_in = q->body.length,
        .bytes_out = q->answer == ANSWER_STREAM ? q->bytes_out : q->bytes.length,
        .seconds = (double)(now_ns() - q->begun_ns) * 1e-9,
        .note = &q->note,
    };
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

void srv_request_end(srv_request *q)
{
    pthread_mutex_lock(&q->calls);
    q->on_gone = NULL;
    q->on_drained = NULL;
    pthread_mutex_unlock(&q->calls);
    pthread_mutex_lock(&q->mutex);
    const answer_state answer = q->answer;
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
