/* The public API of conversations: uses the template in the model's file if it has one, otherwise that of a
 * recognized format. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/json.h"
#include "base/log.h"
#include "base/status.h"
#include "gguf/read.h"
#include "template/chat_template.h"
#include "text/conversation.h"

struct mo_prompt {
    mo_rendering rendered;
    int32_t *tokens;
    size_t count;
    bool in_thought;
};

static const mo_chat_options defaults = {.size = sizeof(mo_chat_options)};

void mo_chat_options_init(mo_chat_options *options, size_t size)
{
    mo_options_write(options, size, &defaults, sizeof defaults);
}

/* The caller's options over the defaults. */
static mo_status read_options(const mo_chat_options *options, mo_chat_options *out, mo_error *err)
{
    *out = defaults;
    const mo_status status = mo_options_read(out, sizeof *out, options, "mo_chat_options", err);
    if (status == MO_OK && ((int)out->thinking < MO_THINKING_DEFAULT || out->thinking > MO_THINKING_OFF)) {
        return mo_fail(err, MO_EINVAL, "`thinking` must be default, on or off, not number %d",
                       (int)out->thinking);
    }
    return status;
}

/* ---- The model's templates ---- */

static mo_text token_text(const mo_model *m, mo_token_role role)
{
    const int32_t id = m->tokenizer ? mo_tokenizer_id(m->tokenizer, role) : -1;
    return id < 0 ? (mo_text){"", 0} : mo_token_text(m->tokenizer, id);
}

static mo_status open_template(const mo_model *m, const char *text, mo_chat_template **out, mo_error *err)
{
    const mo_text bos = token_text(m, MO_TOKEN_BOS), eos = token_text(m, MO_TOKEN_EOS);
    char *begin = strndup(bos.data, bos.length), *end = strndup(eos.data, eos.length);
    const mo_status status = begin && end ? mo_chat_template_open(text, strlen(text), begin, end, out, err)
                                          : mo_fail(err, MO_ENOMEM, "out of memory for a template");
    free(begin);
    free(end);
    return status;
}

/* Text of one of the file's templates; NULL: missing. */
static const char *own_text(const mo_model *m, const char *name)
{
    const char *text = "";
    char key[128];
    snprintf(key, sizeof key, "tokenizer.chat_template%s%s", name ? "." : "", name ? name : "");
    return mo_gguf_string_or(mo_checkpoint_gguf(m->checkpoint), key, "", &text, NULL) == MO_OK && *text
               ? text
               : NULL;
}

/* An unreadable template in a file is only a warning. Lack of memory is an error. */
static mo_status open_own(mo_model *m, const char *name, mo_chat_template **out, mo_error *err)
{
    const char *text = own_text(m, name);
    const mo_status status = text ? open_template(m, text, out, err) : MO_OK;
    if (status != MO_OK) {
        *out = NULL;
    }
    if (status != MO_OK && status != MO_ENOMEM) {
        mo_log(MO_LOG_WARN, "template",
               "the model's chat template cannot be used: %s; its format is detected instead", err->detail);
    }
    return status == MO_ENOMEM ? status : MO_OK;
}

/* A given template may also be the name of a format; *format is NULL if it is Jinja. Text that is neither
 * would replace every prompt by itself. */
static mo_status find_format(const char *given, const mo_chat_format **format, mo_error *err)
{
    char names[512];
    size_t used = 0;
    *format = NULL;
    if (strstr(given, "{{") || strstr(given, "{%")) {
        return MO_OK;
    }
    char name[64];
    const size_t skipped = strspn(given, " \t\r\n");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(given + skipped, " \t\r\n"), given + skipped);
    *format = mo_chat_format_find(name);
    const mo_chat_format *f;
    for (size_t i = 0; (f = mo_chat_format_at(i)) && used < sizeof names; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s%s%s", i ? ", " : "", f->name,
                                 f->other_name ? ", " : "", f->other_name ? f->other_name : "");
    }
    return *format ? MO_OK
                   : mo_fail(err, MO_EINVAL,
                             "`chat_template` \"%.60s\" is not Jinja and not the name of a chat format; the "
                             "names are %s",
                             given, names);
}

mo_status mo_chat_template_check(const char *text, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, text)
    const mo_chat_format *format;
    mo_template *template = NULL;
    mo_status status = find_format(text, &format, err);
    if (status == MO_OK && !format) {
        status = mo_template_open(text, strlen(text), &template, err);
        mo_template_close(template);
    }
    return status;
}

static mo_status open_format(const mo_chat_format *format, mo_template **out, mo_error *err)
{
    return mo_template_open(format->text, strlen(format->text), out, err);
}

/* A template that rendered no probe shows tools if it has the word; there is nothing better to go by. */
static bool shows_tools(const mo_chat_template *t, const char *text)
{
    const mo_shown shown = t ? mo_chat_template_tools(t) : MO_SHOWN_NOT;
    return shown == MO_SHOWN || (shown == MO_SHOWN_UNKNOWN && strstr(text, "tools"));
}

bool mo_chat_template_shows_tools(const char *text)
{
    mo_chat_template *t;
    mo_error err;
    if (mo_chat_template_open(text, strlen(text), "", "", &t, &err) != MO_OK) {
        return false;
    }
    const bool shown = shows_tools(t, text);
    mo_chat_template_close(t);
    return shown;
}

/* How the model writes calls: by the template that conversations with tools get. */
static void detect_dialogue(mo_model *m)
{
    const mo_chat_template *t = m->tool_template ? m->tool_template : m->chat_template;
    const char *text = t ? mo_model_chat_template(m, m->tool_template ? "tool_use" : NULL) : "";
    m->dialogue = mo_dialogue_detect(text, shows_tools(t, text), m->tokenizer);
    /* A style of the model's own stands for a template that was written with calls in mind. */
    const mo_shown calls = t ? mo_chat_template_calls(t) : MO_SHOWN_NOT;
    m->shows_calls = calls == MO_SHOWN || (t && m->dialogue.id != MO_STYLE_GENERIC) ||
                     (calls == MO_SHOWN_UNKNOWN && m->dialogue.shows_tools);
}

static mo_status open_templates(mo_model *m, const char *given, mo_error *err)
{
    if (!given) {
        mo_status status = open_own(m, NULL, &m->chat_template, err);
        if (status == MO_OK) {
            status = open_own(m, "tool_use", &m->tool_template, err);
        }
        return status != MO_OK || m->chat_template || !m->chat ? status
                                                               : open_format(m->chat, &m->format, err);
    }
    const mo_chat_format *format;
    const mo_status status = find_format(given, &format, err);
    if (status != MO_OK) {
        return status;
    }
    if (format) {
        m->chat = format;
        return open_format(format, &m->format, err);
    }
    m->given_template = strdup(given);
    return m->given_template ? open_template(m, given, &m->chat_template, err)
                             : mo_fail(err, MO_ENOMEM, "out of memory for a template");
}

mo_status mo_model_open_templates(mo_model *m, const char *given, mo_error *err)
{
    const mo_status status = open_templates(m, given, err);
    if (status == MO_OK) {
        detect_dialogue(m);
    }
    return status;
}

void mo_model_close_templates(mo_model *m)
{
    mo_chat_template_close(m->chat_template);
    mo_chat_template_close(m->tool_template);
    mo_template_close(m->format);
    free(m->given_template);
}

/* An unreadable template counts as missing, so it is not shown. */
const char *mo_model_chat_template(const mo_model *model, const char *name)
{
    if (model->given_template) {
        return name ? NULL : model->given_template;
    }
    if (!name || strcmp(name, "tool_use") == 0) {
        return (name ? model->tool_template : model->chat_template) ? own_text(model, name) : NULL;
    }
    return own_text(model, name);
}

const char *mo_model_chat_name(const mo_model *model)
{
    return model->chat ? model->chat->name : model->chat_template ? "template" : "none";
}

/* ---- Formats without a template ---- */

static mo_thinking thinking_of(const json_t *object, mo_thinking otherwise)
{
    const json_t *v = json_object_get(object, "enable_thinking");
    v = json_is_boolean(v) ? v : json_object_get(object, "thinking");
    return json_is_true(v) ? MO_THINKING_ON : json_is_false(v) ? MO_THINKING_OFF : otherwise;
}

/* Moves options of these formats from the conversation to *o. */
static void take_settings(json_t *object, mo_chat_options *o)
{
    static const char *const names[] = {"enable_thinking", "thinking", "reasoning_effort",
                                        "add_generation_prompt"};
    const char *effort = json_string_value(json_object_get(object, "reasoning_effort"));
    o->thinking = thinking_of(object, o->thinking);
    o->no_prompt = o->no_prompt || json_is_false(json_object_get(object, "add_generation_prompt"));
    if (effort) {
        o->effort = strcmp(effort, "low") == 0 ? "low" : strcmp(effort, "high") == 0 ? "high" : "medium";
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_object_del(object, names[i]);
    }
}

static void rename_developers(json_t *messages)
{
    size_t i;
    json_t *m;
    json_array_foreach(messages, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        if (role && strcmp(role, "developer") == 0) {
            json_object_set_new(m, "role", json_string("system"));
        }
    }
}

/* Text of a content, malloc'd: a string, or the concatenated parts of a list. NULL if a part has no text. */
static char *text_of(const json_t *content)
{
    const size_t parts = json_array_size(content);
    size_t length = 0;
    if (parts == 0) {
        return json_is_string(content) ? strdup(json_string_value(content)) : NULL;
    }
    for (size_t i = 0; i < parts; i++) {
        const json_t *text = json_object_get(json_array_get(content, i), "text");
        if (!json_is_string(text)) {
            return NULL;
        }
        length += json_string_length(text);
    }
    char *whole = malloc(length + 1), *end = whole;
    for (size_t i = 0; whole && i < parts; i++) {
        end = stpcpy(end, json_string_value(json_object_get(json_array_get(content, i), "text")));
    }
    return whole;
}

/* Removes the last message, which the answer continues, and returns its text; NULL if there is nothing to
 * continue. */
static char *take_last(json_t *object)
{
    json_t *messages = json_object_get(object, "messages");
    const size_t count = json_array_size(messages);
    const json_t *last = count ? json_array_get(messages, count - 1) : NULL;
    char *text = json_is_true(json_object_get(object, "continue_final_message"))
                     ? text_of(json_object_get(last, "content"))
                     : NULL;
    json_object_del(object, "continue_final_message");
    if (text) {
        json_array_remove(messages, count - 1);
    }
    return text;
}

/* The conversation without the keys that are options here; NULL if it is not JSON, which is reported
 * elsewhere. */
static char *plain_conversation(const char *json, size_t length, mo_chat_options *o, char **last)
{
    json_t *root =
        length <= MO_CONVERSATION_BYTES ? json_loadb(json, length, JSON_REJECT_DUPLICATES, NULL) : NULL;
    *last = NULL;
    if (json_is_object(root)) {
        json_t *more = json_object_get(root, "chat_template_kwargs");
        take_settings(root, o);
        if (json_is_object(more)) {
            take_settings(more, o);
        }
        *last = take_last(root);
        o->thinking = *last ? MO_THINKING_OFF : o->thinking; /* the answer itself is continued */
    }
    rename_developers(json_is_object(root) ? json_object_get(root, "messages") : root);
    char *text = root ? mo_json_dump(root, 0) : NULL;
    json_decref(root);
    return text;
}

/* Appends the text of the continued message after the start of its turn. */
static mo_status append(mo_rendering *out, const char *last, mo_error *err)
{
    const size_t more = strlen(last);
    mo_rendering whole = {.text = malloc(out->length + more + 1),
                          .input = malloc(out->length + more + 1),
                          .length = out->length + more};
    const bool ok = whole.text && whole.input;
    if (ok) {
        memcpy(whole.text, out->text, out->length);
        memcpy(whole.text + out->length, last, more + 1);
        memcpy(whole.input, out->input, out->length);
        memset(whole.input + out->length, 1, more);
    } else {
        mo_rendering_free(&whole);
    }
    mo_rendering_free(out);
    *out = whole;
    return ok ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for a conversation");
}

static mo_chat_settings settings_of(const mo_chat_options *o, bool pictures)
{
    return (mo_chat_settings){.thinking = o->thinking,
                              .effort = o->effort,
                              .clock = o->date,
                              .no_prompt = o->no_prompt,
                              .pictures = pictures};
}

/* Checks that the format can render the options. */
static mo_status check_format(const mo_template *format, const char *effort, mo_error *err)
{
    if (!format) {
        return mo_fail(
            err, MO_EUNSUPPORTED,
            "the model has no chat format this version knows (a base model has none); give it plain "
            "text to continue instead");
    }
    return !effort || !strcmp(effort, "low") || !strcmp(effort, "medium") || !strcmp(effort, "high")
               ? MO_OK
               : mo_fail(err, MO_EINVAL, "`effort` \"%.40s\" is not known; use low, medium or high", effort);
}

static mo_status render_format(const char *name, const mo_template *format, const char *json, size_t length,
                               const mo_chat_options *options, bool pictures, mo_rendering *out,
                               mo_error *err)
{
    mo_chat_options o = *options;
    mo_conversation c = {0};
    char *last, *plain = plain_conversation(json, length, &o, &last);
    const mo_chat_settings settings = settings_of(&o, pictures);
    *out = (mo_rendering){0};
    mo_status status = mo_conversation_read(name, plain ? plain : json, plain ? strlen(plain) : length,
                                            settings.pictures, &c, err);
    if (status == MO_OK) {
        status = check_format(format, o.effort, err);
    }
    if (status == MO_OK) {
        status = mo_chat_template_plain(format, c.messages, c.count, &settings, out, err);
    }
    if (status == MO_OK && last) {
        status = append(out, last, err);
    }
    mo_conversation_free(&c);
    free(plain);
    free(last);
    return status;
}

/* ---- Prompts ---- */

/* Renders with a template or format given in the call. */
static mo_status render_given(const mo_model *model, const char *json, size_t length,
                              const mo_chat_options *o, mo_rendering *out, mo_error *err)
{
    const mo_chat_settings settings = settings_of(o, model->encoder != NULL);
    const mo_chat_format *format;
    mo_chat_template *given = NULL;
    mo_template *own = NULL;
    mo_status status = find_format(o->chat_template, &format, err);
    if (status == MO_OK) {
        status =
            format ? open_format(format, &own, err) : open_template(model, o->chat_template, &given, err);
    }
    if (status == MO_OK) {
        status = format ? render_format(format->name, own, json, length, o, settings.pictures, out, err)
                        : mo_chat_template_render(given, json, length, &settings, out, err);
    }
    mo_chat_template_close(given);
    mo_template_close(own);
    return status;
}

static mo_status render(const mo_model *model, const char *json, size_t length, const mo_chat_options *o,
                        mo_rendering *out, mo_error *err)
{
    if (o->chat_template) {
        return render_given(model, json, length, o, out, err);
    }
    const mo_chat_settings settings = settings_of(o, model->encoder != NULL);
    const bool tools = model->tool_template && mo_conversation_has_tools(json, length);
    const mo_chat_template *t = tools ? model->tool_template : model->chat_template;
    return t ? mo_chat_template_render(t, json, length, &settings, out, err)
             : render_format(mo_model_chat_name(model), model->format, json, length, o, settings.pictures,
                             out, err);
}

static mo_status tokenize(const mo_model *m, const char *text, size_t length, unsigned flags,
                          const uint8_t *input, size_t most, int32_t **ids, size_t *count, mo_error *err)
{
    return mo_tokenizer_encode_marked(m->tokenizer, text, length, flags, input, most, ids, count, err);
}

mo_status mo_prompt_open(const mo_model *model, const char *json, size_t length,
                         const mo_chat_options *options, mo_prompt **out, mo_error *err)
{
    mo_chat_options o;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, json, out)
    *out = NULL;
    mo_status status = read_options(options, &o, err);
    if (status != MO_OK) {
        return status;
    }
    mo_prompt *p = calloc(1, sizeof *p);
    if (!p) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a prompt");
    }
    mo_error why; /* a template may be tried in several ways; one suffices */
    status = render(model, json, length, &o, &p->rendered, &why);
    if (status != MO_OK) {
        *err = why;
    } else if (model->tokenizer) {
        status = (model->encoder ? mo_model_tokenize_pictures
                                 : tokenize)(model, p->rendered.text, p->rendered.length, MO_TOKENIZE_CHAT,
                                             p->rendered.input, o.tokens_most, &p->tokens, &p->count, err);
    }
    if (status != MO_OK) {
        mo_prompt_close(p);
        return status;
    }
    p->in_thought = mo_model_in_thought(model, p->tokens, p->count);
    *out = p;
    return MO_OK;
}

void mo_prompt_close(mo_prompt *p)
{
    if (p) {
        mo_rendering_free(&p->rendered);
        free(p->tokens);
        free(p);
    }
}

mo_text mo_prompt_text(const mo_prompt *p)
{
    return (mo_text){p->rendered.text, p->rendered.length};
}

const int32_t *mo_prompt_tokens(const mo_prompt *p, size_t *count)
{
    *count = p->count;
    return p->tokens;
}

bool mo_prompt_in_thought(const mo_prompt *p)
{
    return p->in_thought;
}

/* ---- Texts ---- */

mo_status mo_model_chat_json(const mo_model *model, const char *json, size_t length,
                             const mo_chat_options *options, char **text, mo_error *err)
{
    mo_chat_options o;
    mo_rendering r = {0};
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, json, text)
    *text = NULL;
    mo_status status = read_options(options, &o, err);
    if (status == MO_OK) {
        status = render(model, json, length, &o, &r, err);
    }
    if (status == MO_OK) {
        *text = r.text;
        r.text = NULL;
    }
    mo_rendering_free(&r);
    return status;
}

mo_status mo_model_chat(const mo_model *model, const mo_message *messages, size_t count,
                        const mo_chat_options *options, char **text, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, text)
    if (count > 0) {
        MO_REQUIRE(err, messages)
    }
    *text = NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        if (!messages[i].role || !mo_conversation_role(messages[i].role)) {
            json_decref(list);
            return mo_fail(err, MO_EINVAL, "message %zu: unknown role '%.40s'; use system, user or assistant",
                           i + 1, messages[i].role ? messages[i].role : "");
        }
        json_t *m = json_pack("{s:s, s:s}", "role", messages[i].role, "content",
                              messages[i].content ? messages[i].content : "");
        if (!m || json_array_append_new(list, m) != 0) {
            json_decref(list);
            return mo_fail(err, MO_EINVAL, "message %zu: the content is not valid UTF-8", i + 1);
        }
    }
    char *json = list ? mo_json_dump(list, 0) : NULL;
    json_decref(list);
    const mo_status status = json ? mo_model_chat_json(model, json, strlen(json), options, text, err)
                                  : mo_fail(err, MO_ENOMEM, "out of memory for %zu messages", count);
    free(json);
    return status;
}
