/* Response history: see response_history.h. */
#include "server/dialects/response_history.h"

#include <string.h>

#include "server/common/identity.h"
#include "server/dialects/response_store.h"

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
