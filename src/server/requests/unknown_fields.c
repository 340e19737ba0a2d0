/* Unknown fields: see unknown_fields.h. */
#include "server/requests/unknown_fields.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "server/common/log.h"

/* ---- The log --------------------------------------------------------------------------------------- */

enum { LOGGED_MAX = 128, NAME_BYTES = 96 };

static pthread_mutex_t logged_lock = PTHREAD_MUTEX_INITIALIZER;
static char logged[LOGGED_MAX][NAME_BYTES];
static atomic_int logged_count; /* LOGGED_MAX + 1: that there are more has been logged */

void srv_unknown_field_log(const char *path, const char *name)
{
    char text[NAME_BYTES];
    if (atomic_load(&logged_count) > LOGGED_MAX) {
        return;
    }
    snprintf(text, sizeof text, "%s%s%.47s", path, *path ? "." : "", name);
    pthread_mutex_lock(&logged_lock);
    int at = 0;
    while (at < logged_count && at < LOGGED_MAX && strcmp(logged[at], text) != 0) {
        at++;
    }
    const bool fresh = at == logged_count && at < LOGGED_MAX,
               last = logged_count == LOGGED_MAX && at == LOGGED_MAX;
    if (fresh) {
        memcpy(logged[at], text, sizeof text);
    }
    logged_count += fresh || last;
    pthread_mutex_unlock(&logged_lock);
    if (fresh) {
        srv_log(MO_LOG_INFO, "unknown_field",
                (srv_log_field[]){
                    SRV_TEXT_FIELD("field", text),
                    SRV_TEXT_FIELD("message", "requests have a field that is not known; it is ignored"),
                    {0}});
    } else if (last) {
        srv_say(MO_LOG_INFO, "unknown_field", "further unknown fields are ignored, and not logged");
    }
}

/* ---- Inner objects --------------------------------------------------------------------------------- */

enum {
    CHAT = 1 << SRV_DIALECT_CHAT,
    RESPONSES = 1 << SRV_DIALECT_RESPONSES,
    ANTHROPIC = 1 << SRV_DIALECT_ANTHROPIC,
    OLLAMA = 1 << SRV_DIALECT_OLLAMA,
    COMPLETION = 1 << SRV_DIALECT_COMPLETION,
    OPENAI = CHAT | RESPONSES | 1 << SRV_DIALECT_TEXT,
    ALL = OPENAI | ANTHROPIC | OLLAMA | COMPLETION,
};

/* Paths without a row hold free names. Names that change no text are known too, such as marks of caches and ids. */
typedef struct inner {
    int dialects;
    const char *path;
    const char *names; /* with spaces between them */
} inner;

static const inner inners[] = {
    {OPENAI | COMPLETION, "stream_options", "include_usage include_obfuscation continuous_usage_stats"},
    {ALL, "response_format", "type json_schema schema strict name description"},
    {ALL, "response_format.json_schema", "name description schema strict"},
    {ALL, "lora[]", "id scale"},
    {ALL, "structured_outputs", "json choice grammar regex structural_tag json_object"},
    {ALL, "reasoning", "effort summary generate_summary context mode enabled exclude max_tokens"},
    {ALL, "thinking", "type budget_tokens display block_binding"},
    {ALL, "thinking.block_binding", "prefix_mismatch_behavior"},
    {ALL, "text", "format verbosity"},
    {ALL, "text.format", "type name description schema strict"},
    {ALL, "output_config", "effort format task_budget"},
    {ALL, "output_config.format", "type name description schema strict"},
    {ALL, "output_format", "type name description schema strict"},
    {ALL, "prediction", "type content"},
    {ALL, "prediction.content[]", "type text"},
    /* Chats */
    {CHAT, "messages[]",
     "role content name tool_calls tool_call_id reasoning_content reasoning reasoning_details thinking "
     "refusal audio "
     "function_call annotations id"},
    {CHAT, "messages[].content[]",
     "type text refusal image_url input_audio file thinking source image id data cache_control "
     "prompt_cache_breakpoint"},
    {CHAT, "messages[].content[].image_url", "url detail"},
    {RESPONSES, "image", "context_compression"},
    {CHAT, "messages[].tool_calls[]", "id type function custom index"},
    {CHAT, "messages[].tool_calls[].function", "name arguments"},
    {CHAT, "messages[].tool_calls[].custom", "name input"},
    {CHAT, "tools[]",
     "type function custom name description parameters strict cache_control input_schema input_examples "
     "allowed_callers defer_loading output_schema"},
    {CHAT, "tools[].function", "name description parameters strict output_schema"},
    {CHAT, "tool_choice", "type function name custom allowed_tools mode tools"},
    {CHAT, "tool_choice.function", "name"},
    {CHAT, "tool_choice.allowed_tools", "mode tools"},
    /* Responses: items and tools of other kinds have members of their own. */
    {RESPONSES, "tool_choice", "type name mode tools function server_label"},
    /* Anthropic */
    {ANTHROPIC, "messages[]", "role content id type"},
    {ANTHROPIC, "messages[].content[]",
     "type text source cache_control citations id name input tool_use_id content is_error thinking signature "
     "data "
     "title context caller file_id url encrypted_content server_name toolset_name transformations image_url"},
    {ANTHROPIC, "messages[].content[].source", "type media_type data url file_id content"},
    {ANTHROPIC, "messages[].content[].transformations", "oversized_image"},
    {ANTHROPIC, "system[]", "type text cache_control citations"},
    {ANTHROPIC, "tools[]",
     "name description input_schema type cache_control strict allowed_callers defer_loading input_examples "
     "eager_input_streaming"},
    {ANTHROPIC, "tool_choice", "type name disable_parallel_tool_use"},
    /* Ollama */
    {OLLAMA, "messages[]", "role content thinking images tool_calls tool_name tool_call_id name"},
    {OLLAMA, "messages[].tool_calls[]", "id type function"},
    {OLLAMA, "messages[].tool_calls[].function", "index name description arguments"},
    {OLLAMA, "tools[]", "type function items"},
    {OLLAMA, "tools[].function", "name description parameters strict"},
};

static const inner *find(const char *path, int dialect)
{
    for (size_t i = 0; i < sizeof inners / sizeof *inners; i++) {
        if (inners[i].dialects & 1 << dialect && strcmp(inners[i].path, path) == 0) {
            return &inners[i];
        }
    }
    return NULL;
}

static bool is_named(const inner *object, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = object->names; *at;) {
        const size_t next = strcspn(at, " ");
        if (next == length && memcmp(at, name, length) == 0) {
            return true;
        }
        at += next + (at[next] == ' ');
    }
    return false;
}

/* Paths have rows, so the depth is that of the table. */
static void look(const char *path, const json_t *value, srv_dialect dialect)
{
    char longer[NAME_BYTES];
    if (json_is_array(value)) {
        snprintf(longer, sizeof longer, "%s[]", path);
        for (size_t i = 0, count = find(longer, dialect) ? json_array_size(value) : 0; i < count; i++) {
            const json_t *element = json_array_get(value, i);
            if (json_is_object(element)) {
                look(longer, element, dialect);
            }
        }
        return;
    }
    const inner *object = json_is_object(value) ? find(path, dialect) : NULL;
    const char *name;
    json_t *member;
    if (!object) {
        return;
    }
    json_object_foreach((json_t *)value, name, member)
    {
        if (json_is_null(member)) {
            continue;
        }
        if (!is_named(object, name)) {
            srv_unknown_field_log(path, name);
        } else if (json_is_object(member) || json_is_array(member)) {
            snprintf(longer, sizeof longer, "%s.%s", path, name);
            look(longer, member, dialect);
        }
    }
}

void srv_unknown_members_log(const char *name, const json_t *value, srv_dialect dialect)
{
    if (json_is_object(value) || json_is_array(value)) {
        look(name, value, dialect);
    }
}
