/* Conversation: Ollama's messages, whose calls have objects for arguments and no ids. */
#include <string.h>

#include "server/requests/conversation.h"

static bool no_images(const srv_field *in)
{
    const srv_field images = srv_member(in, "images");
    return srv_is_list(images) &&
           (srv_count(&images) == 0 || srv_wrong(&images, "image input is not supported"));
}

static bool read_calls(const srv_field *list, json_t *message)
{
    if (!srv_is_list(*list)) {
        return false;
    }
    for (size_t i = 0; i < srv_count(list); i++) {
        const srv_field call = srv_element(list, i), function = srv_member(&call, "function");
        const srv_field name = srv_member(&function, "name"), arguments = srv_member(&function, "arguments");
        mo_text id = {NULL, 0}, text = {"", 0};
        if (!function.value) {
            return srv_missing(&function);
        }
        if (!srv_is_object(function) || !srv_read_text(srv_member(&call, "id"), &id)) {
            return false;
        }
        if (!name.value) {
            return srv_missing(&name);
        }
        if (!srv_read_text(name, &text) || !srv_message_call(message, &call, id, text, arguments.value)) {
            return false;
        }
    }
    return true;
}

static bool read_message(const srv_field *f, srv_conversation *out)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const srv_field role = srv_member(f, "role"), calls = srv_member(f, "tool_calls");
    mo_text name = {NULL, 0}, text = {"", 0}, thought = {NULL, 0}, tool = {NULL, 0}, id = {NULL, 0};
    if (!json_is_object(f->value)) {
        return srv_wrong_type(f, "an object");
    }
    if (!role.value) {
        return srv_missing(&role);
    }
    if (!srv_read_text(role, &name) || !srv_read_text(srv_member(f, "content"), &text) ||
        !srv_read_text(srv_member(f, "thinking"), &thought) ||
        !srv_read_text(srv_member(f, "tool_call_id"), &id) ||
        !srv_read_text(srv_member_of(f, (const char *const[]){"tool_name", "name", NULL}), &tool) ||
        !no_images(f)) {
        return false;
    }
    const char *known = NULL;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        known = srv_text_is(name, roles[i]) ? roles[i] : known;
    }
    if (!known) {
        return srv_wrong(&role, "must be system, user, assistant or tool, not %.64s", name.data);
    }
    json_t *message = srv_message_add(out, f, known);
    return message && srv_message_append(message, f, "content", text) &&
           (!thought.length || srv_message_append(message, f, "reasoning_content", thought)) &&
           (!tool.data || srv_message_append(message, f, "name", tool)) &&
           (!id.data || srv_message_append(message, f, "tool_call_id", id)) && read_calls(&calls, message);
}

bool srv_conversation_ollama(const srv_field *root, srv_conversation *out)
{
    const srv_field messages = srv_member(root, "messages");
    if (!messages.value) {
        return srv_missing(&messages);
    }
    if (!srv_is_list(messages)) {
        return false;
    }
    if (srv_count(&messages) > SRV_MESSAGES_MAX) {
        return srv_wrong(&messages, "has more than %d messages", SRV_MESSAGES_MAX);
    }
    for (size_t i = 0; i < srv_count(&messages); i++) {
        const srv_field message = srv_element(&messages, i);
        if (!read_message(&message, out)) {
            return false;
        }
    }
    return srv_count(&messages) == 0 || srv_conversation_finish(root, out);
}
