/* Chat: recognizing formats, and writing conversations in them. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "text/turns.h"

#define BAR  "\xEF\xBD\x9C" /* U+FF5C, in DeepSeek's tokens */
#define MARK "\xE2\x96\x81" /* U+2581 */

#define DEEPSEEK_BEGIN     "<" BAR "begin" MARK "of" MARK "sentence" BAR ">"
#define DEEPSEEK_END       "<" BAR "end" MARK "of" MARK "sentence" BAR ">"
#define DEEPSEEK_USER      "<" BAR "User" BAR ">"
#define DEEPSEEK_ASSISTANT "<" BAR "Assistant" BAR ">"

/* ---- Recognizing ---- */

const char *mo_chat_format_name(mo_chat_format format)
{
    switch (format) {
    case MO_CHAT_NONE: return "none";
    case MO_CHAT_CHATML: return "chatml";
    case MO_CHAT_QWEN3: return "qwen3";
    case MO_CHAT_QWEN3_ON: return "qwen3-thinking";
    case MO_CHAT_QWEN35: return "qwen3.5";
    case MO_CHAT_LLAMA3: return "llama3";
    case MO_CHAT_LLAMA31: return "llama3.1";
    case MO_CHAT_MIXTRAL: return "mixtral";
    case MO_CHAT_GEMMA: return "gemma";
    case MO_CHAT_GEMMA4: return "gemma4";
    case MO_CHAT_GLM45: return "glm4.5";
    case MO_CHAT_GLM47: return "glm4.7";
    case MO_CHAT_DEEPSEEK3: return "deepseek3";
    case MO_CHAT_DEEPSEEK_R1: return "deepseek-r1";
    case MO_CHAT_HARMONY: return "harmony";
    case MO_CHAT_MINIMAX: return "minimax-m2";
    case MO_CHAT_GRANITE: return "granite";
    case MO_CHAT_DOTS: return "dots1";
    case MO_CHAT_KIMI: return "kimi";
    case MO_CHAT_LING: return "ling";
    case MO_CHAT_HUNYUAN: return "hunyuan";
    case MO_CHAT_HUNYUAN_DENSE: return "hunyuan-dense";
    case MO_CHAT_GLM4: return "glm4";
    case MO_CHAT_ERNIE: return "ernie";
    case MO_CHAT_PHI3: return "phi3";
    case MO_CHAT_JAMBA: return "jamba";
    }
    return "none";
}

static bool has(const char *text, const char *mark)
{
    return strstr(text, mark) != NULL;
}

/* What the template writes for the assistant to begin: the part after the last question for it. */
static const char *prompt_part(const char *template)
{
    const char *part = "";
    for (const char *p = template; (p = strstr(p, "add_generation_prompt")) != NULL; p++) {
        part = p;
    }
    return part;
}

static mo_chat_format chatml_of(const char *template)
{
    const char *part = prompt_part(template);
    const bool off = has(part, "<think>\\n\\n</think>"); /* templates write newlines as two characters */
    bool on = false;
    for (const char *p = part; (p = strstr(p, "<think>\\n")) != NULL && !on; p++) {
        on = strncmp(p, "<think>\\n\\n</think>", 18) != 0;
    }
    return on && off ? MO_CHAT_QWEN35 : off ? MO_CHAT_QWEN3 : on ? MO_CHAT_QWEN3_ON : MO_CHAT_CHATML;
}

static mo_chat_format by_template(const char *t)
{
    if (has(t, "<|start|>") && has(t, "<|channel|>")) {
        return MO_CHAT_HARMONY;
    }
    if (has(t, "<|im_start|>")) {
        return chatml_of(t);
    }
    if (has(t, "<|start_header_id|>")) {
        return has(t, "Cutting Knowledge Date") ? MO_CHAT_LLAMA31 : MO_CHAT_LLAMA3;
    }
    if (has(t, "<|turn>")) {
        return MO_CHAT_GEMMA4;
    }
    if (has(t, "<start_of_turn>")) {
        return MO_CHAT_GEMMA;
    }
    if (has(t, "[gMASK]") && has(t, "think>")) {
        return has(prompt_part(t), "'</think>'") ? MO_CHAT_GLM47 : MO_CHAT_GLM45;
    }
    if (has(t, DEEPSEEK_ASSISTANT)) {
        return has(prompt_part(t), "<think>") ? MO_CHAT_DEEPSEEK_R1 : MO_CHAT_DEEPSEEK3;
    }
    for (int i = 0; mo_turns_at(i); i++) {
        const char *const *mark = mo_turns_at(i)->mark;
        if (has(t, mark[0]) && (!mark[1] || has(t, mark[1]))) {
            return mo_turns_at(i)->format;
        }
    }
    return has(t, "[INST]") ? MO_CHAT_MIXTRAL : MO_CHAT_NONE;
}

static bool known(const mo_tokenizer *t, const char *token)
{
    return t && mo_token_find(t, token) >= 0;
}

static mo_chat_format by_tokens(const mo_tokenizer *t, const char *architecture)
{
    if (known(t, "<|start|>") && known(t, "<|channel|>") && known(t, "<|message|>")) {
        return MO_CHAT_HARMONY;
    }
    if (known(t, "<|im_start|>")) {
        const bool thinks = known(t, "<think>");
        return thinks && !strncmp(architecture, "qwen35", 6) ? MO_CHAT_QWEN35
               : thinks && (!strcmp(architecture, "qwen3") || !strcmp(architecture, "qwen3moe"))
                   ? MO_CHAT_QWEN3
                   : MO_CHAT_CHATML;
    }
    if (known(t, "<|start_header_id|>")) {
        return MO_CHAT_LLAMA3;
    }
    if (known(t, "<|turn>")) {
        return MO_CHAT_GEMMA4;
    }
    if (known(t, "<start_of_turn>")) {
        return MO_CHAT_GEMMA;
    }
    if (known(t, "[gMASK]") && known(t, "<|assistant|>") && strcmp(architecture, "glm4") != 0) {
        return !strcmp(architecture, "deepseek2") ? MO_CHAT_GLM47 : MO_CHAT_GLM45;
    }
    if (known(t, DEEPSEEK_ASSISTANT)) {
        return MO_CHAT_DEEPSEEK3;
    }
    for (int i = 0; mo_turns_at(i); i++) {
        const char *const *mark = mo_turns_at(i)->mark;
        if (known(t, mark[0]) && (!mark[1] || known(t, mark[1]))) {
            return mo_turns_at(i)->format;
        }
    }
    return known(t, "[INST]") ? MO_CHAT_MIXTRAL : MO_CHAT_NONE;
}

/* The architectures that have one format only. A vocabulary without any mark of it is a base model's, so
 * this counts for models without a vocabulary alone. */
static mo_chat_format by_architecture(const char *architecture)
{
    static const struct {
        const char *name;
        mo_chat_format format;
    } table[] = {
        {"gpt-oss", MO_CHAT_HARMONY},
        {"gemma4", MO_CHAT_GEMMA4},
        {"gemma", MO_CHAT_GEMMA},
        {"gemma2", MO_CHAT_GEMMA},
        {"gemma3", MO_CHAT_GEMMA},
        {"glm4moe", MO_CHAT_GLM45},
        {"qwen2moe", MO_CHAT_CHATML},
        {"qwen3", MO_CHAT_QWEN3},
        {"qwen3moe", MO_CHAT_QWEN3},
        {"qwen3next", MO_CHAT_CHATML},
        {"qwen35", MO_CHAT_QWEN35},
        {"qwen35moe", MO_CHAT_QWEN35},
        {"lfm2", MO_CHAT_CHATML},
        {"lfm2moe", MO_CHAT_CHATML},
        {"deepseek2", MO_CHAT_DEEPSEEK3},
        {"qwen2", MO_CHAT_CHATML},
        {"minimax-m2", MO_CHAT_MINIMAX},
        {"granite", MO_CHAT_GRANITE},
        {"dots1", MO_CHAT_DOTS},
        {"granitemoe", MO_CHAT_GRANITE},
        {"granitehybrid", MO_CHAT_GRANITE},
        {"bailingmoe2", MO_CHAT_LING},
        {"glm4", MO_CHAT_GLM4},
        {"hunyuan-moe", MO_CHAT_HUNYUAN},
        {"ernie4_5", MO_CHAT_ERNIE},
        {"phimoe", MO_CHAT_PHI3},
        {"ernie4_5-moe", MO_CHAT_ERNIE},
        {"phi3", MO_CHAT_PHI3},
        {"jamba", MO_CHAT_JAMBA},
        {"hunyuan-dense", MO_CHAT_HUNYUAN_DENSE},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!strcmp(table[i].name, architecture)) {
            return table[i].format;
        }
    }
    return MO_CHAT_NONE;
}

mo_chat_format mo_chat_detect(const mo_gguf *g, const mo_tokenizer *t)
{
    const char *template = "", *architecture = "";
    (void)mo_gguf_string_or(g, "tokenizer.chat_template", "", &template, NULL);
    (void)mo_gguf_string_or(g, "general.architecture", "", &architecture, NULL);
    mo_chat_format format = by_template(template);
    if (format == MO_CHAT_NONE) {
        format = t ? by_tokens(t, architecture) : by_architecture(architecture);
    }
    return format;
}

/* ---- Writing ---- */

typedef struct writer {
    char *text;
    uint8_t *input; /* for each byte: 1 where it is a message's */
    size_t length, capacity;
    bool failed; /* out of memory */
} writer;

static void put_marked(writer *w, const char *bytes, size_t n, bool input)
{
    if (w->failed) {
        return;
    }
    if (w->length + n + 1 > w->capacity) {
        const size_t capacity = 2 * (w->length + n + 256);
        char *text = realloc(w->text, capacity);
        if (!text) {
            w->failed = true;
            return;
        }
        w->text = text;
        uint8_t *marks = realloc(w->input, capacity);
        if (!marks) {
            w->failed = true;
            return;
        }
        w->input = marks;
        w->capacity = capacity;
    }
    memcpy(w->text + w->length, bytes, n);
    memset(w->input + w->length, input, n);
    w->length += n;
    w->text[w->length] = 0;
}

static void put_bytes(writer *w, const char *bytes, size_t n)
{
    put_marked(w, bytes, n, false);
}

static void put(writer *w, const char *text)
{
    put_bytes(w, text, strlen(text));
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static mo_text trimmed(mo_text t)
{
    for (; t.length > 0 && is_space(t.data[0]); t.data++, t.length--) {
    }
    for (; t.length > 0 && is_space(t.data[t.length - 1]); t.length--) {
    }
    return t;
}

static mo_text text_of(const char *content)
{
    return (mo_text){content, strlen(content)};
}

/* A message's, as put_content(). */
static void put_text(writer *w, mo_text t)
{
    put_marked(w, t.data, t.length, true);
}

static void put_content(writer *w, const char *content)
{
    put_text(w, text_of(content));
}

static void put_trimmed(writer *w, const char *content)
{
    put_text(w, trimmed(text_of(content)));
}

/* An answer without its thought: what follows the last </think>, less the newlines before it. */
static mo_text answer_of(const char *content)
{
    const char *answer = content;
    for (const char *p = content; (p = strstr(p, "</think>")) != NULL;) {
        p += strlen("</think>");
        answer = p;
    }
    if (answer != content) {
        while (*answer == '\n') {
            answer++;
        }
    }
    return text_of(answer);
}

typedef struct conversation {
    const mo_chat_message *messages;
    size_t count;
    const mo_chat_options *options;
    mo_chat_format format;
    bool thinking;
} conversation;

static const char *content_of(const mo_chat_message *m)
{
    return m->content ? m->content : "";
}

static const char *system_of(const conversation *c)
{
    return c->count > 0 && c->messages[0].role == MO_CHAT_SYSTEM ? content_of(&c->messages[0]) : NULL;
}

static const char *role_name(mo_chat_role role)
{
    return role == MO_CHAT_SYSTEM ? "system" : role == MO_CHAT_USER ? "user" : "assistant";
}

bool mo_chat_role_find(const char *name, mo_chat_role *out)
{
    for (mo_chat_role role = MO_CHAT_SYSTEM; role <= MO_CHAT_ASSISTANT; role++) {
        if (strcmp(name, role_name(role)) == 0) {
            *out = role;
            return true;
        }
    }
    return false;
}

/* ---- One function per family ---- */

static void chatml(writer *w, const conversation *c)
{
    const bool trim = c->format == MO_CHAT_QWEN35;
    for (size_t i = 0; i < c->count; i++) {
        const mo_chat_message *m = &c->messages[i];
        mo_text content = text_of(content_of(m));
        if (m->role == MO_CHAT_ASSISTANT && c->format != MO_CHAT_CHATML) {
            content = answer_of(content_of(m));
        }
        put(w, "<|im_start|>");
        put(w, role_name(m->role));
        put(w, "\n");
        put_text(w, trim ? trimmed(content) : content);
        put(w, "<|im_end|>\n");
    }
    if (c->options->no_prompt) {
        return;
    }
    put(w, "<|im_start|>assistant\n");
    if (c->format == MO_CHAT_QWEN3_ON || (c->format == MO_CHAT_QWEN35 && c->thinking)) {
        put(w, "<think>\n");
    } else if (c->format != MO_CHAT_CHATML && !c->thinking) {
        put(w, "<think>\n\n</think>\n\n");
    }
}

static void llama3_turn(writer *w, const char *role)
{
    put(w, "<|start_header_id|>");
    put(w, role);
    put(w, "<|end_header_id|>\n\n");
}

/* "2025-03-09" as "09 Mar 2025". The date was checked before. */
static void put_date(writer *w, const char *date)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const int month = (date[5] - '0') * 10 + date[6] - '0';
    put_bytes(w, date + 8, 2);
    put(w, " ");
    put_bytes(w, months + 3 * (month - 1), 3);
    put(w, " ");
    put_bytes(w, date, 4);
}

static void llama3(writer *w, const conversation *c)
{
    const char *system = system_of(c);
    put(w, "<|begin_of_text|>");
    if (system || c->format == MO_CHAT_LLAMA31) {
        llama3_turn(w, "system");
        if (c->format == MO_CHAT_LLAMA31) {
            put(w, "Cutting Knowledge Date: December 2023\nToday Date: ");
            if (c->options->date) {
                put_date(w, c->options->date);
            } else {
                put(w, "26 Jul 2024");
            }
            put(w, "\n\n");
        }
        put_trimmed(w, system ? system : "");
        put(w, "<|eot_id|>");
    }
    for (size_t i = system ? 1 : 0; i < c->count; i++) {
        llama3_turn(w, role_name(c->messages[i].role));
        put_trimmed(w, content_of(&c->messages[i]));
        put(w, "<|eot_id|>");
    }
    if (!c->options->no_prompt) {
        llama3_turn(w, "assistant");
    }
}

static void mixtral(writer *w, const conversation *c)
{
    const char *system = system_of(c);
    bool first = true;
    put(w, "<s>");
    for (size_t i = system ? 1 : 0; i < c->count; i++) {
        const mo_chat_message *m = &c->messages[i];
        if (m->role == MO_CHAT_ASSISTANT) {
            put(w, " ");
            put_content(w, content_of(m));
            put(w, "</s>");
            continue;
        }
        put(w, " [INST] ");
        if (first && system) {
            put_content(w, system);
            put(w, "\n\n");
        }
        first = false;
        put_content(w, content_of(m));
        put(w, " [/INST]");
    }
}

static void gemma(writer *w, const conversation *c)
{
    const char *system = system_of(c);
    put(w, "<bos>");
    for (size_t i = system ? 1 : 0; i < c->count; i++) {
        const mo_chat_message *m = &c->messages[i];
        put(w, "<start_of_turn>");
        put(w, m->role == MO_CHAT_ASSISTANT ? "model" : "user");
        put(w, "\n");
        if (system && i == 1) { /* no system turn in these: the text goes before the first user's */
            put_content(w, system);
            put(w, "\n\n");
        }
        put_trimmed(w, content_of(m));
        put(w, "<end_of_turn>\n");
    }
    if (!c->options->no_prompt) {
        put(w, "<start_of_turn>model\n");
    }
}

/* An answer without its thoughts, which are between <|channel> and <channel|>. */
static void put_gemma4_answer(writer *w, const char *content)
{
    const char *stop = content + strlen(content);
    char *kept = malloc((size_t)(stop - content) + 1);
    size_t n = 0;
    if (!kept) {
        w->failed = true;
        return;
    }
    for (const char *p = content; *p;) {
        const char *begin = strstr(p, "<|channel>"), *end = begin ? strstr(begin, "<channel|>") : NULL;
        const size_t before = (size_t)((begin ? begin : stop) - p);
        memcpy(kept + n, p, before);
        n += before;
        if (!end) {
            break;
        }
        p = end + strlen("<channel|>");
    }
    put_text(w, trimmed((mo_text){kept, n}));
    free(kept);
}

static void gemma4(writer *w, const conversation *c)
{
    const char *system = system_of(c);
    put(w, "<bos>");
    if (system || c->thinking) {
        put(w, "<|turn>system\n");
        put(w, c->thinking ? "<|think|>\n" : "");
        put_trimmed(w, system ? system : "");
        put(w, "<turn|>\n");
    }
    for (size_t i = system ? 1 : 0; i < c->count; i++) {
        const mo_chat_message *m = &c->messages[i];
        if (m->role == MO_CHAT_ASSISTANT) {
            put(w, "<|turn>model\n");
            put_gemma4_answer(w, content_of(m));
        } else {
            put(w, "<|turn>user\n");
            put_trimmed(w, content_of(m));
        }
        put(w, "<turn|>\n");
    }
    if (!c->options->no_prompt) {
        put(w, "<|turn>model\n");
        put(w, c->thinking ? "" : "<|channel>thought\n<channel|>");
    }
}

static void glm45(writer *w, const conversation *c)
{
    put(w, "[gMASK]<sop>");
    for (size_t i = 0; i < c->count; i++) {
        const mo_chat_message *m = &c->messages[i];
        if (m->role == MO_CHAT_ASSISTANT) {
            const mo_text answer = trimmed(answer_of(content_of(m)));
            put(w, "<|assistant|>\n<think></think>");
            put(w, answer.length ? "\n" : "");
            put_text(w, answer);
            continue;
        }
        put(w, m->role == MO_CHAT_USER ? "<|user|>\n" : "<|system|>\n");
        put_content(w, content_of(m));
        if (m->role == MO_CHAT_USER && !c->thinking) {
            put(w, "/nothink");
        }
    }
    if (!c->options->no_prompt) {
        put(w, c->thinking ? "<|assistant|>" : "<|assistant|>\n<think></think>");
    }
}

static void glm47(writer *w, const conversation *c)
{
    put(w, "[gMASK]<sop>");
    for (size_t i = 0; i < c->count; i++) {
        const mo_chat_message *m = &c->messages[i];
        if (m->role == MO_CHAT_ASSISTANT) {
            put(w, "<|assistant|></think>");
            put_text(w, trimmed(answer_of(content_of(m))));
        } else {
            put(w, m->role == MO_CHAT_USER ? "<|user|>" : "<|system|>");
            put_content(w, content_of(m));
        }
    }
    if (!c->options->no_prompt) {
        put(w, c->thinking ? "<|assistant|><think>" : "<|assistant|></think>");
    }
}

static void deepseek3(writer *w, const conversation *c)
{
    put(w, DEEPSEEK_BEGIN);
    for (size_t i = 0; i < c->count; i++) {
        const mo_chat_message *m = &c->messages[i];
        if (m->role == MO_CHAT_ASSISTANT) {
            put(w, DEEPSEEK_ASSISTANT);
            put_text(w, answer_of(content_of(m)));
            put(w, DEEPSEEK_END);
        } else {
            put(w, m->role == MO_CHAT_USER ? DEEPSEEK_USER : "");
            put_content(w, content_of(m));
        }
    }
    if (!c->options->no_prompt) {
        put(w, DEEPSEEK_ASSISTANT);
        put(w, c->format == MO_CHAT_DEEPSEEK_R1 ? "<think>\n" : "");
    }
}

/* Formats that are nothing but marks. Thoughts of earlier answers are left out. */
static void turns(writer *w, const conversation *c)
{
    const mo_turns *marks = mo_turns_of(c->format);
    put(w, marks->begin);
    if (marks->default_system && !system_of(c)) {
        put(w, marks->open[MO_CHAT_SYSTEM]);
        put(w, marks->default_system);
        put(w, marks->close[MO_CHAT_SYSTEM]);
    }
    for (size_t i = 0; i < c->count; i++) {
        const mo_chat_message *m = &c->messages[i];
        put(w, marks->open[m->role]);
        put_text(w, m->role == MO_CHAT_ASSISTANT ? answer_of(content_of(m)) : text_of(content_of(m)));
        put(w, marks->close[m->role]);
    }
    if (!c->options->no_prompt) {
        put(w, marks->prompt);
    }
}

static void harmony(writer *w, const conversation *c)
{
    const char *system = system_of(c);
    put(w, "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
           "Knowledge cutoff: 2024-06\n");
    if (c->options->date) {
        put(w, "Current date: ");
        put(w, c->options->date);
        put(w, "\n");
    }
    put(w, "\nReasoning: ");
    put(w, c->options->effort ? c->options->effort : "medium");
    put(w, "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every "
           "message.<|end|>");
    if (system) {
        put(w, "<|start|>developer<|message|># Instructions\n\n");
        put_content(w, system);
        put(w, "\n\n<|end|>");
    }
    for (size_t i = system ? 1 : 0; i < c->count; i++) {
        const mo_chat_message *m = &c->messages[i];
        put(w, m->role == MO_CHAT_USER ? "<|start|>user<|message|>"
                                       : "<|start|>assistant<|channel|>final<|message|>");
        put_content(w, content_of(m));
        put(w, "<|end|>");
    }
    if (!c->options->no_prompt) {
        put(w, "<|start|>assistant");
    }
}

/* ---- */

static bool is_date(const char *date)
{
    if (strlen(date) != 10 || date[4] != '-' || date[7] != '-') {
        return false;
    }
    for (int i = 0; i < 10; i++) {
        if (i != 4 && i != 7 && (date[i] < '0' || date[i] > '9')) {
            return false;
        }
    }
    const int month = (date[5] - '0') * 10 + date[6] - '0';
    return month >= 1 && month <= 12;
}

static mo_status check(const conversation *c, mo_error *err)
{
    const mo_chat_options *o = c->options;
    if (c->format == MO_CHAT_NONE) {
        return mo_fail(
            err, MO_EUNSUPPORTED,
            "the model has no chat format this version knows (a base model has none); give it plain "
            "text to continue instead");
    }
    for (size_t i = 1; i < c->count; i++) {
        if (c->messages[i].role == MO_CHAT_SYSTEM) {
            return mo_fail(err, MO_EINVAL, "message %zu is a system message; only the first can be", i + 1);
        }
    }
    if (o->effort && strcmp(o->effort, "low") != 0 && strcmp(o->effort, "medium") != 0 &&
        strcmp(o->effort, "high") != 0) {
        return mo_fail(err, MO_EINVAL, "the reasoning effort \"%.40s\" is none of low, medium and high",
                       o->effort);
    }
    if (o->date && !is_date(o->date)) {
        return mo_fail(err, MO_EINVAL, "the date \"%.40s\" is not of the form YYYY-MM-DD", o->date);
    }
    return MO_OK;
}

/* What published templates of the format do by themselves. */
static bool thinks_by_itself(mo_chat_format format)
{
    return format == MO_CHAT_QWEN3 || format == MO_CHAT_QWEN35 || format == MO_CHAT_GLM45 ||
           format == MO_CHAT_GLM47;
}

mo_status mo_chat_render(mo_chat_format format, const mo_chat_message *messages, size_t count,
                         const mo_chat_options *options, char **text, size_t *length, uint8_t **input,
                         mo_error *err)
{
    static void (*const writers[])(writer *, const conversation *) = {
        [MO_CHAT_CHATML] = chatml,         [MO_CHAT_QWEN3] = chatml,    [MO_CHAT_QWEN3_ON] = chatml,
        [MO_CHAT_QWEN35] = chatml,         [MO_CHAT_LLAMA3] = llama3,   [MO_CHAT_LLAMA31] = llama3,
        [MO_CHAT_MIXTRAL] = mixtral,       [MO_CHAT_GEMMA] = gemma,     [MO_CHAT_GEMMA4] = gemma4,
        [MO_CHAT_GLM45] = glm45,           [MO_CHAT_GLM47] = glm47,     [MO_CHAT_DEEPSEEK3] = deepseek3,
        [MO_CHAT_DEEPSEEK_R1] = deepseek3, [MO_CHAT_HARMONY] = harmony,
    };
    const conversation c = {messages, count, options, format,
                            options->thinking == MO_THINKING_DEFAULT ? thinks_by_itself(format)
                                                                     : options->thinking == MO_THINKING_ON};
    void (*write)(writer *, const conversation *) = mo_turns_of(format) ? turns
                                                    : (size_t)format < sizeof writers / sizeof *writers
                                                        ? writers[format]
                                                        : NULL;
    writer w = {0};
    *text = NULL;
    if (!write) {
        return mo_fail(
            err, MO_EUNSUPPORTED,
            "the model has no chat format this version knows (a base model has none); give it plain "
            "text to continue instead");
    }
    mo_status s = check(&c, err);
    if (s != MO_OK) {
        return s;
    }
    put(&w, ""); /* so that there is a text even when nothing is written */
    write(&w, &c);
    if (w.failed) {
        free(w.text);
        free(w.input);
        return mo_fail(err, MO_ENOMEM, "no memory to write a conversation of %zu messages", count);
    }
    *text = w.text;
    *length = w.length;
    if (input) {
        *input = w.input;
    } else {
        free(w.input);
    }
    return MO_OK;
}
