/* Request: what a client asked, and the way back to it.
 *
 * A handler gets a request with its whole body and owns it: it answers, at once or by a stream, and then, exactly once and
 * from any thread, calls srv_request_end(), after which the request may not be touched. It may return before that and do
 * the rest from another thread, such as a job's sink. Ended without an answer it is answered with 500. */
#ifndef SRV_REQUEST_H
#define SRV_REQUEST_H

#include <jansson.h>

#include "moraine_server.h"
#include "server/common/caller.h"
#include "server/common/fault.h"
#include "server/common/writer.h"

typedef struct srv_request srv_request;

/* ---- What was asked. Texts live until srv_request_end() ---- */

const char *srv_request_method(const srv_request *q); /* HEAD arrives as GET */
const char *srv_request_path(const srv_request *q);   /* decoded, without the query */
/* What the n-th {} of the route's pattern matched, from 0; "" past the last. */
const char *srv_request_part(const srv_request *q, int index);
/* Decoded; NULL: not given. */
const char *srv_request_query(const srv_request *q, const char *name);
/* In any case of letters; NULL: not sent. Until the handler returns only. */
const char *srv_request_header(const srv_request *q, const char *name);
mo_text srv_request_body(const srv_request *q);       /* a terminating 0 follows */
const char *srv_request_client(const srv_request *q); /* the address, or "unix" */
const char *srv_request_key(const srv_request *q);    /* the key's name in the log; "" without keys */
/* Whose what is kept for this client is (keys.h); "" without keys. */
const char *srv_request_owner(const srv_request *q);
srv_caller srv_request_caller(const srv_request *q);
int srv_request_priority(const srv_request *q); /* the key's */
/* Requests with the same number share a client's turn: one key and one address. Never 0. */
uint64_t srv_request_client_number(const srv_request *q);
uint64_t srv_request_id(const srv_request *q);
int64_t srv_request_begun_ns(const srv_request *q); /* by the monotonic clock, when its headers had come */

/* What is answered where it is not. */
#define SRV_NEEDS_ADMIN "this needs the key of an administrator: one that is marked as admin"

/* ---- The client ---- */

/* Has it left? Any thread. */
bool srv_request_gone(const srv_request *q);

/* fn is called once when the client leaves, or at once where it has left already, from any thread, and never after
 * srv_request_end() has returned. It must be quick, must not end the request, and must take no lock that is held
 * while calling functions of the request: it sets a flag and wakes a thread. NULL removes it. */
void srv_request_on_gone(srv_request *q, void (*fn)(void *user), void *user);

/* ---- An answer at once. One of these, once; bytes are copied ---- */

/* Before the answer. */
void srv_reply_header(srv_request *q, const char *name, const char *value);
/* content_type NULL: JSON. */
void srv_reply(srv_request *q, int status, const char *content_type, const char *bytes, size_t length);
/* JSON. A writer that failed is a 500. */
void srv_reply_writer(srv_request *q, int status, const srv_writer *body);
/* Takes the reference; NULL (memory ran out) is a 500. */
void srv_reply_json(srv_request *q, int status, json_t *json);
/* In the shape of the path. */
void srv_reply_fault(srv_request *q, const srv_fault *fault);
/* The same of a fault that is made here, and ends the request. */
void srv_reply_refusal(srv_request *q, srv_fault_kind kind, const char *param, const char *message);

/* ---- A stream: headers at once, bytes as they come ---- */

typedef enum srv_stream_kind {
    SRV_STREAM_SSE,
    SRV_STREAM_ANTHROPIC, /* the same, but its heartbeat is an event */
    SRV_STREAM_NDJSON,    /* has none: nothing can be said there that means nothing */
} srv_stream_kind;

/* Status 200. A heartbeat follows every heartbeat_ms of silence; 0: the server's setting; -1: none. */
void srv_stream_open(srv_request *q, srv_stream_kind kind, int heartbeat_ms);
/* Queues whole events: any thread; never waits. False when 1 MiB or more waits for the client (the bytes are taken all the
 * same, up to 16 times as many; the writer should pause its work until it hears `drained`), and when the client has left. */
bool srv_stream_write(srv_request *q, const char *bytes, size_t length);
/* fn is called each time the queue has been over its bound and has space again; rules as for srv_request_on_gone(). */
void srv_stream_on_drained(srv_request *q, void (*fn)(void *user), void *user);
/* The answer is complete. */
void srv_stream_close(srv_request *q);

/* ---- The end ---- */

/* What the log says of the answer apart from the status. Texts are copied. */
typedef struct srv_answer_note {
    const char *model, *finish; /* NULL: nothing to say */
    int64_t prompt_tokens, cached_tokens, answer_tokens;
    double first_token_s; /* 0: none */
} srv_answer_note;
void srv_request_note(srv_request *q, const srv_answer_note *note);

void srv_request_end(srv_request *q);

/* srv_text_hold() until the client has the answer, which is about as large as what it is made of. */
bool srv_request_hold_text(srv_request *q, size_t bytes, srv_fault *fault);

#endif
