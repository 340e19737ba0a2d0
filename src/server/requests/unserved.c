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
    {"logprobs", ANTHROPIC, 0, "these answers have no place for probabilities; /v1/chat/completions has"},
    {"top_logprobs", ANTHROPIC, 0, "these answers have no place for probabilities; /v1/chat/completions has"},
    {"n_probs", ANTHROPIC, 0, "these answers have no place for probabilities; /v1/chat/completions has"},
    {"n", RESPONSES | ANTHROPIC | OLLAMA, 1, "there is one answer here; /v1/chat/completions gives several"},
    {"n_cmpl", RESPONSES | ANTHROPIC | OLLAMA, 1,
     "there is one answer here; /v1/chat/completions gives several"},
    {"best_of", ALL, 1, "is not supported; ask for n answers and choose"},
    {"use_beam_search", ALL, 0, "is not supported"},
    {"echo", ALL, 0, "is not supported; put the prompt before the answer yourself"},
    {"suffix", ALL, 0, "is not supported by this model"},
    {"modalities", ALL, 0, "answers are text; other kinds are not supported"},
    {"audio", ALL, 0, "answers are text; audio is not supported"},
    {"web_search_options", ALL, 0, "the server does not search the web"},
    {"tools", TEXT | COMPLETION, 0, "needs a conversation; ask /v1/chat/completions"},
    {"chat_template_kwargs", TEXT | COMPLETION, 0, "needs a conversation; ask /v1/chat/completions"},
    {"prompt", RESPONSES, 0, "prompts are not kept here; send it as instructions and input"},
    {"mcp_servers", ANTHROPIC, 0, "the server does not call tools; offer them as tools of your own"},
    {"container", ANTHROPIC, 0, "the server does not run code"},
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
