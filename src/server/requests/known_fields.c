/* Known fields: see known_fields.h. tests/data/server/fields.json has the same fields with what each does. */
#include "server/requests/known_fields.h"

#include <stdio.h>
#include <string.h>

#include "server/requests/unknown_fields.h"

enum {
    CHAT = 1 << SRV_DIALECT_CHAT,
    TEXT = 1 << SRV_DIALECT_TEXT,
    RESPONSES = 1 << SRV_DIALECT_RESPONSES,
    ANTHROPIC = 1 << SRV_DIALECT_ANTHROPIC,
    OLLAMA = 1 << SRV_DIALECT_OLLAMA,
    COMPLETION = 1 << SRV_DIALECT_COMPLETION,
    OPTIONS = 1 << (SRV_DIALECT_COMPLETION + 1), /* of Ollama's requests */
    TALKS = CHAT | RESPONSES | ANTHROPIC,
    PLAIN = TEXT | COMPLETION,
    DIRECT = TALKS | PLAIN, /* whose parameters stand in the request itself */
    ALL = DIRECT | OLLAMA | OPTIONS,
};

/* ---- What cannot be served --------------------------------------------------------------------- */

/* Which values ask for nothing, besides null. */
typedef enum neutral {
    NEVER,    /* none */
    EMPTY,    /* false, 0, "", [] and {} */
    NUMBER,   /* this number */
    AT_MOST,  /* numbers up to this one */
    IS_TRUE,  /* true */
    ONE_OF,   /* these words, with bars between them; a list of them too */
    KEEP_ALL, /* edits of a context that keep all of it */
} neutral;

typedef struct unserved {
    const char *path; /* members of the request, with dots between them */
    int dialects;
    neutral kind;
    double number;
    const char *words;
    const char *why;
} unserved;

#define SEVERAL      "this endpoint returns one answer; use /v1/chat/completions for several"
#define PROBABLE     "this endpoint cannot return probabilities; use /v1/chat/completions"
#define TALK         "requires a conversation; use /v1/chat/completions"
#define UNSUPPORTED  "is not supported; omit it"
#define NO_IMAGES    "images cannot be generated; omit it"
#define OWN_INTERNAL "is llama-server's own between its parts; omit it"
#define WHOLE        "is not supported: nothing of a conversation is cut or rewritten; omit it"

static const unserved unserved_fields[] = {
    {"logprobs", ANTHROPIC, EMPTY, .why = PROBABLE},
    {"top_logprobs", ANTHROPIC, EMPTY, .why = PROBABLE},
    {"n_probs", ANTHROPIC, EMPTY, .why = PROBABLE},
    {"n", RESPONSES | ANTHROPIC | OLLAMA | OPTIONS, NUMBER, .number = 1, .why = SEVERAL},
    {"n_cmpl", RESPONSES | ANTHROPIC | OLLAMA | OPTIONS, NUMBER, .number = 1, .why = SEVERAL},
    {"best_of", ALL, NUMBER, .number = 1, .why = "is not supported; request n answers and choose one"},
    {"use_beam_search", ALL, EMPTY, .why = "is not supported"},
    {"echo", ALL, EMPTY, .why = "is not supported; prepend the prompt yourself"},
    {"suffix", ALL, EMPTY, .why = "is not supported by this model"},
    /* OpenAI */
    {"modalities", ALL, ONE_OF, .words = "text", .why = "only text output is supported"},
    {"audio", ALL, NEVER, .why = "audio output is not supported"},
    {"web_search_options", ALL, NEVER, .why = "web search is not supported"},
    {"function_call", CHAT, ONE_OF, .words = "none|auto",
     .why = "is no longer supported; use tool_choice instead"},
    {"moderation", CHAT | TEXT | RESPONSES, NEVER,
     .why = "is not supported: nothing here judges texts; omit it"},
    {"verbosity", CHAT | RESPONSES, ONE_OF, .words = "medium",
     .why = "is not supported; ask for a short or a long answer in the instructions"},
    {"text.verbosity", RESPONSES, ONE_OF, .words = "medium",
     .why = "is not supported; ask for a short or a long answer in the instructions"},
    {"tools", PLAIN, EMPTY, .why = TALK},
    {"chat_template_kwargs", PLAIN, EMPTY, .why = TALK},
    {"prompt", RESPONSES, NEVER, .why = "stored prompts are not supported; send instructions and input"},
    {"conversation", RESPONSES, NEVER,
     .why = "is not supported; continue an answer with previous_response_id"},
    {"background", RESPONSES, EMPTY, .why = "is not supported"},
    {"context_management", RESPONSES, EMPTY, .why = WHOLE},
    {"truncation", RESPONSES, ONE_OF, .words = "disabled", .why = WHOLE},
    {"max_tool_calls", RESPONSES, NEVER, .why = "is not supported: no tools run on this server; omit it"},
    {"personality", RESPONSES, NEVER, .why = UNSUPPORTED},
    {"reasoning.context", RESPONSES, ONE_OF, .words = "auto", .why = WHOLE},
    {"image.context_compression", RESPONSES, ONE_OF, .words = "auto|disabled", .why = UNSUPPORTED},
    {"reasoning.mode", RESPONSES, ONE_OF, .words = "standard", .why = UNSUPPORTED},
    /* Anthropic */
    {"mcp_servers", ANTHROPIC, EMPTY, .why = "MCP servers are not supported; pass their tools in tools"},
    {"container", ANTHROPIC, EMPTY, .why = "code execution is not supported"},
    {"compaction", ANTHROPIC, NEVER, .why = WHOLE},
    {"context_management", ANTHROPIC, KEEP_ALL, .why = WHOLE},
    {"inference_geo", ANTHROPIC, EMPTY, .why = "is not supported: this machine computes everything; omit it"},
    {"speed", ANTHROPIC, ONE_OF, .words = "standard", .why = "is not supported: there is one speed; omit it"},
    {"fallbacks", ANTHROPIC, EMPTY, .why = "is not supported: no other model answers instead; omit it"},
    {"output_config.task_budget", ANTHROPIC, NEVER, .why = "is not supported; set max_tokens"},
    {"thinking.block_binding.prefix_mismatch_behavior", ANTHROPIC, ONE_OF, .words = "error|drop_block",
     .why = "must be error or drop_block"},
    /* Ollama */
    {"template", OLLAMA, EMPTY, .why = "templates in requests are not supported"},
    {"width", OLLAMA, EMPTY, .why = NO_IMAGES},
    {"height", OLLAMA, EMPTY, .why = NO_IMAGES},
    {"steps", OLLAMA, EMPTY, .why = NO_IMAGES},
    {"_debug_render_only", OLLAMA, EMPTY, .why = "is not supported; use /apply-template"},
    {"truncate", OLLAMA, EMPTY, .why = WHOLE},
    {"shift", OLLAMA, EMPTY, .why = WHOLE},
    {"penalize_newline", OPTIONS | COMPLETION, IS_TRUE,
     .why = "is not supported; newlines are penalized as other tokens"},
    /* llama-server */
    {"n_indent", ALL, EMPTY, .why = UNSUPPORTED},
    {"t_max_predict_ms", ALL, AT_MOST, .number = 0,
     .why = "is not supported; set a limit of tokens, or cancel the answer"},
    {"t_max_prompt_ms", ALL, AT_MOST, .number = 0, .why = "is not supported; cancel the request"},
    {"tfs_z", ALL, NUMBER, .number = 1, .why = "is not supported; omit it or set it to 1"},
    {"adaptive_target", ALL, AT_MOST, .number = 0, .why = "is not supported; omit it or set it to -1"},
    {"min_keep", ALL, AT_MOST, .number = 1, .why = "is not supported; omit it"},
    {"grammar_lazy", ALL, EMPTY, .why = OWN_INTERNAL},
    {"grammar_triggers", ALL, EMPTY, .why = OWN_INTERNAL},
    {"preserved_tokens", ALL, EMPTY, .why = OWN_INTERNAL},
    {"chat_format", ALL, EMPTY, .why = OWN_INTERNAL},
    {"chat_parser", ALL, EMPTY, .why = OWN_INTERNAL},
    {"generation_prompt", ALL, EMPTY, .why = OWN_INTERNAL},
    {"reasoning_budget_start_tag", ALL, EMPTY, .why = OWN_INTERNAL},
    {"reasoning_budget_end_tags", ALL, EMPTY, .why = OWN_INTERNAL},
    {"reasoning_budget_message", ALL, EMPTY, .why = UNSUPPORTED},
    {"parse_tool_calls", ALL, IS_TRUE, .why = "is not supported; set tool_choice to none"},
    {"input_extra", PLAIN, EMPTY, .why = UNSUPPORTED},
    {"image_data", PLAIN, EMPTY, .why = "image input is not supported"},
    /* vLLM */
    {"min_tokens", ALL, EMPTY, .why = UNSUPPORTED},
    {"stop_token_ids", ALL, EMPTY, .why = "is not supported; name the strings in stop"},
    {"bad_words", ALL, EMPTY, .why = "is not supported; use logit_bias"},
    {"allowed_token_ids", ALL, EMPTY, .why = "is not supported; use a grammar"},
    {"include_stop_str_in_output", ALL, EMPTY, .why = UNSUPPORTED},
    {"truncate_prompt_tokens", ALL, NEVER, .why = WHOLE},
    {"prompt_logprobs", ALL, NEVER, .why = UNSUPPORTED},
    {"length_penalty", ALL, NUMBER, .number = 1, .why = UNSUPPORTED},
    {"early_stopping", ALL, EMPTY, .why = UNSUPPORTED},
    {"documents", CHAT, EMPTY, .why = "is not supported; put their texts into messages"},
};

static bool is_one_of(const char *word, const char *words)
{
    const size_t length = strlen(word);
    while (*words) {
        const size_t next = strcspn(words, "|");
        if (next == length && strncmp(words, word, length) == 0) {
            return true;
        }
        words += next + (words[next] == '|');
    }
    return false;
}

static bool words_are(const json_t *value, const char *words)
{
    if (!json_is_array(value)) {
        return json_is_string(value) && is_one_of(json_string_value(value), words);
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *word = json_array_get(value, i);
        if (!json_is_string(word) || !is_one_of(json_string_value(word), words)) {
            return false;
        }
    }
    return true;
}

static bool is_empty(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_FALSE: return true;
    case JSON_INTEGER:
    case JSON_REAL: return json_number_value(value) == 0;
    case JSON_STRING: return json_string_length(value) == 0;
    case JSON_OBJECT: return json_object_size(value) == 0;
    case JSON_ARRAY: return json_array_size(value) == 0;
    default: return false;
    }
}

/* {"edits":[{"type":"clear_thinking_...","keep":"all"}]}, as an agent sends it in every request. */
static bool keeps_all(const json_t *value)
{
    static const char clearing[] = "clear_thinking_";
    const json_t *edits = json_object_get(value, "edits");
    if (!json_is_object(value) || (edits && !json_is_null(edits) && !json_is_array(edits))) {
        return false;
    }
    for (size_t i = 0; i < json_array_size(edits); i++) {
        const json_t *edit = json_array_get(edits, i);
        const char *type = json_string_value(json_object_get(edit, "type"));
        const char *keep = json_string_value(json_object_get(edit, "keep"));
        if (!type || strncmp(type, clearing, sizeof clearing - 1) != 0 || !keep || strcmp(keep, "all") != 0) {
            return false;
        }
    }
    return true;
}

static bool says_nothing(const json_t *value, const unserved *u)
{
    switch (u->kind) {
    case EMPTY: return is_empty(value);
    case NUMBER: return json_is_number(value) && json_number_value(value) == u->number;
    case AT_MOST: return json_is_number(value) && json_number_value(value) <= u->number;
    case IS_TRUE: return json_is_true(value);
    case ONE_OF: return words_are(value, u->words);
    case KEEP_ALL: return keeps_all(value);
    default: return false;
    }
}

enum { DEPTH = 3 };

static bool check(const srv_field *object, const unserved *u)
{
    char names[DEPTH][48];
    srv_field at[DEPTH];
    const srv_field *in = object;
    const char *path = u->path;
    for (int i = 0; i < DEPTH && in->value; i++) {
        const size_t length = strcspn(path, ".");
        snprintf(names[i], sizeof names[i], "%.*s", (int)length, path);
        at[i] = srv_member(in, names[i]);
        in = &at[i];
        path += length + (path[length] == '.');
        if (!*path) {
            break;
        }
    }
    return !in->value || *path || says_nothing(in->value, u) || srv_wrong(in, "%s", u->why);
}

/* ---- What is known ----------------------------------------------------------------------------- */

/* Names that are read, or that change no text, with spaces between them. Those of unserved_fields are known too. */
static const struct {
    int dialects;
    const char *names;
} known_names[] = {
    {ALL, "model stream keep_alive"},
    {DIRECT | OPTIONS, "temperature top_p min_p top_k frequency_penalty presence_penalty repeat_penalty "
                       "repetition_penalty repeat_last_n seed top_n_sigma "
                       "typical_p typ_p xtc_probability xtc_threshold dynatemp_range dynatemp_exponent "
                       "mirostat mirostat_tau mirostat_eta dry_multiplier "
                       "dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers samplers "
                       "adaptive_decay lora max_completion_tokens max_tokens "
                       "max_output_tokens n_predict num_predict stop stop_sequences ignore_eos logit_bias "
                       "stream_options sse_ping_interval n n_cmpl "
                       "cache_prompt id_slot return_tokens timings_per_token return_progress trace "
                       "backend_sampling prediction"},
    {DIRECT | OPTIONS | OLLAMA, "logprobs top_logprobs n_probs post_sampling_probs thinking reasoning "
                                "enable_thinking think reasoning_effort reasoning_format "
                                "reasoning_budget_tokens thinking_budget_tokens thinking_budget "
                                "chat_template_kwargs reasoning_control response_format json_schema "
                                "grammar format text output_config output_format structured_outputs "
                                "guided_json guided_choice guided_grammar guided_regex"},
    {CHAT | ANTHROPIC | OLLAMA, "messages"},
    {TALKS | OLLAMA, "tools tool_choice parallel_tool_calls add_generation_prompt continue_final_message"},
    {PLAIN | OLLAMA, "prompt"},
    /* These change no text: who asks, what it costs, how caches are kept, what is stored. */
    {DIRECT, "user metadata service_tier safety_identifier prompt_cache_key prompt_cache_retention "
             "prompt_cache_options store"},
    {CHAT, "functions"},
    {RESPONSES, "input instructions include previous_response_id client_metadata access_programs image"},
    {ANTHROPIC, "system thread cache_control diagnostics billing_policy fallback_credit_token "
                "user_profile_id workspace_id betas "
                "anthropic_version"},
    {OLLAMA, "system context raw options images"},
    /* How a model runs is decided when it is loaded. */
    {OPTIONS, "num_ctx num_keep num_batch num_gpu main_gpu num_thread numa low_vram f16_kv logits_all "
              "vocab_only use_mmap use_mlock "
              "embedding_only draft_num_predict"},
    {COMPLETION | TEXT | CHAT,
     "response_fields verbose n_keep n_discard n_cache_reuse speculative.n_max speculative.n_min "
     "speculative.p_min speculative.type speculative.ngram_size_n speculative.ngram_size_m "
     "speculative.ngram_min_hits"},
    {DIRECT,
     "skip_special_tokens spaces_between_special_tokens add_special_tokens priority request_id cache_salt"},
};

static bool is_known(const char *name, int dialect)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof known_names / sizeof *known_names; i++) {
        const char *at = known_names[i].dialects & dialect ? known_names[i].names : "";
        while (*at) {
            const size_t next = strcspn(at, " ");
            if (next == length && memcmp(at, name, length) == 0) {
                return true;
            }
            at += next + (at[next] == ' ');
        }
    }
    for (size_t i = 0; i < sizeof unserved_fields / sizeof *unserved_fields; i++) {
        if (unserved_fields[i].dialects & dialect && strcmp(unserved_fields[i].path, name) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- Both --------------------------------------------------------------------------------------- */

bool srv_known_fields_check(const srv_field *object, srv_dialect dialect, bool options)
{
    const int bit = options ? OPTIONS : 1 << dialect;
    for (size_t i = 0; i < sizeof unserved_fields / sizeof *unserved_fields; i++) {
        if (unserved_fields[i].dialects & bit && !check(object, &unserved_fields[i])) {
            return false;
        }
    }
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object->value, name, value)
    {
        if (!json_is_null(value) && !is_known(name, bit)) {
            srv_unknown_field_log(options ? "options" : "", name);
        } else if (!options) {
            srv_unknown_members_log(name, value, dialect);
        }
    }
    return true;
}
