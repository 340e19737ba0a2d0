/* Unserved: see unserved.h. */
#include "server/requests/unserved.h"

#include <string.h>

enum {
    CHAT = 1 << SRV_DIALECT_CHAT,
    TEXT = 1 << SRV_DIALECT_TEXT,
    RESPONSES = 1 << SRV_DIALECT_RESPONSES,
    ANTHROPIC = 1 << SRV_DIALECT_ANTHROPIC,
    OLLAMA = 1 << SRV_DIALECT_OLLAMA,
    COMPLETION = 1 << SRV_DIALECT_COMPLETION,
    ALL = CHAT | TEXT | RESPONSES | ANTHROPIC | OLLAMA | COMPLETION,
};

static const struct {
    const char *name;
    int dialects;
    double neutral; /* of a number: it says nothing */
    const char *why;
} fields[] = {
    {"logprobs", ANTHROPIC, 0, "this endpoint cannot return probabilities; use /v1/chat/completions"},
    {"top_logprobs", ANTHROPIC, 0, "this endpoint cannot return probabilities; use /v1/chat/completions"},
    {"n_probs", ANTHROPIC, 0, "this endpoint cannot return probabilities; use /v1/chat/completions"},
    {"n", RESPONSES | ANTHROPIC | OLLAMA, 1,
     "this endpoint returns one answer; use /v1/chat/completions for several"},
    {"n_cmpl", RESPONSES | ANTHROPIC | OLLAMA, 1,
     "this endpoint returns one answer; use /v1/chat/completions for several"},
    {"best_of", ALL, 1, "is not supported; request n answers and choose one"},
    {"use_beam_search", ALL, 0, "is not supported"},
    {"echo", ALL, 0, "is not supported; prepend the prompt yourself"},
    {"suffix", ALL, 0, "is not supported by this model"},
    {"modalities", ALL, 0, "only text output is supported"},
    {"audio", ALL, 0, "audio output is not supported"},
    {"web_search_options", ALL, 0, "web search is not supported"},
    {"tools", TEXT | COMPLETION, 0, "requires a conversation; use /v1/chat/completions"},
    {"chat_template_kwargs", TEXT | COMPLETION, 0, "requires a conversation; use /v1/chat/completions"},
    {"prompt", RESPONSES, 0, "stored prompts are not supported; send instructions and input"},
    {"mcp_servers", ANTHROPIC, 0, "MCP servers are not supported; pass their tools in tools"},
    {"container", ANTHROPIC, 0, "code execution is not supported"},
};

/* Does a value ask for nothing? */
static bool says_nothing(const json_t *value, double neutral)
{
    switch (json_typeof(value)) {
    case JSON_FALSE: return true;
    case JSON_INTEGER:
    case JSON_REAL: return json_number_value(value) == neutral;
    case JSON_STRING: return json_string_length(value) == 0;
    case JSON_OBJECT: return json_object_size(value) == 0;
    case JSON_ARRAY: break;
    default: return false;
    }
    for (size_t i = 0; i < json_array_size(value); i++) { /* modalities that are served */
        const char *word = json_string_value(json_array_get(value, i));
        if (!word || strcmp(word, "text") != 0) {
            return false;
        }
    }
    return true;
}

bool srv_unserved_check(const srv_field *object, srv_dialect dialect)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const srv_field f = srv_member(object, fields[i].name);
        if (f.value && fields[i].dialects & 1 << dialect && !says_nothing(f.value, fields[i].neutral)) {
            return srv_wrong(&f, "%s", fields[i].why);
        }
    }
    return true;
}
