/* Rendering: see rendering.h. */
#include "server/rendering.h"

#include <stdlib.h>
#include <string.h>

void srv_rendering_free(srv_rendering *r)
{
    free(r->text);
    free(r->tokens.ids);
    *r = (srv_rendering){0};
}

static bool no_memory(srv_fault *fault)
{
    return srv_fault_set(fault, SRV_FAULT_SERVER, NULL, "memory ran out");
}

/* Models whose template does not show tools are told of them in the system's text, and how to call them. */
static bool tell_tools(json_t *messages, const srv_tools *tools, srv_fault *fault)
{
    char *json = json_dumps(tools->list, JSON_COMPACT), *text = NULL;
    const bool required = tools->calling == SRV_CALLING_REQUIRED || tools->calling == SRV_CALLING_NAMED;
    mo_error err;
    if (!json) {
        return no_memory(fault);
    }
    const mo_status status = mo_tools_text(json, strlen(json), required, &text, &err);
    free(json);
    if (status != MO_OK) {
        return srv_fault_status(fault, &err, "tools");
    }
    json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    const json_t *content = json_object_get(first, "content");
    int failed;
    if (role && strcmp(role, "system") == 0 && json_is_string(content)) {
        failed =
            json_object_set_new(first, "content", json_sprintf("%s\n\n%s", json_string_value(content), text));
    } else {
        failed =
            json_array_insert_new(messages, 0, json_pack("{s:s,s:s}", "role", "system", "content", text));
    }
    mo_free(text);
    return !failed || no_memory(fault);
}

/* The server's variables, and the request's over them. */
static json_t *variables(const srv_parameters *p, const srv_template *template)
{
    json_t *all =
        template->kwargs ? json_loads(template->kwargs, 0, NULL) : NULL; /* checked when the server began */
    if (!p->template_kwargs) {
        return all;
    }
    if (!all) {
        return json_incref((json_t *)p->template_kwargs);
    }
    json_object_update(all, (json_t *)p->template_kwargs);
    return all;
}

/* What the template gets. */
static char *context_json(const mo_model *model, const srv_conversation *c, const srv_tools *tools,
                          const srv_parameters *p, const srv_template *template, srv_fault *fault)
{
    json_t *messages = json_deep_copy(c->messages), *kwargs = variables(p, template);
    bool good = messages ? true : no_memory(fault);
    const bool shown = tools->list && mo_model_shows_tools(model);
    if (good && c->prefill) { /* it is put behind the rendering */
        json_array_remove(messages, json_array_size(messages) - 1);
    }
    good = good && (!tools->list || shown || tell_tools(messages, tools, fault));
    json_t *context = good ? json_pack("{s:O}", "messages", messages) : NULL;
    if (context && shown) {
        json_object_set(context, "tools", tools->list);
    }
    if (context && json_object_size(kwargs) > 0) {
        json_object_set(context, "chat_template_kwargs", kwargs);
    }
    char *json = context ? json_dumps(context, JSON_COMPACT) : NULL;
    json_decref(context);
    json_decref(kwargs);
    json_decref(messages);
    if (good && !json) {
        no_memory(fault);
    }
    return json;
}

/* gpt-oss has three levels; others' templates are given the word as it came. */
static const char *effort_of(const mo_model *model, const char *effort)
{
    if (!effort || strcmp(mo_model_chat_name(model), "harmony") != 0) {
        return effort;
    }
    return strcmp(effort, "minimal") == 0                               ? "low"
           : strcmp(effort, "xhigh") == 0 || strcmp(effort, "max") == 0 ? "high"
                                                                        : effort;
}

/* The beginning of the answer that the client gave. */
static bool append_prefill(const mo_model *model, const srv_conversation *c, srv_rendering *out,
                           srv_fault *fault)
{
    const json_t *last = json_array_get(c->messages, json_array_size(c->messages) - 1);
    const json_t *content = json_object_get(last, "content");
    const srv_place at = srv_place_root(NULL, fault);
    srv_writer text = {0};
    if (json_is_string(content)) {
        srv_put(&text, json_string_value(content), json_string_length(content));
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_object_get(json_array_get(content, i), "text");
        srv_puts(&text, i > 0 ? "\n" : "");
        srv_put(&text, json_string_value(part), json_string_length(part));
    }
    bool good = !text.failed || no_memory(fault);
    good = good && (text.length == 0 ||
                    srv_tokens_append_text(&out->tokens, &at, model, (mo_text){text.data, text.length}, 0));
    char *whole = good ? realloc(out->text, out->length + text.length + 1) : NULL;
    if (whole) {
        memcpy(whole + out->length, text.data ? text.data : "", text.length);
        out->text = whole;
        out->length += text.length;
        out->text[out->length] = '\0';
    }
    srv_writer_free(&text);
    return good && (whole || no_memory(fault));
}

bool srv_rendering_make(const mo_model *model, const srv_conversation *conversation, const srv_tools *tools,
                        const srv_parameters *parameters, const srv_template *template, srv_rendering *out,
                        srv_fault *fault)
{
    char *json = context_json(model, conversation, tools, parameters, template, fault);
    if (!json) {
        return false;
    }
    mo_chat_options o = mo_chat_options_default();
    o.thinking = parameters->thinking == SRV_ON;
    o.effort = effort_of(model, parameters->effort);
    o.no_prompt = conversation->whole;
    mo_error err;
    char *text = NULL;
    const mo_status status = mo_model_chat_json(model, json, strlen(json), &o, &text, &err);
    free(json);
    if (status != MO_OK) {
        return srv_fault_status(fault, &err, "messages");
    }
    out->text = strdup(text);
    out->length = strlen(text);
    mo_free(text);
    const srv_place at = srv_place_root(NULL, fault);
    if (!out->text ||
        !srv_tokens_append_text(&out->tokens, &at, model, (mo_text){out->text, out->length}, MO_TOKEN_CHAT)) {
        return out->text ? false : no_memory(fault);
    }
    if (conversation->prefill && !append_prefill(model, conversation, out, fault)) {
        return false;
    }
    out->in_thought = mo_model_in_thought(model, out->tokens.ids, out->tokens.count);
    return true;
}
