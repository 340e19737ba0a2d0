/* Fault: an error of a request and its form in each dialect. One table has the status, type and code of every
 * kind; three shapes write it. */
#ifndef SRV_FAULT_H
#define SRV_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "server/common/writer.h"

typedef enum srv_fault_kind {
    SRV_FAULT_NONE,
    SRV_FAULT_REQUEST,       /* 400: not JSON, a wrong type, a missing field, a value out of range */
    SRV_FAULT_CONTEXT,       /* 400: the prompt exceeds the context */
    SRV_FAULT_KEY,           /* 401 */
    SRV_FAULT_FORBIDDEN,     /* 403: origin or host not allowed, feature disabled */
    SRV_FAULT_NOT_FOUND,     /* 404: no such path */
    SRV_FAULT_MODEL,         /* 404: no such model */
    SRV_FAULT_METHOD,        /* 405 */
    SRV_FAULT_TIMEOUT,       /* 408: the request did not arrive in time */
    SRV_FAULT_TOO_LARGE,     /* 413 */
    SRV_FAULT_ENCODING,      /* 415: a compressed body */
    SRV_FAULT_HEADERS,       /* 431: header fields too large */
    SRV_FAULT_QUEUE,         /* 429, retryable */
    SRV_FAULT_SERVER,        /* 500 */
    SRV_FAULT_NOT_SUPPORTED, /* 501: not supported by this model or server */
    SRV_FAULT_UNAVAILABLE,   /* 503, retryable: loading, or shutting down */
    SRV_FAULTS
} srv_fault_kind;

typedef enum srv_shape { SRV_SHAPE_OPENAI, SRV_SHAPE_ANTHROPIC, SRV_SHAPE_OLLAMA } srv_shape;

typedef struct srv_fault {
    srv_fault_kind kind;
    char param[160]; /* the wrong field, such as "messages[3].content"; "": none */
    char message[1024];
    int64_t prompt_tokens, context; /* for SRV_FAULT_CONTEXT */
    const char *error_code;         /* for Anthropic's SDK, which acts on it; a constant, NULL: none */
} srv_fault;

/* Fills the fault; param may be NULL. The message starts with the param. Always returns false, so that checks
 * can return it. */
bool srv_fault_set(srv_fault *fault, srv_fault_kind kind, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Sets the function that renames settings in the library's messages to the names of the server's options.
 * NULL (default): no renaming. Call before any request. */
void srv_fault_name_settings(void (*name)(char *text, size_t size));
/* A library message for clients: settings are renamed as above, and files in the directory of `path` (NULL:
 * any) are shown without it. */
void srv_fault_words(const mo_error *err, const char *path, char *out, size_t size);

/* Converts a library error: MO_EINVAL, MO_EFORMAT, MO_ENOSPC and MO_EUNSUPPORTED are the client's fault,
 * others ours. */
bool srv_fault_status(srv_fault *fault, const mo_error *err, const char *param);

/* The prompt exceeds the context. Uses words that agents look for. */
bool srv_fault_context(srv_fault *fault, int64_t prompt_tokens, int64_t context);
/* The same if only a lower bound of the token count is known. */
bool srv_fault_context_more(srv_fault *fault, int64_t prompt_tokens, int64_t context);

/* The HTTP status; and after how many seconds a client may retry, 0: not at all. */
int srv_fault_http(srv_fault_kind kind, srv_shape shape);
int srv_fault_retry_after(srv_fault_kind kind);

/* Writes the response body, without a newline. */
void srv_fault_write(const srv_fault *fault, srv_shape shape, srv_writer *out);

/* The error shape for a path: /api/... is Ollama's, /v1/messages... Anthropic's, all others OpenAI's. */
srv_shape srv_shape_of(const char *path);

#endif
