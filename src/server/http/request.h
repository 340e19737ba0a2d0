/* Request: a client's request and its answer.
 *
 * A handler gets a request with its complete body and owns it. It answers, at once or with a stream, and then
 * calls srv_request_end() exactly once, from any thread; afterwards the request must not be used. It may
 * return earlier and finish from another thread, such as a job's sink. A request ended without an answer is
 * answered with 500. */
#ifndef SRV_REQUEST_H
#define SRV_REQUEST_H

#include <jansson.h>

#include "moraine_server.h"
#include "server/common/caller.h"
#include "server/common/fault.h"
#include "server/common/writer.h"

typedef struct srv_request srv_request;

/* ---- The request. Strings live until srv_request_end() ---- */

const char *srv_request_method(const srv_request *q); /* HEAD arrives as GET */
const char *srv_request_path(const srv_request *q);   /* decoded, without the query */
/* The text matched by the n-th {} of the route's pattern, from 0; "" past the last. */
const char *srv_request_part(const srv_request *q, int index);
/* Decoded; NULL: not given. */
const char *srv_request_query(const srv_request *q, const char *name);
/* Case-insensitive name; NULL: not sent. Only until the handler returns. */
const char *srv_request_header(const srv_request *q, const char *name);
mo_text srv_request_body(const srv_request *q);       /* 0-terminated */
const char *srv_request_client(const srv_request *q); /* the address, or "unix" */
const char *srv_request_key(const srv_request *q);    /* the key's name in the log; "" without keys */
/* Owner of data stored for this client (keys.h); "" without keys. */
const char *srv_request_owner(const srv_request *q);
srv_caller srv_request_caller(const srv_request *q);
int srv_request_priority(const srv_request *q); /* from the key */
/* Requests with the same number share a client's turns: same key and address. Never 0. */
uint64_t srv_request_client_number(const srv_request *q);
uint64_t srv_request_id(const srv_request *q);
int64_t srv_request_begun_ns(const srv_request *q); /* monotonic clock, when its headers were received */

/* The message for other callers. */
#define SRV_NEEDS_ADMIN "this needs the key of an administrator: one that is marked as admin"

/* ---- The client ---- */

/* True if the client has disconnected. Any thread. */
bool srv_request_gone(const srv_request *q);

/* fn is called once when the client disconnects, or at once if it already has, from any thread, and never
 * after srv_request_end() has returned. It must be quick, must not end the request, and must not take a lock
 * that is held while calling functions of the request: it sets a flag and wakes a thread. NULL removes it. */
void srv_request_on_gone(srv_request *q, void (*fn)(void *user), void *user);

/* ---- An immediate answer. Call one of these once; bytes are copied ---- */

/* Call before the answer. */
void srv_reply_header(srv_request *q, const char *name, const char *value);
/* content_type NULL: JSON. */
void srv_reply(srv_request *q, int status, const char *content_type, const char *bytes, size_t length);
/* JSON. Answers 500 if the writer failed. */
void srv_reply_writer(srv_request *q, int status, const srv_writer *body);
/* Takes the reference; NULL (out of memory) answers 500. */
void srv_reply_json(srv_request *q, int status, json_t *json);
/* Uses the error shape of the path. */
void srv_reply_fault(srv_request *q, const srv_fault *fault);
/* Creates a fault, answers with it and ends the request. */
void srv_reply_refusal(srv_request *q, srv_fault_kind kind, const char *param, const char *message);

/* ---- A stream: headers first, then bytes as they are produced ---- */

typedef enum srv_stream_kind {
    SRV_STREAM_SSE,
    SRV_STREAM_ANTHROPIC, /* the same with an event as heartbeat */
    SRV_STREAM_NDJSON,    /* no heartbeat: the format has no neutral message */
} srv_stream_kind;

/* Status 200. Sends a heartbeat after heartbeat_ms without output; 0: the server's setting; -1: none. */
void srv_stream_open(srv_request *q, srv_stream_kind kind, int heartbeat_ms);
/* Queues complete events; any thread; never blocks. Returns false if the client has disconnected, or if 1 MiB
 * or more is queued for it. In the second case the bytes are still queued, up to 16 times that limit; the
 * writer should pause until `drained`. */
bool srv_stream_write(srv_request *q, const char *bytes, size_t length);
/* fn is called each time the queue has space again after exceeding its limit; rules as for
 * srv_request_on_gone(). */
void srv_stream_on_drained(srv_request *q, void (*fn)(void *user), void *user);
/* Ends the stream: the answer is complete. */
void srv_stream_close(srv_request *q);

/* ---- The end ---- */

/* Data of the answer for the log, besides the status. Strings are copied. */
typedef struct srv_answer_note {
    const char *model, *finish; /* NULL: not logged */
    int64_t prompt_tokens, cached_tokens, answer_tokens;
    double first_token_s; /* 0: none */
} srv_answer_note;
void srv_request_note(srv_request *q, const srv_answer_note *note);

void srv_request_end(srv_request *q);

/* srv_text_hold() until the answer is sent, which is about as large as its source. */
bool srv_request_hold_text(srv_request *q, size_t bytes, srv_fault *fault);

#endif
