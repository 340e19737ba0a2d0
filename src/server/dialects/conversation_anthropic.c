/* Conversation: Anthropic's messages, whose content is made of blocks. */
#include <stdlib.h>
#include <string.h>

#include "server/requests/conversation.h"

/* ---- System ---- */

/* An agent's stamp in the first system block differs in every request: "x-anthropic-billing-header: ...; cch=XXXXX;". Its value
 * is blanked, or no prompt would ever have its predecessor's prefix. */
static bool append_system(json_t *message, const srv_field *at, mo_text text)
{
    static const char header[] = "x-anthropic-billing-header:", mark[] = "cch=";
    if (text.length < sizeof header - 1 || memcmp(text.data, header, sizeof header - 1) != 0) {
        return srv_message_append(message, at, "content", text);
    }
    char *copy = malloc(text.length + 1);
    if (!copy) {
        return srv_fault_set(at->fault, SRV_FAULT_SERVER, NULL, "out of memory");
    }
    memcpy(copy, text.data, text.length + 1);
    const size_t line = strcspn(copy, "\n");
    for (size_t i = 0; i + sizeof mark - 1 <= line; i++) {
        if (memcmp(copy + i, mark, sizeof mark - 1) == 0) {
            for (i += sizeof mark - 1; i < line && copy[i] != ';' && copy[i] != ' '; i++) {
                copy[i] = '0';
            }
        }
    }
    const bool good = srv_message_append(message, at, "content", (mo_text){copy, text.length});
    free(copy);
    return good;
}

static bool read_system(const srv_field *f, srv_conversation *out)
{
    mo_text text = {"", 0};
    if (!f->value || json_string_length(f->value) + json_array_size(f->value) == 0) {
        return !f->value || json_is_string(f->value) || json_is_array(f->value) ||
               srv_wrong_type(f, "a string or a list of blocks");
    }
    json_t *message = srv_message_add(out, f, "system");
    if (!message) {
        return false;
    }
    if (json_is_string(f->value)) {
        return srv_read_text(*f, &text) && append_system(message, f, text);
    }
    for (size_t i = 0; i < srv_count(f); i++) {
        const srv_field block = srv_element(f, i);
        if (!srv_part_text(&block, &text) || !append_system(message, &block, text)) {
            return false;
        }
    }
    return true;
}

/* ---- Blocks ---- */

static bool read_result(const srv_field *block, srv_conversation *out)
{
    const srv_field id = srv_member(block, "tool_use_id"), content = srv_member(block, "content");
    json_t *message = srv_message_add(out, block, "tool");
    mo_text text = {"", 0};
    if (!message) {
        return false;
    }
    if (!id.value) {
        return srv_missing(&id);
    }
    return srv_read_text(id, &text) &&
           srv_message_set(message, block, "tool_call_id", json_stringn(text.data, text.length)) &&
           srv_message_content(message, &content, "content");
}

/* What a tool of another server said, which stands in the assistant's message: blocks that only their maker knows are given as
 * they are written. */
static bool read_server_result(const srv_field *block, srv_conversation *out)
{
    const srv_field content = srv_member(block, "content");
    mo_text id = {NULL, 0};
    json_t *message = srv_message_add(out, block, "tool");
    if (!message || !srv_read_text(srv_member(block, "tool_use_id"), &id) ||
        (id.data && !srv_message_set(message, block, "tool_call_id", json_stringn(id.data, id.length)))) {
        return false;
    }
    bool texts = json_is_array(content.value);
    for (size_t i = 0; i < srv_count(&content); i++) {
        const srv_field part = srv_element(&content, i), type = srv_member(&part, "type");
        const char *kind = json_string_value(type.value);
        texts = texts && kind && strcmp(kind, "text") == 0;
    }
    if (texts || !content.value || json_is_string(content.value)) {
        return srv_message_content(message, &content, "content");
    }
    return srv_message_json(message, block, "content", content.value);
}

static bool read_use(const srv_field *block, json_t *message)
{
    const srv_field name = srv_member(block, "name"), input = srv_member(block, "input");
    mo_text id = {NULL, 0}, text = {"", 0};
    if (!name.value) {
        return srv_missing(&name);
    }
    return srv_read_text(srv_member(block, "id"), &id) && srv_read_text(name, &text) &&
           srv_message_call(message, block, id, text, input.value);
}

static bool read_thought(const srv_field *block, json_t *message)
{
    mo_text text = {"", 0};
    return srv_read_text(srv_member(block, "thinking"), &text) &&
           srv_message_append(message, block, "reasoning_content", text);
}

/* The message that text of a role goes to: the last one where it has the same role. */
static json_t *message_of(srv_conversation *c, const srv_field *at, const char *role)
{
    json_t *last = json_array_get(c->messages, json_array_size(c->messages) - 1);
    const char *its = json_string_value(json_object_get(last, "role"));
    if (last && strcmp(its, role) == 0 && strcmp(role, "system") != 0) {
        return last;
    }
    json_t *message = srv_message_add(c, at, role);
    return message && srv_message_append(message, at, "content", (mo_text){"", 0}) ? message : NULL;
}

static bool read_block(const srv_field *block, const char *role, srv_conversation *out)
{
    const srv_field type = srv_member(block, "type");
    const bool assistant = strcmp(role, "assistant") == 0;
    mo_text kind = {NULL, 0}, text = {"", 0};
    if (!json_is_object(block->value)) {
        return srv_wrong_type(block, "an object");
    }
    if (!type.value) {
        return srv_missing(&type);
    }
    if (!srv_read_text(type, &kind)) {
        return false;
    }
    if (srv_text_is(kind, "tool_result") && !assistant) {
        return read_result(block, out);
    }
    if (srv_text_ends(kind, "_tool_result") && assistant) {
        return read_server_result(block, out);
    }
    if (srv_text_is(kind, "redacted_thinking")) { /* nobody but its maker can read it */
        return true;
    }
    if (srv_text_is(kind, "image") || srv_text_is(kind, "document")) {
        return srv_wrong(block, "%s input is not supported", kind.data);
    }
    json_t *message = message_of(out, block, role);
    if (!message) {
        return false;
    }
    if ((srv_text_is(kind, "tool_use") || srv_text_ends(kind, "_tool_use")) && assistant) {
        return read_use(block, message);
    }
    if (srv_text_is(kind, "thinking") && assistant) {
        return read_thought(block, message);
    }
    return srv_part_text(block, &text) && srv_message_append(message, block, "content", text);
}

/* Results of tools first, then the rest: a template has them in that order. */
static bool read_blocks(const srv_field *list, const char *role, srv_conversation *out)
{
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < srv_count(list); i++) {
            const srv_field block = srv_element(list, i), type = srv_member(&block, "type");
            const char *kind = json_string_value(type.value);
            const bool result = kind && strcmp(kind, "tool_result") == 0;
            if (result == (pass == 0) && !read_block(&block, role, out)) {
                return false;
            }
        }
    }
    return true;
}

static bool read_message(const srv_field *f, srv_conversation *out)
{
    const srv_field role = srv_member(f, "role"), content = srv_member(f, "content");
    mo_text name = {NULL, 0}, text = {"", 0};
    if (!json_is_object(f->value)) {
        return srv_wrong_type(f, "an object");
    }
    if (!role.value) {
        return srv_missing(&role);
    }
    if (!srv_read_text(role, &name)) {
        return false;
    }
    const char *known = srv_text_is(name, "user")        ? "user"
                        : srv_text_is(name, "assistant") ? "assistant"
                        : srv_text_is(name, "system")    ? "system"
                                                         : NULL;
    if (!known) {
        return srv_wrong(&role, "must be user or assistant, not %.64s", name.data);
    }
    if (!content.value && strcmp(known, "assistant") != 0) {
        return srv_missing(&content);
    }
    if (!content.value || json_is_string(content.value)) {
        json_t *message = message_of(out, f, known);
        return message && srv_read_text(content, &text) && srv_message_append(message, f, "content", text);
    }
    if (!json_is_array(content.value)) {
        return srv_wrong_type(&content, "a string or a list of blocks");
    }
    return read_blocks(&content, known, out);
}

/* Threads are kept by Anthropic's own server: a request that continues one has only its newest messages. The SDK sends the whole
 * history when it gets this code. */
static bool refuse_thread(const srv_field *thread)
{
    srv_wrong(thread, "message threads are not kept here; send the whole conversation");
    thread->fault->error_code = "thread_unsupported_request";
    return false;
}

bool srv_conversation_anthropic(const srv_field *root, srv_conversation *out)
{
    const srv_field messages = srv_member(root, "messages"), system = srv_member(root, "system"),
                    thread = srv_member(root, "thread");
    if (thread.value) {
        return refuse_thread(&thread);
    }
    if (!messages.value) {
        return srv_missing(&messages);
    }
    if (!srv_is_list(messages)) {
        return false;
    }
    if (srv_count(&messages) == 0) {
        return srv_wrong(&messages, "must have at least one message");
    }
    if (srv_count(&messages) > SRV_MESSAGES_MAX) {
        return srv_wrong(&messages, "has more than %d messages", SRV_MESSAGES_MAX);
    }
    if (!read_system(&system, out)) {
        return false;
    }
    for (size_t i = 0; i < srv_count(&messages); i++) {
        const srv_field message = srv_element(&messages, i);
        if (!read_message(&message, out)) {
            return false;
        }
    }
    return json_array_size(out->messages) > 0 ? srv_conversation_finish(root, out)
                                              : srv_wrong(&messages, "have no content");
}
