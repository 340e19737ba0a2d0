/* Anthropic's messages: requests, answers and streams. */
#include <stdlib.h>
#include <string.h>

#include "server/common/identity.h"
#include "server/dialects/dialects.h"
#include "server/requests/choice.h"
#include "server/requests/conversation.h"
#include "server/requests/thinking.h"

/* Conversation: Anthropic's messages, whose content is made of blocks. */

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
    bool failed = false;
    return srv_read_text(id, &text) && srv_read_bool(srv_member(block, "is_error"), &failed) &&
           (!failed ||
            srv_message_set(message, block, "is_error", json_true())) && /* for templates that show it */
           srv_message_set(message, block, "tool_call_id", json_stringn(text.data, text.length)) &&
           srv_message_content(out, message, &content, "content");
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
        return srv_message_content(out, message, &content, "content");
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
    if (srv_text_is(kind, "redacted_thinking")) { /* only its creator can read it */
        return true;
    }
    if (srv_text_is(kind, "document")) {
        return srv_wrong(block, "document input is not supported");
    }
    bool picture;
    json_t *message = srv_part_picture(out, block, &picture) ? message_of(out, block, role) : NULL;
    if (!message) {
        return false;
    }
    if (picture) {
        return srv_message_picture(message, block);
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
    srv_wrong(thread, "message threads are not supported; send the whole conversation");
    thread->fault->error_code = "thread_unsupported_request";
    return false;
}

bool srv_conversation_anthropic(const srv_field *root, srv_conversation *out)
{
    const srv_field system = srv_member(root, "system"), thread = srv_member(root, "thread");
    srv_field messages;
    if (thread.value) {
        return refuse_thread(&thread);
    }
    if (!srv_conversation_list(root, 1, &messages) || !read_system(&system, out)) {
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

/* Thoughts are signed there so that they can be sent back; ours need no proof. */
#define SIGNATURE "\"moraine\""

/* ---- Parts of answers ---- */

/* A stopped answer is not complete; one of the reasons that clients know says that. */
static void put_stop(const srv_generation *g, srv_writer *w)
{
    const srv_choice *c = &g->choices[0];
    const bool word = c->finish == SRV_FINISH_STRING && c->stop >= 0 &&
                      (size_t)c->stop < g->parameters.generation.stop_count;
    srv_print(w, "\"stop_reason\":%s,\"stop_sequence\":",
              word                                                     ? "stop_sequence"
              : srv_generation_is_cut(g, c)                            ? "max_tokens"
              : c->finish == SRV_FINISH_END && srv_choice_calls(c) > 0 ? "tool_use"
                                                                       : "end_turn");
    srv_put_cstring(w, word ? g->parameters.stop[c->stop] : NULL);
}

static void put_usage(const srv_usage *usage, srv_writer *w)
{
    srv_print(w,
              "{\"input_tokens\":%ld,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%ld,"
              "\"output_tokens\":%ld}",
              usage->prompt_tokens - usage->cached_tokens, usage->cached_tokens, usage->completion_tokens);
}

static void put_head(const srv_generation *g, srv_writer *w)
{
    srv_print(w, "{\"id\":%s,\"type\":\"message\",\"role\":\"assistant\",\"model\":%s,\"content\":[", g->id,
              g->model);
}

static void put_call(const srv_item *item, srv_writer *w)
{
    srv_print(w, "{\"type\":\"tool_use\",\"id\":%s,\"name\":%s,\"input\":", item->id, item->name);
}

static void put_block(const srv_generation *g, const srv_item *item, srv_writer *w)
{
    switch (item->kind) {
    case SRV_ITEM_TEXT:
        srv_print(w, "{\"type\":\"text\",\"text\":%.*s", (int)item->text.length, item->text.data);
        break;
    case SRV_ITEM_THOUGHT:
        srv_put_literal(w, "{\"type\":\"thinking\",\"thinking\":");
        srv_put_string(w, item->text.data, g->parameters.hide_thought ? 0 : item->text.length);
        srv_put_literal(w, ",\"signature\":" SIGNATURE);
        break;
    case SRV_ITEM_CALL:
        put_call(item, w);
        srv_item_arguments(item, w);
        break;
    }
    srv_put_literal(w, "}");
}

static void message_whole(srv_generation *g, srv_writer *w)
{
    const srv_choice *c = &g->choices[0];
    put_head(g, w);
    for (size_t i = 0; i < c->count; i++) {
        srv_puts(w, i > 0 ? "," : "");
        put_block(g, &c->items[i], w);
    }
    srv_put_literal(w, "],");
    put_stop(g, w);
    srv_put_literal(w, ",\"usage\":");
    put_usage(&g->usage, w);
    srv_put_warnings(w, g->unenforced);
    srv_put_literal(w, "}");
}

/* ---- Streams ---- */

static void message_begin(srv_generation *g, srv_writer *w)
{
    const srv_usage usage = {.prompt_tokens =
                                 (int64_t)g->prompts[0].count}; /* cached tokens are reported at the end */
    srv_put_literal(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    put_head(g, w);
    srv_put_literal(w, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    put_usage(&usage, w);
    srv_put_literal(w, "}}\n\n");
}

static void open_delta(size_t index, const char *type, srv_writer *w)
{
    srv_print(w,
              "event: content_block_delta\ndata: "
              "{\"type\":\"content_block_delta\",\"index\":%ld,\"delta\":{\"type\":\"",
              (int64_t)index);
    srv_puts(w, type);
    srv_put_literal(w, "\",");
}

static void open_block(const srv_item *item, size_t index, srv_writer *w)
{
    srv_print(w,
              "event: content_block_start\ndata: "
              "{\"type\":\"content_block_start\",\"index\":%ld,\"content_block\":",
              (int64_t)index);
    if (item->kind == SRV_ITEM_CALL) {
        put_call(item, w);
        srv_put_literal(w, "{}}");
    } else {
        srv_puts(w, item->kind == SRV_ITEM_TEXT
                        ? "{\"type\":\"text\",\"text\":\"\"}"
                        : "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    }
    srv_put_literal(w, "}\n\n");
}

/* Blocks come strictly one after another: each is closed before the next begins. */
static void close_blocks(srv_choice *c, size_t before, srv_writer *w)
{
    for (; c->closed < before; c->closed++) {
        if (c->items[c->closed].kind == SRV_ITEM_THOUGHT) {
            open_delta(c->closed, "signature_delta", w);
            srv_put_literal(w, "\"signature\":" SIGNATURE "}}\n\n");
        }
        srv_print(w, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":%ld}\n\n",
                  (int64_t)c->closed);
    }
}

static void message_event(srv_generation *g, size_t choice, const srv_event *event, bool fresh, srv_writer *w)
{
    srv_choice *c = &g->choices[choice];
    if (fresh) {
        close_blocks(c, c->count - 1, w);
        open_block(srv_choice_last(c), c->count - 1, w);
    }
    const char *type = event->kind == SRV_TEXT      ? "text_delta"
                       : event->kind == SRV_THOUGHT ? "thinking_delta"
                                                    : "input_json_delta";
    const char *name = event->kind == SRV_TEXT      ? "\"text\":"
                       : event->kind == SRV_THOUGHT ? "\"thinking\":"
                                                    : "\"partial_json\":";
    switch (event->kind) {
    case SRV_TEXT:
    case SRV_THOUGHT:
    case SRV_ARGUMENTS:
        if (event->text.length > 0 && c->count > 0 &&
            !(event->kind == SRV_THOUGHT && g->parameters.hide_thought)) {
            open_delta(c->count - 1, type, w);
            srv_puts(w, name);
            srv_print(w, "%.*s}}\n\n", (int)event->text.length, event->text.data);
        }
        break;
    case SRV_CALL_END:
    case SRV_END: close_blocks(c, c->count, w); break;
    default: break;
    }
}

static void message_end(srv_generation *g, srv_writer *w)
{
    srv_put_literal(w, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    put_stop(g, w);
    srv_put_literal(w, "},\"usage\":");
    put_usage(&g->usage, w);
    srv_put_warnings(w, g->unenforced);
    srv_put_literal(w, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void message_fail(srv_generation *g, const srv_fault *fault, srv_writer *w)
{
    (void)g;
    srv_put_literal(w, "event: error\ndata: ");
    srv_fault_write(fault, SRV_SHAPE_ANTHROPIC, w);
    srv_put_literal(w, "\n\n");
}

static const srv_dialect_writer message_writer = {
    .stream = SRV_STREAM_ANTHROPIC,
    .begin = message_begin,
    .event = message_event,
    .end = message_end,
    .fail = message_fail,
    .whole = message_whole,
};

/* ---- Requests ---- */

bool srv_messages_read(srv_generation *g)
{
    const srv_field root = srv_field_root(g->root, &g->fault);
    const srv_field output = srv_member(&root, "output_config");
    return srv_generation_parameters(g, &root) && srv_is_object(output) &&
           srv_effort_read(srv_member(&output, "effort"), &g->parameters) &&
           srv_tools_read(&root, SRV_DIALECT_ANTHROPIC, &g->tools) &&
           srv_format_read(&root, SRV_DIALECT_ANTHROPIC, &g->format) &&
           srv_conversation_anthropic(&root, &g->conversation);
}

void srv_messages(void *owner, srv_request *q)
{
    srv_generation *g = srv_generation_open(owner, q, SRV_DIALECT_ANTHROPIC, &message_writer);
    if (!g) {
        return;
    }
    srv_identity("msg_", g->id, sizeof g->id);
    if (srv_messages_read(g) && srv_generation_chat(g) && srv_generation_constrain(g)) {
        g->parameters.n = 1;
        srv_generation_start(g);
    } else {
        srv_generation_refuse(g);
    }
}
