/* Conversation: see conversation.h. What all dialects share, and OpenAI's chat. */
#include "server/requests/conversation.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(const srv_field *f)
{
    return srv_fault_set(f->fault, SRV_FAULT_SERVER, NULL, "out of memory");
}

void srv_conversation_free(srv_conversation *c)
{
    json_decref(c->messages);
    srv_writer_free(&c->left_out);
    srv_pictures_free(&c->pictures);
    *c = (srv_conversation){0};
}

/* ---- Messages ---- */

json_t *srv_message_add(srv_conversation *c, const srv_field *at, const char *role)
{
    if (!c->messages) {
        c->messages = json_array();
    }
    json_t *message = json_pack("{s:s}", "role", role);
    if (json_array_append_new(c->messages, message)) { /* it fails for NULL too */
        no_memory(at);
        return NULL;
    }
    return message;
}

bool srv_message_set(json_t *message, const srv_field *at, const char *name, json_t *value)
{
    return json_object_set_new(message, name, value) == 0 || no_memory(at);
}

static json_t *text_part(mo_text text)
{
    return json_pack("{s:s,s:o}", "type", "text", "text", json_stringn(text.data, text.length));
}

bool srv_message_picture(json_t *message, const srv_field *at)
{
    json_t *content = json_object_get(message, "content");
    if (!json_is_array(content)) {
        json_t *parts = json_array();
        const size_t length = json_string_length(content);
        if (!parts || (length && json_array_append_new(
                                     parts, text_part((mo_text){json_string_value(content), length})))) {
            json_decref(parts);
            return no_memory(at);
        }
        if (!srv_message_set(message, at, "content", parts)) {
            return false;
        }
        content = parts;
    }
    return json_array_append_new(content, json_pack("{s:s}", "type", "image")) == 0 || no_memory(at);
}

/* A field that may only be one of these words, with bars between them. */
static bool read_word(srv_field f, const char *words, const char *why)
{
    mo_text text = {NULL, 0};
    if (!srv_read_text(f, &text)) {
        return false;
    }
    for (const char *at = words; text.data && *at;) {
        const size_t length = strcspn(at, "|");
        if (length == text.length && memcmp(at, text.data, length) == 0) {
            return true;
        }
        at += length + (at[length] == '|');
    }
    return !text.data || srv_wrong(&f, "%s", why);
}

/* The picture of a part, wherever its kind has it. */
static bool read_picture(srv_conversation *c, const srv_field *part, mo_text kind)
{
    mo_text text = {NULL, 0}, how = {NULL, 0};
    if (srv_text_is(kind, "image")) { /* Anthropic's */
        const srv_field source = srv_member(part, "source");
        const srv_field data = srv_member(&source, "data"), type = srv_member(&source, "type");
        const srv_field changes = srv_member(part, "transformations"),
                        large = srv_member(&changes, "oversized_image");
        if (!srv_is_object(changes) || !read_word(large, "downsize",
                                                  "is not supported: large pictures are "
                                                  "scaled down; omit it")) {
            return false;
        }
        if (!source.value) {
            return srv_missing(&source);
        }
        if (!srv_is_object(source) || !srv_read_text(type, &how) || !srv_read_text(data, &text)) {
            return false;
        }
        const srv_field address = srv_member(&source, "url");
        if (how.data && srv_text_is(how, "url")) {
            return address.value
                       ? srv_read_text(address, &text) && srv_pictures_add_remote(&c->pictures, part, text)
                       : srv_missing(&address);
        }
        if (!how.data || !srv_text_is(how, "base64")) {
            return srv_wrong(part, "its source must be of type base64 or url");
        }
        return text.data ? srv_pictures_add(&c->pictures, part, text) : srv_missing(&data);
    }
    const srv_field given = srv_member(part, "image_url");
    const bool object = json_is_object(given.value); /* OpenAI's chat; in its responses it is a text */
    const srv_field inner = srv_member(&given, "url"), url = object ? inner : given;
    const srv_field detail = srv_member(object ? &given : part, "detail");
    if (!read_word(detail, "auto|low|high|original", "must be auto, low, high or original")) {
        return false;
    }
    if (!url.value) {
        return srv_missing(&url);
    }
    return srv_read_text(url, &text) && srv_pictures_add_url(&c->pictures, part, text);
}

bool srv_part_picture(srv_conversation *c, const srv_field *part, bool *is)
{
    const srv_field type = srv_member(part, "type");
    const mo_text kind = {json_string_value(type.value), json_string_length(type.value)};
    *is = kind.data &&
          (srv_text_is(kind, "image_url") || srv_text_is(kind, "input_image") || srv_text_is(kind, "image"));
    if (!*is) {
        return true;
    }
    return c->pictures.accepted ? read_picture(c, part, kind)
                                : srv_wrong(part, "image input is not supported");
}

bool srv_message_append(json_t *message, const srv_field *at, const char *name, mo_text text)
{
    json_t *old = json_object_get(message, name);
    const size_t length = json_string_length(old);
    if (json_is_array(old)) {
        return text.length == 0 || json_array_append_new(old, text_part(text)) == 0 || no_memory(at);
    }
    if (length == 0) {
        return srv_message_set(message, at, name, json_stringn(text.data, text.length));
    }
    if (text.length == 0) {
        return true;
    }
    srv_writer w = {0};
    srv_put(&w, json_string_value(old), length);
    srv_put_literal(&w, "\n");
    srv_put(&w, text.data, text.length);
    const bool good =
        !w.failed ? srv_message_set(message, at, name, json_stringn(w.data, w.length)) : no_memory(at);
    srv_writer_free(&w);
    return good;
}

bool srv_message_call(json_t *message, const srv_field *at, mo_text id, mo_text name, const json_t *arguments)
{
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls) {
        if (!srv_message_set(message, at, "tool_calls", json_array())) {
            return false;
        }
        calls = json_object_get(message, "tool_calls");
    }
    json_t *given = arguments ? json_incref((json_t *)arguments) : json_object();
    json_t *call = json_pack("{s:s,s:{s:o,s:o}}", "type", "function", "function", "name",
                             json_stringn(name.data, name.length), "arguments", given);
    int failed = json_array_append_new(calls, call);
    if (!failed && id.data) {
        failed = json_object_set_new(call, "id", json_stringn(id.data, id.length));
    }
    return !failed || no_memory(at);
}

bool srv_part_text(const srv_field *part, mo_text *out)
{
    const srv_field type = srv_member(part, "type");
    if (!json_is_object(part->value)) {
        return srv_wrong_type(part, "an object");
    }
    mo_text kind = {NULL, 0};
    if (!type.value) {
        return srv_missing(&type);
    }
    if (!srv_read_text(type, &kind)) {
        return false;
    }
    const char *name =
        srv_text_is(kind, "text") || srv_text_is(kind, "input_text") || srv_text_is(kind, "output_text")
            ? "text"
        : srv_text_is(kind, "refusal") ? "refusal"
                                       : NULL;
    if (!name) {
        return strstr(kind.data, "image") ? srv_wrong(part, "image input is not supported")
               : strstr(kind.data, "audio")
                   ? srv_wrong(part, "audio input is not supported")
                   : srv_wrong(&type, "parts of type %.64s are not supported", kind.data);
    }
    const srv_field text = srv_member(part, name);
    return text.value ? srv_read_text(text, out) : srv_missing(&text);
}

bool srv_message_json(json_t *message, const srv_field *at, const char *name, const json_t *value)
{
    if (json_is_string(value)) {
        return srv_message_append(message, at, name,
                                  (mo_text){json_string_value(value), json_string_length(value)});
    }
    char *json = mo_json_dump(value, JSON_ENCODE_ANY);
    const bool good =
        json ? srv_message_append(message, at, name, (mo_text){json, strlen(json)}) : no_memory(at);
    free(json);
    return good;
}

bool srv_message_content(srv_conversation *c, json_t *message, const srv_field *f, const char *name)
{
    mo_text text = {"", 0};
    if (!f->value || json_is_string(f->value)) {
        return srv_read_text(*f, &text) && srv_message_append(message, f, name, text);
    }
    if (!json_is_array(f->value)) {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || strcmp(role, "tool") != 0) {
            return srv_wrong_type(f, "a string or a list of parts");
        }
        return srv_message_json(message, f, name, f->value);
    }
    bool good = srv_message_append(message, f, name, text);
    for (size_t i = 0; i < srv_count(f) && good; i++) {
        const srv_field part = srv_element(f, i);
        bool picture;
        good = srv_part_picture(c, &part, &picture);
        if (good) {
            good = picture ? srv_message_picture(message, &part)
                           : srv_part_text(&part, &text) && srv_message_append(message, &part, name, text);
        }
    }
    return good;
}

/* ---- Ends ---- */

bool srv_conversation_miss(srv_conversation *c, const srv_field *f, const char *why)
{
    char path[sizeof f->fault->param];
    srv_field_path(f, path, sizeof path);
    srv_puts(&c->left_out, path);
    srv_put_literal(&c->left_out, ": ");
    srv_puts(&c->left_out, why);
    srv_put_literal(&c->left_out, "\n");
    return !c->left_out.failed || no_memory(f);
}

static bool name_results(const srv_field *root, json_t *messages)
{
    json_t *names = json_object(), *message, *call;
    bool good = names != NULL;
    size_t i, k;
    json_array_foreach(messages, i, message)
    {
        json_array_foreach(json_object_get(message, "tool_calls"), k, call)
        {
            const char *id = json_string_value(json_object_get(call, "id"));
            json_t *name = json_object_get(json_object_get(call, "function"), "name");
            good = good && (!id || json_object_set(names, id, name) == 0);
        }
        const char *role = json_string_value(json_object_get(message, "role"));
        const char *id = json_string_value(json_object_get(message, "tool_call_id"));
        if (id && strcmp(role, "tool") == 0 && !json_object_get(message, "name") &&
            json_object_get(names, id)) {
            good = good && json_object_set(message, "name", json_object_get(names, id)) == 0;
        }
    }
    json_decref(names);
    return good || no_memory(root);
}

static bool is_assistant(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

static bool find_prefill(const srv_field *root, srv_conversation *c)
{
    const srv_field go_on = srv_member(root, "continue_final_message"),
                    begin = srv_member(root, "add_generation_prompt");
    const srv_field messages = srv_member(root, "messages");
    bool wanted = false, prompt = true;
    if (!srv_read_bool(go_on, &wanted) || !srv_read_bool(begin, &prompt)) {
        return false;
    }
    const size_t count = json_array_size(c->messages);
    const json_t *last = json_array_get(c->messages, count - 1);
    const bool possible = is_assistant(last) && json_array_size(json_object_get(last, "tool_calls")) == 0;
    if (wanted && !possible) {
        return srv_wrong(&go_on, "the last message must be from the assistant and have no tool calls");
    }
    c->prefill = possible && (wanted || (!go_on.value && prompt));
    c->whole = !prompt && !c->prefill;
    if (c->prefill && begin.value && prompt) {
        return srv_wrong(&begin, "cannot be true when the last message is the start of the answer");
    }
    if (c->prefill && is_assistant(json_array_get(c->messages, count - 2))) {
        return srv_wrong(&messages, "cannot end with two assistant messages");
    }
    return true;
}

bool srv_conversation_finish(const srv_field *root, srv_conversation *c)
{
    return name_results(root, c->messages) && find_prefill(root, c);
}

bool srv_conversation_plain(const srv_field *at, mo_text system, mo_text user, srv_conversation *out)
{
    json_t *message;
    if (system.length > 0 && (!(message = srv_message_add(out, at, "system")) ||
                              !srv_message_append(message, at, "content", system))) {
        return false;
    }
    return (message = srv_message_add(out, at, "user")) && srv_message_append(message, at, "content", user);
}

/* ---- OpenAI's chat ---- */

/* A text as it is; parts as a list of texts; null as null, or as an empty text where the message has nothing else. */
static bool read_content(srv_conversation *c, const srv_field *f, json_t *message)
{
    if (!f->value) {
        const bool said =
            json_object_get(message, "tool_calls") || json_object_get(message, "reasoning_content");
        return srv_message_set(message, f, "content", said ? json_null() : json_string(""));
    }
    if (json_is_string(f->value)) {
        return json_object_set(message, "content", (json_t *)f->value) == 0 || no_memory(f);
    }
    if (!json_is_array(f->value)) { /* a tool may say any JSON */
        return srv_message_content(c, message, f, "content");
    }
    json_t *parts = json_array();
    bool good = parts ? true : no_memory(f);
    for (size_t i = 0; i < srv_count(f) && good; i++) {
        const srv_field part = srv_element(f, i);
        mo_text text = {"", 0};
        bool picture;
        good = srv_part_picture(c, &part, &picture) && (picture || srv_part_text(&part, &text));
        if (good &&
            json_array_append_new(parts, picture ? json_pack("{s:s}", "type", "image") : text_part(text))) {
            good = no_memory(f);
        }
    }
    if (!good) {
        json_decref(parts);
        return false;
    }
    return srv_message_set(message, f, "content", parts);
}

static bool read_call(const srv_field *call, json_t *message)
{
    const srv_field custom = srv_member(call, "custom"); /* a call whose input is a text */
    const srv_field function = custom.value ? custom : srv_member(call, "function");
    if (!json_is_object(call->value)) {
        return srv_wrong_type(call, "an object");
    }
    if (!function.value) {
        return srv_missing(&function);
    }
    const srv_field name = srv_member(&function, "name");
    const srv_field arguments = srv_member(&function, custom.value ? "input" : "arguments");
    mo_text id = {NULL, 0}, text = {"", 0};
    if (!srv_is_object(function) || !srv_read_text(srv_member(call, "id"), &id)) {
        return false;
    }
    if (!name.value) {
        return srv_missing(&name);
    }
    return srv_read_text(name, &text) && srv_message_call(message, call, id, text, arguments.value);
}

static bool read_calls(const srv_field *f, json_t *message)
{
    if (!srv_is_list(*f)) {
        return false;
    }
    for (size_t i = 0; i < srv_count(f); i++) {
        const srv_field call = srv_element(f, i);
        if (!read_call(&call, message)) {
            return false;
        }
    }
    return true;
}

/* The call of an assistant's message as it was written before there were tool_calls. */
static bool read_old_call(const srv_field *f, json_t *message)
{
    if (!f->value) {
        return true;
    }
    const srv_field name = srv_member(f, "name"), arguments = srv_member(f, "arguments");
    mo_text text = {"", 0};
    if (!srv_is_object(*f)) {
        return false;
    }
    if (!name.value) {
        return srv_missing(&name);
    }
    return srv_read_text(name, &text) &&
           srv_message_call(message, f, (mo_text){NULL, 0}, text, arguments.value);
}

static bool copy_text(const srv_field *in, const char *from, json_t *message, const char *to)
{
    const srv_field f = srv_member(in, from);
    mo_text text = {NULL, 0};
    return srv_read_text(f, &text) &&
           (!text.data || json_object_set(message, to, (json_t *)f.value) == 0 || no_memory(f.in));
}

static const char *read_role(const srv_field *in)
{
    static const char *const roles[][2] = {{"system", "system"}, {"developer", "system"},
                                           {"user", "user"},     {"assistant", "assistant"},
                                           {"tool", "tool"},     {"function", "tool"}};
    const srv_field f = srv_member(in, "role");
    mo_text text = {NULL, 0};
    if (!f.value) {
        srv_missing(&f);
        return NULL;
    }
    if (!srv_read_text(f, &text)) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (srv_text_is(text, roles[i][0])) {
            return roles[i][1];
        }
    }
    srv_wrong(&f, "must be system, developer, user, assistant or tool, not %.64s", text.data);
    return NULL;
}

static bool read_message(const srv_field *f, srv_conversation *out)
{
    if (!json_is_object(f->value)) {
        return srv_wrong_type(f, "an object");
    }
    const char *role = read_role(f);
    json_t *message = role ? srv_message_add(out, f, role) : NULL;
    if (!message) {
        return false;
    }
    const srv_field content = srv_member(f, "content"), calls = srv_member(f, "tool_calls");
    const srv_field old = srv_member(f, "function_call");
    const srv_field thought =
        srv_member_of(f, (const char *const[]){"reasoning_content", "reasoning", "thinking", NULL});
    const bool assistant = strcmp(role, "assistant") == 0;
    if (assistant && (!read_calls(&calls, message) || !read_old_call(&old, message))) {
        return false;
    }
    const srv_field audio = srv_member(f, "audio"), refusal = srv_member(f, "refusal");
    if (audio.value) {
        return srv_wrong(&audio, "audio input is not supported");
    }
    if (assistant && json_is_string(thought.value) &&
        !copy_text(f, thought.name, message, "reasoning_content")) {
        return false;
    }
    if (!content.value && !assistant && strcmp(role, "tool") != 0) {
        return srv_missing(&content);
    }
    return read_content(out, assistant && refusal.value && !content.value ? &refusal : &content, message) &&
           copy_text(f, "name", message, "name") && copy_text(f, "tool_call_id", message, "tool_call_id");
}

bool srv_conversation_list(const srv_field *root, size_t least, srv_field *out)
{
    const srv_field messages = srv_member(root, "messages");
    *out = messages;
    if (!messages.value) {
        return srv_missing(&messages);
    }
    if (!srv_is_list(messages)) {
        return false;
    }
    if (srv_count(&messages) < least) {
        return srv_wrong(&messages, "must have at least one message");
    }
    if (srv_count(&messages) > SRV_MESSAGES_MAX) {
        return srv_wrong(&messages, "has more than %d messages", SRV_MESSAGES_MAX);
    }
    return true;
}

bool srv_conversation_chat(const srv_field *root, srv_conversation *out)
{
    srv_field messages;
    const srv_field old = srv_member(root, "functions");
    if (json_array_size(old.value) > 0) {
        return srv_wrong(&old, "is no longer supported; use tools instead");
    }
    if (!srv_conversation_list(root, 1, &messages)) {
        return false;
    }
    for (size_t i = 0; i < srv_count(&messages); i++) {
        const srv_field message = srv_element(&messages, i);
        if (!read_message(&message, out)) {
            return false;
        }
    }
    return srv_conversation_finish(root, out);
}
