/* Fault: see fault.h. */
#include "server/common/fault.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct kind_facts {
    int status, anthropic_status;
    const char *type, *code, *anthropic_type;
    int retry_after; /* seconds; 0: the same request will never succeed, or it is not ours to say */
} kind_facts;

static const kind_facts facts[SRV_FAULTS] = {
    [SRV_FAULT_NONE] = {500, 500, "server_error", NULL, "api_error", 0},
    [SRV_FAULT_REQUEST] = {400, 400, "invalid_request_error", NULL, "invalid_request_error", 0},
    [SRV_FAULT_CONTEXT] = {400, 400, "exceed_context_size_error", "context_length_exceeded",
                           "invalid_request_error", 0},
    [SRV_FAULT_KEY] = {401, 401, "authentication_error", "invalid_api_key", "authentication_error", 0},
    [SRV_FAULT_FORBIDDEN] = {403, 403, "permission_error", NULL, "permission_error", 0},
    [SRV_FAULT_NOT_FOUND] = {404, 404, "not_found_error", NULL, "not_found_error", 0},
    [SRV_FAULT_MODEL] = {404, 404, "invalid_request_error", "model_not_found", "not_found_error", 0},
    [SRV_FAULT_METHOD] = {405, 405, "invalid_request_error", NULL, "invalid_request_error", 0},
    [SRV_FAULT_TIMEOUT] = {408, 408, "invalid_request_error", NULL, "invalid_request_error", 0},
    [SRV_FAULT_TOO_LARGE] = {413, 413, "invalid_request_error", NULL, "request_too_large", 0},
    [SRV_FAULT_ENCODING] = {415, 415, "invalid_request_error", NULL, "invalid_request_error", 0},
    [SRV_FAULT_HEADERS] = {431, 431, "invalid_request_error", NULL, "invalid_request_error", 0},
    [SRV_FAULT_QUEUE] = {429, 429, "rate_limit_error", NULL, "rate_limit_error", 1},
    [SRV_FAULT_SERVER] = {500, 500, "server_error", NULL, "api_error", 0},
    [SRV_FAULT_NOT_SUPPORTED] = {501, 501, "not_supported_error", NULL, "invalid_request_error", 0},
    [SRV_FAULT_UNAVAILABLE] = {503, 529, "unavailable_error", NULL, "overloaded_error", 2},
};

static const kind_facts *facts_of(srv_fault_kind kind)
{
    return &facts[(unsigned)kind < SRV_FAULTS ? kind : SRV_FAULT_SERVER];
}

bool srv_fault_set(srv_fault *fault, srv_fault_kind kind, const char *param, const char *format, ...)
{
    fault->kind = kind;
    fault->prompt_tokens = fault->context = 0;
    fault->error_code = NULL;
    snprintf(fault->param, sizeof fault->param, "%s", param ? param : "");
    int used = param && *param ? snprintf(fault->message, sizeof fault->message, "%s: ", fault->param) : 0;
    va_list args;
    va_start(args, format);
    vsnprintf(fault->message + used, sizeof fault->message - (size_t)used, format, args);
    va_end(args);
    return false;
}

static void (*name_settings)(char *text, size_t size);

void srv_fault_name_settings(void (*name)(char *text, size_t size))
{
    name_settings = name;
}

/* Takes every occurrence of the first bytes of `part` out of a text. */
static void take_out(char *text, const char *part, size_t length)
{
    char *to = text;
    for (const char *from = text; *from;) {
        if (strncmp(from, part, length) == 0) {
            from += length;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

void srv_fault_words(const mo_error *err, const char *path, char *out, size_t size)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    snprintf(out, size, "%s", err->detail[0] ? err->detail : mo_status_text(err->status));
    if (slash) {
        take_out(out, path, (size_t)(slash + 1 - path));
    }
    if (name_settings) {
        name_settings(out, size);
    }
}

bool srv_fault_status(srv_fault *fault, const mo_error *err, const char *param)
{
    char text[sizeof fault->message];
    srv_fault_kind kind = SRV_FAULT_SERVER;
    switch (err->status) {
    case MO_EINVAL:
    case MO_EFORMAT:
    case MO_ENOSPC: /* of a grammar: a bound that it is over */
    case MO_EUNSUPPORTED: kind = SRV_FAULT_REQUEST; break;
    case MO_ECANCELLED: kind = SRV_FAULT_UNAVAILABLE; break; /* the client has left, or the server stops */
    default: break;
    }
    srv_fault_words(err, NULL, text, sizeof text);
    return srv_fault_set(fault, kind, kind == SRV_FAULT_REQUEST ? param : NULL, "%s", text);
}

static bool exceed_context(srv_fault *fault, const char *more, int64_t prompt_tokens, int64_t context)
{
    srv_fault_set(fault, SRV_FAULT_CONTEXT, NULL,
                  "the request (%s%" PRId64 " tokens) exceeds the available context size (%" PRId64
                  " tokens); shorten the conversation, or start the server with a larger context",
                  more, prompt_tokens, context);
    fault->prompt_tokens = prompt_tokens;
    fault->context = context;
    return false;
}

bool srv_fault_context(srv_fault *fault, int64_t prompt_tokens, int64_t context)
{
    return exceed_context(fault, "", prompt_tokens, context);
}

bool srv_fault_context_more(srv_fault *fault, int64_t prompt_tokens, int64_t context)
{
    return exceed_context(fault, "more than ", prompt_tokens, context);
}

int srv_fault_http(srv_fault_kind kind, srv_shape shape)
{
    const kind_facts *f = facts_of(kind);
    return shape == SRV_SHAPE_ANTHROPIC ? f->anthropic_status : f->status;
}

int srv_fault_retry_after(srv_fault_kind kind)
{
    return facts_of(kind)->retry_after;
}

static void write_openai(const srv_fault *fault, const kind_facts *f, srv_writer *out)
{
    srv_print(out, "{\"error\":{\"message\":%s,\"type\":%s,\"param\":", fault->message, f->type);
    srv_put_cstring(out, fault->param[0] ? fault->param : NULL);
    srv_print(out, ",\"code\":%s", f->code);
    if (fault->kind == SRV_FAULT_CONTEXT) {
        srv_print(out, ",\"n_prompt_tokens\":%ld,\"n_ctx\":%ld", fault->prompt_tokens, fault->context);
    }
    srv_put_literal(out, "}}");
}

void srv_fault_write(const srv_fault *fault, srv_shape shape, srv_writer *out)
{
    const kind_facts *f = facts_of(fault->kind);
    switch (shape) {
    case SRV_SHAPE_OPENAI: write_openai(fault, f, out); break;
    case SRV_SHAPE_ANTHROPIC:
        srv_print(out, "{\"type\":\"error\",\"error\":{\"type\":%s,\"message\":%s", f->anthropic_type,
                  fault->message);
        if (fault->error_code) {
            srv_print(out, ",\"details\":{\"error_code\":%s}", fault->error_code);
        }
        srv_put_literal(out, "}}");
        break;
    case SRV_SHAPE_OLLAMA: srv_print(out, "{\"error\":%s}", fault->message); break;
    }
}

srv_shape srv_shape_of(const char *path)
{
    if (strncmp(path, "/api/", 5) == 0) {
        return SRV_SHAPE_OLLAMA;
    }
    size_t length = strlen("/v1/messages");
    if (strncmp(path, "/v1/messages", length) == 0 &&
        (path[length] == '\0' || path[length] == '/' || path[length] == '?')) {
        return SRV_SHAPE_ANTHROPIC;
    }
    return SRV_SHAPE_OPENAI;
}
