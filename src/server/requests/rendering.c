/* Rendering: see rendering.h. */
#include "server/requests/rendering.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static bool append(srv_tokens *t, const srv_field *at, const int32_t *ids, size_t count)
{
    int32_t *all = realloc(t->ids, (t->count + count + 1) * sizeof *all);
    if (!all) {
        return srv_fault_set(at->fault, SRV_FAULT_SERVER, NULL, "out of memory");
    }
    memcpy(all + t->count, ids, count * sizeof *all);
    t->ids = all;
    t->count += count;
    return true;
}

bool srv_tokens_append_text(srv_tokens *t, const srv_field *at, const mo_model *model, mo_text text,
                            int flags)
{
    int32_t *ids = NULL;
    size_t count = 0;
    mo_error err;
    if (mo_tokenize_first(model, text.data, text.length, flags, t->most, &ids, &count, &err) != MO_OK) {
        char path[sizeof at->fault->param];
        srv_field_path(at, path, sizeof path);
        return srv_fault_status(at->fault, &err, path);
    }
    const bool good = append(t, at, ids, count);
    mo_free(ids);
    return good;
}

/* The beginning of a text gets the tokens that the vocabulary puts in front; what follows others does not. */
static bool read_text(srv_tokens *t, const srv_field *f, const mo_model *model)
{
    mo_text text = {"", 0};
    return srv_read_text(*f, &text) &&
           srv_tokens_append_text(t, f, model, text, t->count == 0 ? MO_TOKEN_SPECIAL : MO_TOKEN_NAMES);
}

/* A list of tokens and texts. Lists of tokens alone are the long ones: they are read in one go. */
static bool read_mixed(srv_tokens *t, const srv_field *f, const mo_model *model)
{
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    const size_t count = srv_count(f);
    int32_t *all = realloc(t->ids, (t->count + count + 1) * sizeof *all);
    if (!all) {
        return srv_fault_set(f->fault, SRV_FAULT_SERVER, NULL, "out of memory");
    }
    t->ids = all;
    for (size_t i = 0; i < count; i++) {
        const srv_field element = srv_element(f, i);
        int64_t id = -1;
        if (json_is_string(element.value)) {
            if (!read_text(t, &element, model)) {
                return false;
            }
            int32_t *more = realloc(t->ids, (t->count + count - i) * sizeof *more);
            if (!more) {
                return srv_fault_set(f->fault, SRV_FAULT_SERVER, NULL, "out of memory");
            }
            t->ids = more;
            continue;
        }
        if (!element.value) {
            return srv_wrong_type(&element, "a token or a string");
        }
        if (!srv_read_int(element, 0, info.vocab - 1, &id)) {
            return false;
        }
        t->ids[t->count++] = (int32_t)id;
    }
    return true;
}

static size_t count_marks(mo_text text)
{
    const size_t length = strlen(MO_IMAGE_MARK);
    size_t count = 0;
    for (const char *at = text.data, *end = text.data + text.length;
         (at = memmem(at, (size_t)(end - at), MO_IMAGE_MARK, length)); at += length) {
        count++;
    }
    return count;
}

/* A text with marks in the places of pictures, of which there are some. */
static bool read_marked(srv_tokens *t, const srv_field *f, const mo_model *model)
{
    mo_text text = {"", 0};
    mo_error err;
    if (!srv_read_text(*f, &text)) {
        return false;
    }
    if (count_marks(text) != t->pictures) {
        return srv_wrong(
            f, "must have one mark " MO_IMAGE_MARK " for each picture of multimodal_data: it has %zu for %zu",
            count_marks(text), t->pictures);
    }
    if (mo_images_tokenize(model, text.data, text.length, MO_TOKEN_SPECIAL, &t->ids, &t->count, &err) !=
        MO_OK) {
        char path[sizeof f->fault->param];
        srv_field_path(f, path, sizeof path);
        return srv_fault_status(f->fault, &err, path);
    }
    return true;
}

/* {"prompt_string", "multimodal_data"}: a text, and pictures in base64. */
static bool read_object(srv_tokens *t, const srv_field *f, const mo_model *model, srv_pictures *pictures)
{
    const srv_field text = srv_member(f, "prompt_string"), media = srv_member(f, "multimodal_data");
    if (!text.value) {
        return srv_missing(&text);
    }
    if (!srv_is_list(media)) {
        return false;
    }
    const size_t count = srv_count(&media);
    if (count > 0 && (!pictures || !pictures->accepted)) {
        return srv_wrong(&media, "image input is not supported");
    }
    t->first_picture = pictures ? pictures->count : 0;
    for (size_t i = 0; i < count; i++) {
        const srv_field one = srv_element(&media, i);
        mo_text data = {"", 0};
        if (!srv_read_text(one, &data) || !srv_pictures_add_data(pictures, &one, data)) {
            return false;
        }
        t->pictures++;
    }
    return count > 0 ? read_marked(t, &text, model) : read_text(t, &text, model);
}

size_t srv_prompts_media(const srv_field *f)
{
    size_t bytes = 0, i;
    json_t *value;
    if (json_is_object(f->value)) {
        json_array_foreach(json_object_get(f->value, "multimodal_data"), i, value)
        {
            bytes += json_string_length(value);
        }
    }
    for (size_t k = 0; json_is_array(f->value) && k < srv_count(f); k++) {
        const srv_field one = srv_element(f, k);
        bytes += json_is_object(one.value) ? srv_prompts_media(&one) : 0;
    }
    return bytes;
}

static bool read_one(srv_tokens *t, const srv_field *f, const mo_model *model, srv_pictures *pictures)
{
    bool good;
    if (json_is_string(f->value)) {
        good = read_text(t, f, model);
    } else if (json_is_array(f->value)) {
        good = read_mixed(t, f, model);
    } else if (json_is_object(f->value)) {
        good = read_object(t, f, model, pictures);
    } else {
        return f->value ? srv_wrong_type(f, "a string or a list of tokens") : srv_missing(f);
    }
    return good && (t->count > 0 || srv_wrong(f, "must not be empty"));
}

/* A list that has a number in it is one prompt. */
static bool is_one(const srv_field *f)
{
    if (!json_is_array(f->value)) {
        return true;
    }
    for (size_t i = 0; i < srv_count(f); i++) {
        if (json_is_number(json_array_get(f->value, i))) {
            return true;
        }
    }
    return false;
}

bool srv_prompts_read(const srv_field *f, const mo_model *model, srv_pictures *pictures, srv_tokens *out,
                      size_t most, size_t *count, bool *several)
{
    *count = 0;
    *several = !is_one(f);
    if (!*several) {
        *count = 1;
        return read_one(&out[0], f, model, pictures);
    }
    if (srv_count(f) == 0) {
        return srv_wrong(f, "must have at least one prompt");
    }
    if (srv_count(f) > most) {
        return srv_wrong(f, "has more than %zu prompts", most);
    }
    for (size_t i = 0; i < srv_count(f); i++) {
        const srv_field prompt = srv_element(f, i);
        *count = i + 1;
        if (!read_one(&out[i], &prompt, model, pictures)) {
            return false;
        }
    }
    return true;
}

void srv_rendering_free(srv_rendering *r)
{
    free(r->text);
    free(r->tokens.ids);
    *r = (srv_rendering){0};
}

static bool no_memory(srv_fault *fault)
{
    return srv_fault_set(fault, SRV_FAULT_SERVER, NULL, "out of memory");
}

static bool has_pictures(const json_t *parts)
{
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part)
    {
        if (!json_is_string(json_object_get(part, "text"))) {
            return true;
        }
    }
    return false;
}

/* Between the texts of a content, as templates get them, and as llama-server joins the start of an answer. */
#define BETWEEN       "\n"
#define BETWEEN_START "\n\n"

/* A content of parts becomes the text they make together, unless there are pictures among them. */
static bool join_parts(json_t *message, const char *between)
{
    const json_t *parts = json_object_get(message, "content"), *part;
    srv_writer text = {0};
    size_t i;
    if (!json_is_array(parts) || has_pictures(parts)) {
        return true;
    }
    json_array_foreach(parts, i, part)
    {
        const json_t *piece = json_object_get(part, "text");
        srv_puts(&text, i > 0 ? between : "");
        srv_put(&text, json_is_string(piece) ? json_string_value(piece) : "", json_string_length(piece));
    }
    const bool good =
        !text.failed &&
        json_object_set_new(message, "content", json_stringn(text.data ? text.data : "", text.length)) == 0;
    srv_writer_free(&text);
    return good;
}

/* Models whose template does not show tools get them described in the system text, and how to call them. */
static bool tell_tools(const mo_model *model, json_t *messages, const srv_tools *tools, srv_fault *fault)
{
    char *json = mo_json_dump(tools->list, JSON_COMPACT), *text = NULL;
    const bool required = tools->calling == SRV_CALLING_REQUIRED || tools->calling == SRV_CALLING_NAMED;
    mo_error err;
    if (!json) {
        return no_memory(fault);
    }
    const mo_status status = mo_tools_text(model, json, strlen(json), required, &text, &err);
    free(json);
    if (status != MO_OK) {
        return srv_fault_status(fault, &err, "tools");
    }
    json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    const bool system = role && strcmp(role, "system") == 0;
    if (system && !join_parts(first, BETWEEN)) {
        mo_free(text);
        return no_memory(fault);
    }
    const json_t *content = json_object_get(first, "content");
    int failed;
    if (system && json_is_string(content)) {
        failed =
            json_object_set_new(first, "content", json_sprintf("%s\n\n%s", json_string_value(content), text));
    } else {
        failed =
            json_array_insert_new(messages, 0, json_pack("{s:s,s:s}", "role", "system", "content", text));
    }
    mo_free(text);
    return !failed || no_memory(fault);
}

/* A call as mo_tools_text() asks for it in the generic way. */
static json_t *call_text(const json_t *call)
{
    const json_t *f = json_object_get(call, "function");
    json_t *arguments = json_object_get(f, "arguments");
    json_t *read = json_is_string(arguments) ? json_loads(json_string_value(arguments), 0, NULL) : NULL;
    json_t *whole = json_pack("{s:{s:O?,s:O?}}", "tool_call", "name", json_object_get(f, "name"), "arguments",
                              read ? read : arguments); /* what is no JSON stays the text it is */
    json_decref(read);
    char *text = whole ? mo_json_dump(whole, 0) : NULL;
    json_t *string = text ? json_string(text) : NULL;
    json_decref(whole);
    free(text);
    return string;
}

/* Adds a line to a message's text. */
static bool add_line(json_t *message, const char *line)
{
    json_t *content = json_object_get(message, "content");
    if (json_is_array(content)) {
        return line &&
               json_array_append_new(content, json_pack("{s:s,s:s}", "type", "text", "text", line)) == 0;
    }
    const char *before = json_string_value(content);
    return line && json_object_set_new(message, "content",
                                       before && before[0] ? json_sprintf("%s\n%s", before, line)
                                                           : json_string(line)) == 0;
}

/* A result with pictures joins the result before it, or is what a user says. */
static bool tell_pictures(json_t *messages, size_t i, json_t *before, json_t *heading)
{
    json_t *message = json_array_get(messages, i), *parts = json_object_get(message, "content");
    json_t *first = json_pack("{s:s,s:O}", "type", "text", "text", heading);
    if (!first || json_array_insert_new(parts, 0, first)) {
        return false;
    }
    if (!json_object_get(before, "moraine_result")) {
        json_object_del(message, "tool_call_id");
        json_object_del(message, "name");
        return json_object_set_new(message, "role", json_string("user")) == 0 &&
               json_object_set_new(message, "moraine_result", json_true()) == 0;
    }
    json_t *content = json_object_get(before, "content");
    if (!json_is_array(content)) {
        json_t *list = json_pack("[{s:s,s:O}]", "type", "text", "text", content);
        if (!list || json_object_set_new(before, "content", list)) {
            return false;
        }
        content = list;
    }
    return json_array_extend(content, parts) == 0 && json_array_remove(messages, i) == 0;
}

/* Calls and their results for templates, and formats without one, that know neither: as JSON, and as what a user says. */
static bool tell_calls(json_t *messages)
{
    bool good = true;
    for (size_t i = 0; i < json_array_size(messages) && good; i++) {
        json_t *message = json_array_get(messages, i),
               *before = i > 0 ? json_array_get(messages, i - 1) : NULL, *call;
        const char *role = json_string_value(json_object_get(message, "role"));
        const bool result_of = role && strcmp(role, "tool") == 0;
        size_t k;
        good = (!result_of && !json_object_get(message, "tool_calls")) || join_parts(message, BETWEEN);
        json_array_foreach(json_object_get(message, "tool_calls"), k, call)
        {
            json_t *text = call_text(call);
            good = good && add_line(message, json_string_value(text));
            json_decref(text);
        }
        json_object_del(message, "tool_calls");
        if (!result_of) {
            continue;
        }
        const char *name = json_string_value(json_object_get(message, "name"));
        if (json_is_array(json_object_get(message, "content"))) {
            json_t *heading = json_sprintf("Result of %s:", name ? name : "the function");
            const bool joins = json_object_get(before, "moraine_result") != NULL;
            good = good && heading && tell_pictures(messages, i, before, heading);
            json_decref(heading);
            i -= joins;
            continue;
        }
        const char *content = json_string_value(json_object_get(message, "content"));
        json_t *result =
            json_sprintf("Result of %s:\n%s", name ? name : "the function", content ? content : "");
        if (json_object_get(before, "moraine_result")) { /* results of one turn are one message */
            good = add_line(before, json_string_value(result)) && json_array_remove(messages, i) == 0;
            i--;
        } else {
            json_object_del(message, "tool_call_id");
            json_object_del(message, "name");
            good = json_object_set_new(message, "role", json_string("user")) == 0 &&
                   json_object_set(message, "content", result) == 0 &&
                   json_object_set_new(message, "moraine_result", json_true()) == 0;
        }
        json_decref(result);
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_object_del(json_array_get(messages, i), "moraine_result");
    }
    return good;
}

/* Formats without a template have a place for roles and texts alone: old thoughts and names are left out, as templates leave them
 * out, and what the system says later on is said by the user. */
static void keep_texts(json_t *messages)
{
    static const char *const others[] = {"reasoning_content", "name", "tool_call_id"};
    size_t i;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
            json_object_del(message, others[k]);
        }
        if (i > 0 && role && strcmp(role, "system") == 0) {
            json_object_set_new(message, "role", json_string("user"));
        }
    }
}

/* The server's variables, and the request's over them. */
static json_t *variables(const srv_parameters *p, const char *given)
{
    json_t *all = given ? json_loads(given, 0, NULL) : NULL; /* checked when the server began */
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
                          const srv_parameters *p, const char *given, srv_fault *fault)
{
    json_t *messages = json_deep_copy(c->messages), *kwargs = variables(p, given);
    bool good = messages ? true : no_memory(fault);
    const bool shown = tools->list && mo_model_shows_tools(model);
    if (good && c->prefill) {
        good = join_parts(json_array_get(messages, json_array_size(messages) - 1), BETWEEN_START) ||
               no_memory(fault);
    }
    good = good && (!tools->list || shown || tell_tools(model, messages, tools, fault));
    if (good && !mo_model_shows_calls(model)) {
        good = tell_calls(messages) || no_memory(fault);
    }
    if (!mo_model_chat_template(model, NULL)) {
        keep_texts(messages);
    }
    json_t *context = good ? json_pack("{s:O}", "messages", messages) : NULL;
    if (context && shown) {
        json_object_set(context, "tools", tools->list);
    }
    if (context && json_object_size(kwargs) > 0) {
        json_object_set(context, "chat_template_kwargs", kwargs);
    }
    if (context && c->prefill) {
        json_object_set_new(context, "continue_final_message", json_true());
    }
    char *json = context ? mo_json_dump(context, JSON_COMPACT) : NULL;
    json_decref(context);
    json_decref(kwargs);
    json_decref(messages);
    if (good && !json) {
        no_memory(fault);
    }
    return json;
}

/* gpt-oss has three levels, and so have formats without a template; others' templates are given the word as it came. */
static const char *effort_of(const mo_model *model, const char *effort)
{
    const bool any = mo_model_chat_template(model, NULL) && strcmp(mo_model_chat_name(model), "harmony") != 0;
    if (!effort || any) {
        return effort;
    }
    return strcmp(effort, "minimal") == 0                               ? "low"
           : strcmp(effort, "xhigh") == 0 || strcmp(effort, "max") == 0 ? "high"
                                                                        : effort;
}

static bool copy_prompt(const mo_prompt *prompt, srv_rendering *out)
{
    const mo_text text = mo_prompt_text(prompt);
    size_t count = 0;
    const int32_t *ids = mo_prompt_tokens(prompt, &count);
    out->text = malloc(text.length + 1);
    out->tokens.ids = malloc((count + 1) * sizeof *ids);
    if (!out->text || !out->tokens.ids) {
        return false;
    }
    memcpy(out->text, text.data, text.length);
    out->text[text.length] = '\0';
    out->length = text.length;
    if (count > 0) {
        memcpy(out->tokens.ids, ids, count * sizeof *ids);
    }
    out->tokens.count = count;
    out->in_thought = mo_prompt_in_thought(prompt);
    return true;
}

bool srv_rendering_make(const mo_model *model, const srv_conversation *conversation, const srv_tools *tools,
                        const srv_parameters *parameters, const char *given, srv_rendering *out,
                        srv_fault *fault)
{
    char *json = context_json(model, conversation, tools, parameters, given, fault);
    if (!json) {
        return false;
    }
    mo_chat_options o = mo_chat_options_default();
    o.thinking = parameters->thinking == SRV_ON    ? MO_THINKING_ON
                 : parameters->thinking == SRV_OFF ? MO_THINKING_OFF
                                                   : MO_THINKING_DEFAULT;
    o.effort = effort_of(model, parameters->effort);
    o.no_prompt = conversation->whole;
    o.tokens_most = out->tokens.most;
    mo_error err;
    mo_prompt *prompt = NULL;
    const mo_status status = mo_prompt_open(model, json, strlen(json), &o, &prompt, &err);
    free(json);
    if (status != MO_OK) {
        return srv_fault_status(fault, &err, "messages");
    }
    const bool good = copy_prompt(prompt, out) || no_memory(fault);
    mo_prompt_close(prompt);
    return good;
}
