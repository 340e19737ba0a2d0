#include "template/chat_template.h"
#include "template/run.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"
#include "template/json.h"
#include "template/messages.h"
#include "template/system_tools.h"

struct mo_chat_template {
    mo_template *parsed;
    char *bos, *eos;
    mo_message_needs needs;
    mo_shown tools, calls;
    bool no_memory; /* a probe failed for it: nothing is known */
};

/* One attempt to render. */
typedef struct attempt {
    const mo_chat_template *t;
    const mo_chat_settings *settings;
    const char *json;
    size_t length;
    mo_message_needs needs;
    mo_message_facts facts;
    bool goes_on; /* the answer continues the last message, whose text is: */
    char *last;   /* malloc'd, without trailing white space */
    size_t last_length;
} attempt;

/* ---- The context ---- */

static void set_all(mo_work *w, mo_jdict *to, const mo_jdict *from)
{
    for (uint32_t i = 0; i < from->count; i++) {
        mo_jdict_set(w, to, from->entries[i].key, from->entries[i].value);
    }
}

static void remove_text(mo_work *w, mo_jdict *d, const char *key)
{
    mo_jdict_remove(w, d, mo_jv_text(w, key));
}

/* The settings as variables, under the names that templates use. */
static mo_jdict *settings_of(mo_work *w, const mo_chat_settings *s)
{
    mo_jdict *d = mo_jdict_new(w, 8);
    if (s->thinking != MO_THINKING_DEFAULT) {
        mo_jdict_set_text(w, d, "enable_thinking", mo_jv_bool(s->thinking == MO_THINKING_ON));
        mo_jdict_set_text(w, d, "thinking", mo_jv_bool(s->thinking == MO_THINKING_ON));
    }
    if (s->effort) {
        mo_jdict_set_text(w, d, "reasoning_effort", mo_jv_text(w, s->effort));
    }
    mo_jdict_set_text(w, d, "add_generation_prompt", mo_jv_bool(!s->no_prompt));
    return d;
}

/* Removes the key if its value is null or an empty list. */
static void drop_empty(mo_work *w, mo_jdict *d, const char *key)
{
    const mo_jv *v = mo_jdict_find(d, key);
    if (v && !mo_jv_true(*v)) {
        remove_text(w, d, key);
    }
}

/* Stores the text of the last message, an assistant's, which the answer continues. */
static void keep_last(mo_work *w, attempt *a, const mo_jlist *messages)
{
    const mo_jv *content =
        messages->count ? mo_jdict_find(messages->items[messages->count - 1].as.dict, "content") : NULL;
    const mo_jv *text = content;
    if (content && content->kind == MO_J_LIST && content->as.list->count > 0) {
        const mo_jv part = content->as.list->items[content->as.list->count - 1];
        text = part.kind == MO_J_DICT ? mo_jdict_find(part.as.dict, "text") : NULL;
    }
    if (!text || text->kind != MO_J_STRING) {
        mo_work_fail(w, MO_EINVAL, "continue_final_message: the last message has no text to continue");
    }
    free(a->last);
    const mo_jstring kept = mo_jstring_trim(w, text->as.string, NULL, MO_TRIM_RIGHT);
    a->last_length = kept.length;
    a->last = malloc((size_t)kept.length + 1);
    if (!a->last) {
        mo_work_fail(w, MO_ENOMEM, "out of memory for a message");
    }
    memcpy(a->last, mo_jstring_data(kept), kept.length);
}

static void set_missing(mo_work *w, mo_jdict *d, const char *key, mo_jstring text)
{
    if (!mo_jdict_find(d, key)) {
        mo_jdict_set_text(w, d, key, mo_jv_string(text));
    }
}

/* Variables that llama-server also provides for some templates: date, time, and the tools as text. */
static void set_usual(mo_work *w, mo_jdict *d, const struct tm *clock, const mo_jv *tools)
{
    mo_json_style style = mo_json_style_default(w);
    mo_jbuffer *functions = mo_jbuffer_new(w, 0);
    style.indent = 2;
    if (tools && mo_jv_true(*tools)) {
        mo_json_write(w, functions, *tools, &style);
    }
    set_missing(w, d, "functions", mo_jbuffer_view(functions));
    if (clock) {
        set_missing(w, d, "date_string", mo_clock_text(w, clock, "%d %b %Y"));
        set_missing(w, d, "datetime", mo_clock_text(w, clock, "%b %d %Y %H:%M:%S GMT"));
    }
}

static mo_jdict *make_context(mo_work *w, const struct tm *clock, void *user)
{
    attempt *a = user;
    const mo_jv root = mo_json_read(w, a->json, a->length, true, "the conversation");
    mo_jdict *context = settings_of(w, a->settings);
    if (root.kind == MO_J_DICT) {
        set_all(w, context, root.as.dict);
        const mo_jv *more = mo_jdict_find(root.as.dict, "chat_template_kwargs");
        remove_text(w, context, "chat_template_kwargs");
        if (more && more->kind == MO_J_DICT) {
            set_all(w, context, more->as.dict);
        }
        drop_empty(w, context, "tools");
        drop_empty(w, context, "documents");
    } else {
        mo_jdict_set_text(w, context, "messages", root);
    }
    const mo_jv *messages = mo_jdict_find(context, "messages");
    if (!messages || messages->kind != MO_J_LIST) {
        mo_work_fail(w, MO_EINVAL, "the conversation: messages is not a list");
    }
    mo_messages_fit(w, messages->as.list, &a->needs, &a->facts);
    const mo_jv *tools = mo_jdict_find(context, "tools");
    if (tools && tools->kind == MO_J_LIST) {
        mo_tools_fit(w, tools->as.list, &a->needs, &a->facts);
    }
    if (a->needs.system_tools) {
        mo_system_tools_fit(w, messages->as.list, tools && tools->kind == MO_J_LIST ? tools->as.list : NULL);
    }
    set_usual(w, context, clock, mo_jdict_find(context, "tools"));
    const mo_jv *goes_on = mo_jdict_find(context, "continue_final_message");
    a->goes_on = goes_on && mo_jv_true(*goes_on);
    if (a->goes_on) {
        keep_last(w, a, messages->as.list);
        mo_jdict_set_text(w, context, "add_generation_prompt", mo_jv_bool(false));
    }
    mo_jdict_set_text(w, context, "bos_token", mo_jv_text(w, a->t->bos));
    mo_jdict_set_text(w, context, "eos_token", mo_jv_text(w, a->t->eos));
    return context;
}

/* ---- Attempts ---- */

/* Cuts the rendering after the last occurrence of the text that the answer continues. */
static mo_status cut(const attempt *a, mo_rendering *out, mo_error *err)
{
    for (size_t at = out->length; at-- > 0;) {
        if (at + a->last_length <= out->length && memcmp(out->text + at, a->last, a->last_length) == 0) {
            out->length = at + a->last_length;
            out->text[out->length] = 0;
            return MO_OK;
        }
    }
    mo_rendering_free(out);
    return mo_fail(
        err, MO_EINVAL,
        "continue_final_message: the model's template does not render the text of the last message");
}

static mo_status run(attempt *a, mo_rendering *out, mo_error *err)
{
    mo_template_options o = mo_template_options_default();
    o.clock = a->settings->clock;
    const mo_status status = mo_template_run(a->t->parsed, &o, make_context, a, a->length, out, err);
    return status == MO_OK && a->goes_on ? cut(a, out, err) : status;
}

mo_status mo_chat_template_render(const mo_chat_template *t, const char *json, size_t length,
                                  const mo_chat_settings *settings, mo_rendering *out, mo_error *err)
{
    attempt a = {.t = t, .settings = settings, .json = json, .length = length, .needs = t->needs};
    mo_error again;
    a.needs.pictures = settings->pictures;
    mo_status status = run(&a, out, err);
    const mo_message_facts facts = a.facts;
    const mo_message_needs plain = a.needs;
    for (int i = 0; i < 5 && status == MO_EINVAL; i++) {
        const bool helps = i == 0   ? facts.null && !plain.no_null
                           : i == 1 ? facts.odd_arguments && !plain.only_objects
                           : i == 2 ? facts.undescribed && !plain.described
                           : i == 3 ? facts.alias && !plain.no_alias
                                    : facts.system && !plain.no_system;
        a.needs.no_null = a.needs.no_null || i == 0;
        a.needs.only_objects = a.needs.only_objects || i == 1;
        a.needs.described = a.needs.described || i == 2;
        a.needs.no_alias = a.needs.no_alias || i == 3;
        a.needs.no_system = a.needs.no_system || i == 4;
        if (helps && run(&a, out, &again) == MO_OK) {
            status = MO_OK;
        }
    }
    if (status == MO_OK && a.needs.no_system && facts.system) {
        mo_log(MO_LOG_INFO, "template",
               "the model's template does not support this system "
               "message; it was moved to the start of a user message");
    }
    free(a.last);
    return status;
}

/* ---- Plain messages ---- */

typedef struct plain {
    const mo_message *messages;
    size_t count;
    const mo_chat_settings *settings;
} plain;

/* A message's content. Its picture marks count as the template's text. */
static mo_jv plain_content(mo_work *w, const char *content)
{
    mo_jbuffer *out = mo_jbuffer_new(w, 0);
    for (const char *end; (end = strchr(content, MO_MESSAGE_PICTURE)); content = end + 1) {
        mo_jbuffer_add(w, out, content, (size_t)(end - content), true);
        mo_jbuffer_put(w, out, MO_IMAGE_MARK);
    }
    mo_jbuffer_add(w, out, content, strlen(content), true);
    return mo_jv_string(mo_jbuffer_view(out));
}

static mo_jdict *plain_context(mo_work *w, const struct tm *clock, void *user)
{
    (void)clock;
    const plain *p = user;
    mo_jdict *context = settings_of(w, p->settings);
    mo_jlist *messages = mo_jlist_new(w, MO_SHAPE_LIST, p->count);
    for (size_t i = 0; i < p->count; i++) {
        const char *content = p->messages[i].content ? p->messages[i].content : "";
        mo_jdict *m = mo_jdict_new(w, 2);
        mo_jdict_set_text(w, m, "role", mo_jv_text(w, p->messages[i].role));
        mo_jdict_set_text(w, m, "content",
                          strchr(content, MO_MESSAGE_PICTURE)
                              ? plain_content(w, content)
                              : mo_jv_string(mo_jstring_new(w, content, strlen(content), true)));
        mo_jlist_add(w, messages, mo_jv_dict(m));
    }
    mo_jdict_set_text(w, context, "messages", mo_jv_list(messages));
    return context;
}

mo_status mo_chat_template_plain(const mo_template *t, const mo_message *messages, size_t count,
                                 const mo_chat_settings *settings, mo_rendering *out, mo_error *err)
{
    plain p = {messages, count, settings};
    mo_template_options o = mo_template_options_default();
    o.clock = settings->clock;
    o.steps = o.bytes = UINT64_MAX;
    return mo_template_run(t, &o, plain_context, &p, 0, out, err);
}

/* ---- Tools ---- */

typedef struct question {
    const char *json;
    size_t length;
    bool tools;
} question;

static void look_for_tools(mo_work *w, void *user)
{
    question *q = user;
    const mo_jv root = mo_json_read(w, q->json, q->length, true, "the conversation");
    const mo_jv *tools = root.kind == MO_J_DICT ? mo_jdict_find(root.as.dict, "tools") : NULL;
    q->tools = tools && mo_jv_true(*tools);
}

bool mo_conversation_has_tools(const char *json, size_t length)
{
    question q = {.json = json, .length = length};
    mo_error err;
    mo_work w = {
        .arena = mo_arena_create(0), .bytes_most = UINT64_MAX, .steps_most = UINT64_MAX, .err = &err};
    if (w.arena) {
        (void)mo_work_try(&w, look_for_tools, &q);
        mo_arena_destroy(w.arena);
    }
    return q.tools;
}

/* ---- Probing ---- */

#define CALL(arguments)                                                                                      \
    "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"\", "               \
    "\"tool_calls\": [{\"id\": "                                                                             \
    "\"call12345\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": " arguments       \
    "}}]}, {\"role\": \"tool\", \"tool_call_id\": \"call12345\", \"name\": \"f\", \"content\": \"b\"}]"

/* If the conversation is rendered with these needs, does the result contain `there` and not `not_there`? */
static bool shows(mo_chat_template *t, const char *json, mo_message_needs needs, const char *there,
                  const char *not_there)
{
    static const mo_chat_settings settings = {.clock = "2026-01-15T10:20:30"};
    attempt a = {.t = t, .settings = &settings, .json = json, .length = strlen(json), .needs = needs};
    mo_rendering out;
    mo_error err;
    const mo_status status = run(&a, &out, &err);
    t->no_memory = t->no_memory || status == MO_ENOMEM;
    if (status != MO_OK) {
        return false;
    }
    const bool yes = strstr(out.text, there) && !(not_there && strstr(out.text, not_there));
    mo_rendering_free(&out);
    return yes;
}

/* Of the same conversation with something that has a needle and without it; the first pair that renders decides. A template that
 * renders only the one without it does not show it. */
static mo_shown probe_shown(mo_chat_template *t, const char *const (*pairs)[2], size_t count)
{
    mo_shown found = MO_SHOWN_UNKNOWN;
    for (size_t i = 0; i < count && found != MO_SHOWN; i++) {
        if (shows(t, pairs[i][0], t->needs, "mo-needle", NULL)) {
            found = MO_SHOWN;
        } else if (shows(t, pairs[i][1], t->needs, "", NULL)) {
            found = MO_SHOWN_NOT;
        }
    }
    return found;
}

static void probe_tools(mo_chat_template *t)
{
#define TOOL(name)                                                                                           \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"" name "\", \"description\": \"b\", "   \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"c\": {\"type\": \"string\", "                 \
    "\"description\": \"d\"}}, \"required\": [\"c\"]}}}]"
#define TALK "\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]"
#define SYSTEM_TALK                                                                                          \
    "\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"a\"}]"
    static const char *const tools[][2] = {{"{" TALK ", " TOOL("mo-needle") "}", "{" TALK "}"},
                                           {"{" SYSTEM_TALK ", " TOOL("mo-needle") "}", "{" SYSTEM_TALK "}"}};
    static const char *const calls[][2] = {
        {CALL("{\"mo-key\": \"mo-needle\"}"), CALL("{\"mo-key\": \"c\"}")},
        {"{\"messages\": " CALL("{\"mo-key\": \"mo-needle\"}") ", " TOOL("f") "}",
         "{\"messages\": " CALL("{\"mo-key\": \"c\"}") ", " TOOL("f") "}"}};
    t->tools = probe_shown(t, tools, 2);
    t->calls = probe_shown(t, calls, 2);
}

mo_shown mo_chat_template_tools(const mo_chat_template *t)
{
    return t->tools;
}

mo_shown mo_chat_template_calls(const mo_chat_template *t)
{
    return t->calls;
}

static void probe(mo_chat_template *t)
{
    static const char text[] = "[{\"role\": \"user\", \"content\": \"mo-needle\"}]";
    static const char parts[] =
        "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"mo-needle\"}]}]";
    static const char system[] =
        "[{\"role\": \"system\", \"content\": \"mo-needle\"}, {\"role\": \"user\", \"content\": \"a\"}]";
    static const char tools[] = "[{\"role\": \"system\", \"content\": \"a\", \"tools\": \"mo-needle\"}, "
                                "{\"role\": \"user\", \"content\": \"a\"}]";
    mo_message_needs needs = {.parts = true};
    const bool with_text = shows(t, text, needs, "mo-needle", NULL);
    needs.parts = shows(t, parts, needs, "mo-needle", "'mo-needle'") &&
                  shows(t, parts, needs, "mo-needle", "\"mo-needle\"");
    needs.only_parts = needs.parts && !with_text;
    needs.no_system = (with_text || needs.only_parts) && !shows(t, system, needs, "mo-needle", NULL);
    needs.system_tools = shows(t, tools, needs, "mo-needle", NULL) &&
                         !shows(t, CALL("{\"mo-key\": \"mo-needle\"}"), needs, "mo-needle", NULL);
    /* An object must not be printed as a Python dict, and a text must not be quoted twice. */
    mo_message_needs as_text = needs;
    as_text.text_arguments = true;
    needs.text_arguments = !shows(t, CALL("{\"mo-key\": \"mo-needle\"}"), needs, "mo-needle", "'mo-key'") &&
                           shows(t, CALL("{\"mo-key\": \"mo-needle\"}"), as_text, "\"mo-key\"", "\\\"mo-key");
    t->needs = needs;
    probe_tools(t);
}

mo_status mo_chat_template_open(const char *text, size_t length, const char *bos, const char *eos,
                                mo_chat_template **out, mo_error *err)
{
    *out = NULL;
    mo_chat_template *t = calloc(1, sizeof *t);
    if (t) {
        t->bos = strdup(bos);
        t->eos = strdup(eos);
    }
    if (!t || !t->bos || !t->eos) {
        mo_chat_template_close(t);
        return mo_fail(err, MO_ENOMEM, "out of memory for a template");
    }
    const mo_status status = mo_template_open(text, length, &t->parsed, err);
    if (status != MO_OK) {
        mo_chat_template_close(t);
        return status;
    }
    probe(t);
    if (t->no_memory) {
        mo_chat_template_close(t);
        return mo_fail(err, MO_ENOMEM, "out of memory for a template");
    }
    *out = t;
    return MO_OK;
}

void mo_chat_template_close(mo_chat_template *t)
{
    if (t) {
        mo_template_close(t->parsed);
        free(t->bos);
        free(t->eos);
        free(t);
    }
}
