/* Style: the table of marks, and who is who. */
#include "dialogue/style.h"

#include <string.h>

#define BAR  "\xEF\xBD\x9C" /* U+FF5C, in DeepSeek's tokens */
#define MARK "\xE2\x96\x81" /* U+2581 */

/* ---- Calls ---- */

static const mo_mark hermes_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<tool_call>"},
    {MO_ROLE_SECTION_CLOSE, "</tool_call>"},
    {MO_ROLE_CALL_OPEN, "<function="},
    {MO_ROLE_NAME_CLOSE, ">"},
    {MO_ROLE_KEY_OPEN, "<parameter="},
    {MO_ROLE_KEY_CLOSE, ">"},
    {MO_ROLE_VALUE_CLOSE, "</parameter>"},
    {MO_ROLE_CALL_CLOSE, "</function>"},
    {MO_ROLE_FENCE, "```json\n"},
    {MO_ROLE_FENCE, "```\n"},
    {0, NULL},
};

static const mo_mark seed_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<seed:tool_call>"},
    {MO_ROLE_SECTION_CLOSE, "</seed:tool_call>"},
    {MO_ROLE_CALL_OPEN, "<function="},
    {MO_ROLE_NAME_CLOSE, ">"},
    {MO_ROLE_KEY_OPEN, "<parameter="},
    {MO_ROLE_KEY_CLOSE, ">"},
    {MO_ROLE_VALUE_CLOSE, "</parameter>"},
    {MO_ROLE_CALL_CLOSE, "</function>"},
    {0, NULL},
};

static const mo_mark harmony_marks[] = {
    {MO_ROLE_START, "<|start|>"},
    {MO_ROLE_CHANNEL, "<|channel|>"},
    {MO_ROLE_CONSTRAIN, "<|constrain|>"},
    {MO_ROLE_MESSAGE, "<|message|>"},
    {MO_ROLE_END, "<|end|>"},
    {MO_ROLE_END, "<|call|>"},
    {MO_ROLE_END, "<|return|>"},
    {0, NULL},
};

static const mo_mark glm_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<tool_call>"},
    {MO_ROLE_SECTION_CLOSE, "</tool_call>"},
    {MO_ROLE_NAME_CLOSE, "\n"},
    {MO_ROLE_KEY_OPEN, "<arg_key>"},
    {MO_ROLE_KEY_CLOSE, "</arg_key>"},
    {MO_ROLE_VALUE_OPEN, "<arg_value>"},
    {MO_ROLE_VALUE_CLOSE, "</arg_value>"},
    {0, NULL},
};

/* Distilled models write the marks in several spellings. */
static const mo_mark deepseek_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<" BAR "tool" MARK "calls" MARK "begin" BAR ">"},
    {MO_ROLE_SECTION_OPEN, "<" BAR "tool_calls_begin" BAR ">"},
    {MO_ROLE_SECTION_OPEN, "<" BAR "tool calls begin" BAR ">"},
    {MO_ROLE_SECTION_OPEN, "<" BAR "tool\\_calls\\_begin" BAR ">"},
    {MO_ROLE_SECTION_OPEN, "<" BAR "tool" MARK "calls" BAR ">"},
    {MO_ROLE_SECTION_CLOSE, "<" BAR "tool" MARK "calls" MARK "end" BAR ">"},
    {MO_ROLE_SECTION_CLOSE, "<" BAR "tool_calls_end" BAR ">"},
    {MO_ROLE_SECTION_CLOSE, "<" BAR "tool calls end" BAR ">"},
    {MO_ROLE_SECTION_CLOSE, "<" BAR "tool\\_calls\\_end" BAR ">"},
    {MO_ROLE_SECTION_CLOSE, "</" BAR "tool" MARK "calls" BAR ">"},
    {MO_ROLE_CALL_OPEN, "<" BAR "tool" MARK "call" MARK "begin" BAR ">"},
    {MO_ROLE_CALL_OPEN, "<" BAR "tool_call_begin" BAR ">"},
    {MO_ROLE_CALL_OPEN, "<" BAR "tool call begin" BAR ">"},
    {MO_ROLE_CALL_OPEN, "<" BAR "tool\\_call\\_begin" BAR ">"},
    {MO_ROLE_CALL_CLOSE, "<" BAR "tool" MARK "call" MARK "end" BAR ">"},
    {MO_ROLE_CALL_CLOSE, "<" BAR "tool_call_end" BAR ">"},
    {MO_ROLE_CALL_CLOSE, "<" BAR "tool call end" BAR ">"},
    {MO_ROLE_CALL_CLOSE, "<" BAR "tool\\_call\\_end" BAR ">"},
    {MO_ROLE_NAME_CLOSE, "<" BAR "tool" MARK "sep" BAR ">"},
    {MO_ROLE_NAME_CLOSE, "<" BAR "tool_sep" BAR ">"},
    {MO_ROLE_NAME_CLOSE, "<" BAR "tool sep" BAR ">"},
    {MO_ROLE_NAME_CLOSE, "<" BAR "tool\\_sep" BAR ">"},
    {MO_ROLE_FENCE, "```json\n"},
    {MO_ROLE_FENCE, "```\n"},
    {0, NULL},
};

#define DSML     "<" BAR "DSML" BAR
#define DSML_END "</" BAR "DSML" BAR
/* What is read may be V3.2's or V4's; what is written is the first: V3.2 begins behind V4's own. */
static const mo_mark dsml4_marks[] = {
    {MO_ROLE_SECTION_OPEN, DSML "tool_calls>"},
    {MO_ROLE_SECTION_CLOSE, DSML_END "tool_calls>"},
    {MO_ROLE_SECTION_OPEN, DSML "function_calls>"},
    {MO_ROLE_SECTION_CLOSE, DSML_END "function_calls>"},
    {MO_ROLE_SECTION_OPEN, DSML "tool_calls>"},
    {MO_ROLE_SECTION_CLOSE, DSML_END "tool_calls>"},
    {MO_ROLE_CALL_OPEN, DSML "invoke name=\""},
    {MO_ROLE_NAME_CLOSE, "\">"},
    {MO_ROLE_KEY_OPEN, DSML "parameter name=\""},
    {MO_ROLE_KEY_CLOSE_TEXT, "\" string=\"true\">"},
    {MO_ROLE_KEY_CLOSE_JSON, "\" string=\"false\">"},
    {MO_ROLE_KEY_CLOSE, "\">"},
    {MO_ROLE_VALUE_CLOSE, DSML_END "parameter>"},
    {MO_ROLE_CALL_CLOSE, DSML_END "invoke>"},
    {0, NULL},
};

static const mo_mark llama3_marks[] = {
    {MO_ROLE_PYTHON, "<|python_tag|>"},
    {MO_ROLE_CALL_OPEN, "<function="},
    {MO_ROLE_NAME_CLOSE, ">"},
    {MO_ROLE_CALL_CLOSE, "</function>"},
    {MO_ROLE_FENCE, "```json\n"},
    {MO_ROLE_FENCE, "```\n"},
    {0, NULL},
};

static const mo_mark gemma4_marks[] = {
    {MO_ROLE_CALL_OPEN, "<|tool_call>"},
    {MO_ROLE_NAME_CLOSE, "{"},
    {MO_ROLE_QUOTE, "<|\"|>"},
    {MO_ROLE_CALL_CLOSE, "<tool_call|>"},
    {0, NULL},
};

static const mo_mark minimax_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<minimax:tool_call>"},
    {MO_ROLE_SECTION_CLOSE, "</minimax:tool_call>"},
    {MO_ROLE_CALL_OPEN, "<invoke name=\""},
    {MO_ROLE_NAME_CLOSE, "\">"},
    {MO_ROLE_KEY_OPEN, "<parameter name=\""},
    {MO_ROLE_KEY_CLOSE, "\">"},
    {MO_ROLE_VALUE_CLOSE, "</parameter>"},
    {MO_ROLE_CALL_CLOSE, "</invoke>"},
    {0, NULL},
};

#define HY ":opensource>"
static const mo_mark hy_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<tool_calls" HY}, {MO_ROLE_SECTION_CLOSE, "</tool_calls" HY},
    {MO_ROLE_CALL_OPEN, "<tool_call" HY},     {MO_ROLE_NAME_CLOSE, "<tool_sep" HY},
    {MO_ROLE_KEY_OPEN, "<arg_key" HY},        {MO_ROLE_KEY_CLOSE, "</arg_key" HY},
    {MO_ROLE_VALUE_OPEN, "<arg_value" HY},    {MO_ROLE_VALUE_CLOSE, "</arg_value" HY},
    {MO_ROLE_CALL_CLOSE, "</tool_call" HY},   {0, NULL},
};

static const mo_mark cohere_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<|START_ACTION|>"},
    {MO_ROLE_SECTION_CLOSE, "<|END_ACTION|>"},
    {0, NULL},
};

static const mo_mark kimi_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<|tool_calls_section_begin|>"},
    {MO_ROLE_SECTION_CLOSE, "<|tool_calls_section_end|>"},
    {MO_ROLE_CALL_OPEN, "<|tool_call_begin|>"},
    {MO_ROLE_NAME_CLOSE, "<|tool_call_argument_begin|>"},
    {MO_ROLE_CALL_CLOSE, "<|tool_call_end|>"},
    {0, NULL},
};

static const mo_mark mistral_marks[] = {
    {MO_ROLE_SECTION_OPEN, "[TOOL_CALLS]"},
    {MO_ROLE_ID_OPEN, "[CALL_ID]"},
    {MO_ROLE_NAME_CLOSE, "[ARGS]"},
    {0, NULL},
};

static const mo_mark granite_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<|tool_call|>"},
    {MO_ROLE_SECTION_OPEN, "<tool_call>"},
    {MO_ROLE_SECTION_CLOSE, "</tool_call>"},
    {0, NULL},
};

static const mo_mark jamba_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<tool_calls>"},
    {MO_ROLE_SECTION_CLOSE, "</tool_calls>"},
    {0, NULL},
};

static const mo_mark lfm2_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<|tool_call_start|>"},
    {MO_ROLE_SECTION_CLOSE, "<|tool_call_end|>"},
    {0, NULL},
};

/* Its vocabulary has the marks; without being shown any it writes the word that it was trained with before. */
static const mo_mark phi4_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<|tool_call|>"},
    {MO_ROLE_SECTION_OPEN, "functools"},
    {MO_ROLE_SECTION_CLOSE, "<|/tool_call|>"},
    {0, NULL},
};

static const mo_mark generic_marks[] = {
    {MO_ROLE_SECTION_OPEN, "<tool_call>"},
    {MO_ROLE_SECTION_CLOSE, "</tool_call>"},
    {MO_ROLE_FENCE, "```json\n"},
    {MO_ROLE_FENCE, "```\n"},
    {0, NULL},
};

static const mo_style styles[MO_STYLES] = {
    [MO_STYLE_HERMES] = {"hermes", hermes_marks, .objects = true, .bare = true, .trims_values = true},
    [MO_STYLE_CODER] = {"qwen3-coder", hermes_marks, .objects = true, .trims_values = true},
    [MO_STYLE_SEED] = {"seed", seed_marks, .objects = true, .trims_values = true},
    [MO_STYLE_HARMONY] = {"harmony", harmony_marks},
    [MO_STYLE_GLM] = {"glm", glm_marks, .objects = true, .bare_name = true},
    [MO_STYLE_DEEPSEEK3] = {"deepseek-v3", deepseek_marks},
    [MO_STYLE_DEEPSEEK31] = {"deepseek-v3.1", deepseek_marks},
    [MO_STYLE_DSML] = {"dsml", dsml4_marks + 2},
    [MO_STYLE_DSML4] = {"dsml4", dsml4_marks},
    [MO_STYLE_LLAMA3] = {"llama3", llama3_marks, .bare = true},
    [MO_STYLE_GEMMA4] = {"gemma4", gemma4_marks},
    [MO_STYLE_MINIMAX] = {"minimax", minimax_marks},
    [MO_STYLE_HY] = {"hy", hy_marks},
    [MO_STYLE_COHERE] = {"cohere", cohere_marks, .objects = true},
    [MO_STYLE_KIMI] = {"kimi", kimi_marks, .ids = MO_CALL_ID_KIMI},
    [MO_STYLE_MISTRAL] = {"mistral", mistral_marks, .objects = true, .bare_name = true,
                          .ids = MO_CALL_ID_NINE},
    [MO_STYLE_MISTRAL3] = {"mistral3", mistral_marks, .objects = true, .bare_name = true,
                           .ids = MO_CALL_ID_NINE},
    [MO_STYLE_GRANITE] = {"granite", granite_marks, .objects = true},
    [MO_STYLE_JAMBA] = {"jamba", jamba_marks, .objects = true},
    [MO_STYLE_LFM2] = {"lfm2", lfm2_marks, .objects = true, .python = true},
    [MO_STYLE_PHI4] = {"phi4", phi4_marks, .objects = true},
    [MO_STYLE_GENERIC] = {"generic", generic_marks, .objects = true, .bare = true},
};

const mo_style *mo_style_get(mo_style_id id)
{
    return &styles[id];
}

const char *mo_style_mark(const mo_style *f, mo_role role)
{
    for (const mo_mark *m = f->marks; m->text; m++) {
        if (m->role == role) {
            return m->text;
        }
    }
    return NULL;
}

/* ---- Thoughts ---- */

static const mo_thought thoughts[] = {
    {.open = "<|channel>", .close = "<channel|>", .named = true}, /* Gemma 4 */
    {.open = "<seed:think>", .close = "</seed:think>"},
    {.open = "<think" HY, .close = "</think" HY},
    {.open = "<|START_THINKING|>",
     .close = "<|END_THINKING|>",
     .around = {"<|START_TEXT|>", "<|END_TEXT|>"}},                                    /* Cohere */
    {.open = "[THINK]", .close = "[/THINK]"},                                          /* Mistral */
    {.open = "<think>", .close = "</think>", .around = {"<response>", "</response>"}}, /* Granite */
    {.open = "<think>", .close = "</think>", .around = {"<answer>", "</answer>"}},     /* Hunyuan */
    {.open = "<think>", .close = "</think>"},
};

static bool has(const char *text, const char *mark)
{
    return strstr(text, mark) != NULL;
}

static bool known(const mo_tokenizer *t, const char *token)
{
    return t && mo_token_find(t, token) >= 0;
}

static const mo_thought *thought_of(const char *template_text, const mo_tokenizer *t)
{
    for (size_t i = 0; i < sizeof thoughts / sizeof *thoughts; i++) {
        const mo_thought *h = &thoughts[i];
        const bool named = has(template_text, h->close) || known(t, h->close);
        if (named && (!h->around[0] || has(template_text, h->around[0]))) {
            return h;
        }
    }
    return NULL;
}

/* ---- Who is who ---- */

/* The first row of which the template has all marks. */
static const struct {
    mo_style_id id;
    const char *marks[2];
} by_template[] = {
    {MO_STYLE_HARMONY, {"<|channel|>", "<|message|>"}},
    {MO_STYLE_GEMMA4, {"<|tool_call>", NULL}},
    {MO_STYLE_DSML, {BAR "DSML" BAR, "function_calls>"}},
    {MO_STYLE_DSML4, {BAR "DSML" BAR, "tool_calls>"}},
    {MO_STYLE_DSML, {BAR "DSML" BAR, NULL}},
    {MO_STYLE_KIMI, {"<|tool_calls_section_begin|>", NULL}},
    {MO_STYLE_MINIMAX, {"<minimax:tool_call>", NULL}},
    {MO_STYLE_SEED, {"<seed:tool_call>", NULL}},
    {MO_STYLE_HY, {"<tool_sep" HY, NULL}},
    {MO_STYLE_COHERE, {"<|START_ACTION|>", NULL}},
    {MO_STYLE_DEEPSEEK3, {"tool" MARK "calls" MARK "begin", "```json"}},
    {MO_STYLE_DEEPSEEK31, {"tool" MARK "calls" MARK "begin", NULL}},
    {MO_STYLE_MISTRAL3, {"[TOOL_CALLS]", "[ARGS]"}},
    {MO_STYLE_MISTRAL, {"[TOOL_CALLS]", NULL}},
    {MO_STYLE_GLM, {"<arg_key>", NULL}},
    {MO_STYLE_CODER, {"<function=", "<parameter="}},
    {MO_STYLE_JAMBA, {"<tool_calls>", NULL}},
    {MO_STYLE_LFM2, {"<|tool_list_start|>", NULL}},
    {MO_STYLE_LFM2, {"<|tool_call_start|>", NULL}},
    {MO_STYLE_HERMES, {"<tool_call>", NULL}},
    {MO_STYLE_PHI4, {"<|tool|>", "<|/tool|>"}},
    {MO_STYLE_GRANITE, {"<|tool_call|>", NULL}},
    {MO_STYLE_LLAMA3, {"<|python_tag|>", NULL}},
};

mo_dialogue mo_dialogue_detect(const char *template_text, bool shows_tools, const mo_tokenizer *t)
{
    mo_dialogue d = {
        .id = MO_STYLE_GENERIC, .thought = thought_of(template_text, t), .shows_tools = shows_tools};
    for (size_t i = 0; i < sizeof by_template / sizeof *by_template; i++) {
        const char *const *marks = by_template[i].marks;
        if (has(template_text, marks[0]) && (!marks[1] || has(template_text, marks[1]))) {
            d.id = by_template[i].id;
            break;
        }
    }
    if (d.id == MO_STYLE_GENERIC && shows_tools && has(template_text, "<|start_header_id|>")) {
        d.id = MO_STYLE_LLAMA3;
    }
    /* Harmony's channels matter for thoughts too: also for a file without a template. Its formats of old show no tools. */
    if (d.id == MO_STYLE_GENERIC && known(t, "<|channel|>") && known(t, "<|message|>")) {
        d.id = MO_STYLE_HARMONY;
    }
    if (d.id == MO_STYLE_HARMONY) {
        d.thought = NULL;
    }
    d.style = &styles[d.id];
    return d;
}

/* Does the text end with the mark, but for white space? */
static bool ends_with(const char *text, size_t length, const char *mark)
{
    const size_t n = strlen(mark);
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' ')) {
        length--;
    }
    return length >= n && !memcmp(text + length - n, mark, n);
}

bool mo_dialogue_in_thought(const mo_dialogue *d, const char *prompt, size_t length)
{
    if (d->id == MO_STYLE_HARMONY) {
        return ends_with(prompt, length, "<|channel|>analysis<|message|>");
    }
    return d->thought && (ends_with(prompt, length, d->thought->open) ||
                          (d->thought->named && ends_with(prompt, length, "<|channel>thought")));
}
