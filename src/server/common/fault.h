/* Fault: why a request is refused or fails, and how each dialect says it. One table has the status, the type and the code
 * of every kind; three shapes write it. */
#ifndef SRV_FAULT_H
#define SRV_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "server/common/writer.h"

typedef enum srv_fault_kind {
    SRV_FAULT_NONE,
    SRV_FAULT_REQUEST,       /* 400: no JSON, a wrong type, a missing field, a value out of range */
    SRV_FAULT_CONTEXT,       /* 400: the prompt is longer than the window */
    SRV_FAULT_KEY,           /* 401 */
    SRV_FAULT_FORBIDDEN,     /* 403: an origin or a host that may not ask, a feature switched off */
    SRV_FAULT_NOT_FOUND,     /* 404: no such path */
    SRV_FAULT_MODEL,         /* 404: no such model */
    SRV_FAULT_METHOD,        /* 405 */
    SRV_FAULT_TIMEOUT,       /* 408: the request did not arrive in time */
    SRV_FAULT_TOO_LARGE,     /* 413 */
    SRV_FAULT_ENCODING,      /* 415: a compressed body */
    SRV_FAULT_HEADERS,       /* 431: header fields too large */
    SRV_FAULT_QUEUE,         /* 429, to be tried again */
    SRV_FAULT_SERVER,        /* 500 */
    SRV_FAULT_NOT_SUPPORTED, /* 501: this model or this server does not do that */
    SRV_FAULT_UNAVAILABLE,   /* 503, to be tried again: loading, or shutting down */
    SRV_FAULTS
} srv_fault_kind;

typedef enum srv_shape { SRV_SHAPE_OPENAI, SRV_SHAPE_ANTHROPIC, SRV_SHAPE_OLLAMA } srv_shape;

typedef struct srv_fault {
    srv_fault_kind kind;
    char param[160]; /* the field that is wrong, as "messages[3].content"; "": none */
    char message[1024];
    int64_t prompt_tokens, context; /* of SRV_FAULT_CONTEXT */
    const char *error_code;         /* Anthropic's SDK acts on it; a constant, NULL: none */
} srv_fault;

/* Fills the fault; param may be NULL. Returns false, so that a check can end with it. The message begins with the param. */
bool srv_fault_set(srv_fault *fault, srv_fault_kind kind, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* How the settings that messages of the library name are called by those who start the server; NULL, as at the beginning:
 * by their own names. Before any request. */
void srv_fault_name_settings(void (*name)(char *text, size_t size));
/* A message of the library in words for clients: settings as above, and files of the directory of `path` (NULL: any) without
 * it. */
void srv_fault_words(const mo_error *err, const char *path, char *out, size_t size);

/* What a function of the library said: MO_EINVAL, MO_EFORMAT, MO_ENOSPC and MO_EUNSUPPORTED are the request's fault, the others ours. */
bool srv_fault_status(srv_fault *fault, const mo_error *err, const char *param);

/* The prompt is longer than the window: in words that agents look for. */
bool srv_fault_context(srv_fault *fault, int64_t prompt_tokens, int64_t context);
/* The same if only a lower bound of the tokens is known. */
bool srv_fault_context_more(srv_fault *fault, int64_t prompt_tokens, int64_t context);

/* The HTTP status; and how many seconds a client should wait before it asks again, 0: it should not. */
int srv_fault_http(srv_fault_kind kind, srv_shape shape);
int srv_fault_retry_after(srv_fault_kind kind);

/* The body of the answer, without a newline. */
void srv_fault_write(const srv_fault *fault, srv_shape shape, srv_writer *out);

/* The shape that clients of a path understand: /api/... is Ollama's, /v1/messages... Anthropic's, all else OpenAI's. */
srv_shape srv_shape_of(const char *path);

#endif
