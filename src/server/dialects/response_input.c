/* Response input: the items of OpenAI's responses, of which several make one message, and those that were kept. */
#include "server/dialects/response_input.h"

#include <string.h>

#include "server/common/identity.h"
#include "server/dialects/response_store.h"
#include "server/requests/conversation.h"

/* Conversation: the items of OpenAI's responses, of which several make one message. */

/* The assistant's message that neighbouring items of it belong to: the last one, or a new one. */
static json_t *assistant(srv_conversation *c, const srv_field *at)
{
    json_t *last = json_array_get(c->messages, json_array_size(c->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (role && strcmp(role, "assistant") == 0) {
        return last;
    }
    json_t *message = srv_message_add(c, at, "assistant");
    return message && srv_message_append(message, at, "content", (mo_text){"", 0}) ? message : NULL;
}

static bool read_message(const srv_field *item, srv_conversation *out)
{
    static const char *const roles[] = {"user", "system", "developer", "assistant"};
    const srv_field role = srv_member(item, "role"), content = srv_member(item, "content");
    mo_text name = {NULL, 0};
    if (!role.value) {
        return srv_missing(&role);
    }
    if (!srv_read_text(role, &name)) {
        return false;
    }
    if (!content.value && !srv_text_is(name, "assistant")) {
        return srv_missing(&content);
    }
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (srv_text_is(name, roles[i])) {
            json_t *message =
                i == 3 ? assistant(out, item) : srv_message_add(out, item, i == 2 ? "system" : roles[i]);
            return message && srv_message_content(out, message, &content, "content");
        }
    }
    return srv_wrong(&role, "must be user, system, developer or assistant, not %.64s", name.data);
}

static bool read_call(const srv_field *item, const char *arguments_name, srv_conversation *out)
{
    const srv_field name = srv_member(item, "name"), id = srv_member(item, "call_id");
    const srv_field arguments = srv_member(item, arguments_name);
    mo_text text = {"", 0}, call = {NULL, 0};
    if (!name.value) {
        return srv_missing(&name);
    }
    json_t *message = assistant(out, item);
    return message && srv_read_text(name, &text) && srv_read_text(id, &call) &&
           srv_message_call(message, item, call, text, arguments.value);
}

static bool read_output(const srv_field *item, srv_conversation *out)
{
    const srv_field id = srv_member_of(item, (const char *const[]){"call_id", "id", NULL});
    const srv_field output = srv_member(item, "output");
    mo_text call = {NULL, 0};
    if (!id.value) {
        return srv_missing(&id);
    }
    json_t *message = srv_read_text(id, &call) ? srv_message_add(out, item, "tool") : NULL;
    return message && srv_message_set(message, item, "tool_call_id", json_stringn(call.data, call.length)) &&
           srv_message_content(out, message, &output, "content");
}

/* A call of a tool that its maker's server or program ran: a shell, a search. "local_shell_call" calls local_shell, with what is
 * particular to it as arguments; where the item has the result too, it follows. */
static bool read_own_call(const srv_field *item, mo_text kind, srv_conversation *out)
{
    static const char *const common[] = {"type",    "id",      "call_id", "status", "output",
                                         "outputs", "results", "result",  "error"};
    const srv_field given = srv_member(item, "name"), arguments = srv_member(item, "arguments");
    const srv_field action = srv_member_of(item, (const char *const[]){"action", "operation", NULL});
    const srv_field id = srv_member_of(item, (const char *const[]){"call_id", "id", NULL});
    const srv_field result =
        srv_member_of(item, (const char *const[]){"output", "outputs", "results", "error", NULL});
    mo_text name = {kind.data, kind.length - strlen("_call")}, call = {NULL, 0};
    json_t *message = assistant(out, item), *own = NULL;
    const json_t *with = arguments.value ? arguments.value : action.value;
    if (!message || !srv_read_text(given, &name) || !srv_read_text(id, &call)) {
        return false;
    }
    if (!with) {
        with = own = json_copy((json_t *)item->value);
        for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
            json_object_del(own, common[i]);
        }
    }
    bool good = srv_message_call(message, item, call, name, with);
    json_decref(own);
    if (!good || !result.value) {
        return good;
    }
    message = srv_message_add(out, item, "tool");
    return message &&
           (!call.data ||
            srv_message_set(message, item, "tool_call_id", json_stringn(call.data, call.length))) &&
           srv_message_json(message, item, "content", result.value);
}

/* The thought as we gave it; of others' only a summary may be there, or nothing that can be read. */
static bool read_reasoning(const srv_field *item, srv_conversation *out)
{
    json_t *message = assistant(out, item);
    if (!message) {
        return false;
    }
    static const char *const names[] = {"content", "summary"};
    for (size_t n = 0; n < 2; n++) {
        const srv_field list = srv_member(item, names[n]);
        if (!srv_is_list(list)) {
            return false;
        }
        for (size_t i = 0; i < srv_count(&list); i++) {
            const srv_field part = srv_element(&list, i);
            mo_text text = {"", 0};
            if (!srv_read_text(srv_member(&part, "text"), &text) ||
                !srv_message_append(message, &part, "reasoning_content", text)) {
                return false;
            }
        }
        if (srv_count(&list) > 0) {
            break;
        }
    }
    return true;
}

static bool read_item(const srv_field *item, srv_conversation *out)
{
    const srv_field type = srv_member(item, "type");
    mo_text kind = {"message", 7};
    if (!json_is_object(item->value)) {
        return srv_wrong_type(item, "an object");
    }
    if (!srv_read_text(type, &kind)) {
        return false;
    }
    if (srv_text_is(kind, "message")) {
        return read_message(item, out);
    }
    if (srv_text_is(kind, "function_call")) {
        return read_call(item, "arguments", out);
    }
    if (srv_text_is(kind, "custom_tool_call")) {
        return read_call(item, "input", out);
    }
    if (srv_text_ends(kind, "_call_output")) {
        return read_output(item, out);
    }
    if (srv_text_ends(kind, "_call")) {
        return read_own_call(item, kind, out);
    }
    if (srv_text_is(kind, "reasoning")) {
        return read_reasoning(item, out);
    }
    if (srv_text_is(kind, "item_reference")) {
        return srv_conversation_miss(out, item, "the item it refers to is not stored; it was skipped");
    }
    if (srv_text_is(kind, "compaction") || strncmp(kind.data, "mcp_", 4) == 0) {
        return srv_conversation_miss(out, item,
                                     "only the server that created it can read it; it was skipped");
    }
    return srv_wrong(&type, "items of type %.64s are not supported", kind.data);
}

static bool read_items(const srv_field *list, srv_conversation *out)
{
    if (srv_count(list) > SRV_MESSAGES_MAX) {
        return srv_wrong(list, "has more than %d items", SRV_MESSAGES_MAX);
    }
    for (size_t i = 0; i < srv_count(list); i++) {
        const srv_field item = srv_element(list, i);
        if (!read_item(&item, out)) {
            return false;
        }
    }
    return true;
}

bool srv_conversation_responses(const srv_field *root, srv_conversation *out)
{
    const srv_field input = srv_member(root, "input"), instructions = srv_member(root, "instructions");
    srv_field earlier = srv_member(root, "previous_response_id");
    mo_text text = {"", 0};
    if (!srv_read_text(instructions, &text)) {
        return false;
    }
    if (!input.value) {
        return srv_missing(&input);
    }
    if (text.length > 0) {
        json_t *message = srv_message_add(out, &instructions, "system");
        if (!message || !srv_message_append(message, &instructions, "content", text)) {
            return false;
        }
    }
    earlier.value = out->before;
    if (out->before && !read_items(&earlier, out)) {
        return false;
    }
    if (json_is_string(input.value)) {
        srv_read_text(input, &text);
        return srv_conversation_plain(&input, (mo_text){"", 0}, text, out) &&
               (!out->before || srv_conversation_finish(root, out));
    }
    if (!json_is_array(input.value)) {
        return srv_wrong_type(&input, "a string or a list of items");
    }
    if (!read_items(&input, out)) {
        return false;
    }
    return srv_count(&input) > 0 && json_array_size(out->messages) > 0
               ? srv_conversation_finish(root, out)
               : srv_wrong(&input, "must have at least one item");
}

/* ---- Reading ---- */

static bool no_memory(srv_generation *g)
{
    return srv_fault_set(&g->fault, SRV_FAULT_SERVER, NULL, "out of memory");
}

/* What was before the answer that the request goes on from, and that answer. */
static bool read_previous(srv_generation *g, const srv_field *id)
{
    mo_text name = {NULL, 0};
    srv_kept_response kept;
    srv_response_store *store = g->history.kept;
    if (!id->value) {
        return true;
    }
    if (!srv_read_text(*id, &name)) {
        return false;
    }
    if (!store || !srv_response_store_get(store, name.data, srv_request_owner(g->request), &kept)) {
        return srv_wrong(id, "no answer with that id is stored; send the whole conversation as input");
    }
    g->history.before = json_copy(kept.input); /* the list is new, its items are shared */
    const bool good = g->history.before &&
                      json_array_extend(g->history.before, json_object_get(kept.response, "output")) == 0;
    g->history.bytes = kept.bytes;
    json_decref(kept.response);
    json_decref(kept.input);
    return good || no_memory(g);
}

/* Those that are not kept are left out later, and the answer says so. */
static void replace_references(srv_generation *g, json_t *input)
{
    srv_response_store *store = g->history.kept;
    for (size_t i = 0; store && i < json_array_size(input); i++) {
        const json_t *item = json_array_get(input, i);
        const char *type = json_string_value(json_object_get(item, "type")),
                   *id = json_string_value(json_object_get(item, "id"));
        json_t *kept = id && type && strcmp(type, "item_reference") == 0
                           ? srv_response_store_item(store, id, srv_request_owner(g->request))
                           : NULL;
        if (kept) {
            json_array_set_new(input, i, kept);
        }
    }
}

bool srv_response_history_read(srv_generation *g, const srv_field *root)
{
    const srv_field previous = srv_member(root, "previous_response_id");
    bool store = true;
    if (!srv_read_bool(srv_member(root, "store"), &store) || !read_previous(g, &previous)) {
        return false;
    }
    g->conversation.before = g->history.before;
    g->history.store = store && g->history.kept;
    replace_references(g, json_object_get(g->root, "input"));
    return true;
}

/* ---- Keeping ---- */

/* An item as lists of input show it: with an id and a type. */
static json_t *listed(const json_t *item)
{
    char id[SRV_RESPONSE_ID];
    json_t *copy = json_copy((json_t *)item);
    const char *type = json_string_value(json_object_get(copy, "type"));
    if (copy && !type) {
        type = "message";
        json_object_set_new(copy, "type", json_string(type));
    }
    const json_t *content = json_object_get(copy, "content");
    if (copy && json_is_string(content)) {
        const char *role = json_string_value(json_object_get(copy, "role"));
        const bool ours = role && strcmp(role, "assistant") == 0;
        json_object_set_new(
            copy, "content",
            json_pack("[{s:s, s:O}]", "type", ours ? "output_text" : "input_text", "text", content));
    }
    if (copy && !json_is_string(json_object_get(copy, "id"))) {
        srv_identity(strcmp(type, "message") == 0 ? "msg_" : "item_", id, sizeof id);
        json_object_set_new(copy, "id", json_string(id));
    }
    return copy;
}

/* All items before the answer. */
static json_t *all_input(const srv_generation *g)
{
    const json_t *input = json_object_get(g->root, "input");
    json_t *all = g->history.before ? json_copy(g->history.before) : json_array();
    if (json_is_string(input)) {
        json_t *item = json_pack("{s:s, s:O}", "role", "user", "content", input);
        json_array_append_new(all, listed(item));
        json_decref(item);
    }
    for (size_t i = 0; i < json_array_size(input); i++) {
        json_array_append_new(all, listed(json_array_get(input, i)));
    }
    return all;
}

void srv_response_history_keep(srv_generation *g, const char *response, size_t length)
{
    if (!g->history.store) {
        return;
    }
    const srv_kept_response kept = {.response = json_loadb(response, length, JSON_ALLOW_NUL, NULL),
                                    .input = all_input(g),
                                    .bytes = g->history.bytes + srv_request_body(g->request).length + length};
    if (kept.response && kept.input) {
        srv_response_store_add(g->history.kept, g->id, srv_request_owner(g->request), &kept);
    } else {
        json_decref(kept.response);
        json_decref(kept.input);
    }
}
