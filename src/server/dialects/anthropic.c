/* Anthropic's messages: requests, answers and streams. */
#include <string.h>

#include "server/common/identity.h"
#include "server/dialects/dialects.h"
#include "server/requests/report.h"
#include "server/requests/thinking.h"

/* Thoughts are signed there so that they can be sent back; ours need no proof. */
#define SIGNATURE "\"moraine\""

/* ---- Parts of answers ---- */

/* An answer that somebody stopped is not complete; of the reasons that clients know, one says that. */
static void put_stop(const srv_generation *g, srv_writer *w)
{
    const srv_choice *c = &g->choices[0];
    const bool word =
        c->finish == SRV_FINISH_STRING && c->stop >= 0 && (size_t)c->stop < g->parameters.stop_count;
    srv_put_literal(w, "\"stop_reason\":");
    srv_put_cstring(w, word                                                     ? "stop_sequence"
                       : srv_generation_is_cut(g, c)                            ? "max_tokens"
                       : c->finish == SRV_FINISH_END && srv_choice_calls(c) > 0 ? "tool_use"
                                                                                : "end_turn");
    srv_put_literal(w, ",\"stop_sequence\":");
    srv_put_cstring(w, word ? g->parameters.stop[c->stop] : NULL);
}

static void put_usage(const srv_usage *usage, srv_writer *w)
{
    srv_put_literal(w, "{\"input_tokens\":");
    srv_put_int(w, usage->prompt_tokens - usage->cached_tokens);
    srv_put_literal(w, ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":");
    srv_put_int(w, usage->cached_tokens);
    srv_put_literal(w, ",\"output_tokens\":");
    srv_put_int(w, usage->completion_tokens);
    srv_put_literal(w, "}");
}

static void put_head(const srv_generation *g, srv_writer *w)
{
    srv_put_literal(w, "{\"id\":");
    srv_put_cstring(w, g->id);
    srv_put_literal(w, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    srv_put_cstring(w, g->model);
    srv_put_literal(w, ",\"content\":[");
}

static void put_call(const srv_item *item, srv_writer *w)
{
    srv_put_literal(w, "{\"type\":\"tool_use\",\"id\":");
    srv_put_cstring(w, item->id);
    srv_put_literal(w, ",\"name\":");
    srv_put_cstring(w, item->name);
    srv_put_literal(w, ",\"input\":");
}

static void put_block(const srv_item *item, srv_writer *w)
{
    switch (item->kind) {
    case SRV_ITEM_TEXT:
        srv_put_literal(w, "{\"type\":\"text\",\"text\":");
        srv_put_string(w, item->text.data, item->text.length);
        break;
    case SRV_ITEM_THOUGHT:
        srv_put_literal(w, "{\"type\":\"thinking\",\"thinking\":");
        srv_put_string(w, item->text.data, item->text.length);
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
        put_block(&c->items[i], w);
    }
    srv_put_literal(w, "],");
    put_stop(g, w);
    srv_put_literal(w, ",\"usage\":");
    put_usage(&g->usage, w);
    if (g->unenforced) {
        srv_put_literal(w, ",\"warnings\":");
        srv_put_lines(w, g->unenforced);
    }
    srv_put_literal(w, "}");
}

/* ---- Streams ---- */

static void message_begin(srv_generation *g, srv_writer *w)
{
    const srv_usage usage = {.prompt_tokens =
                                 (int64_t)g->prompts[0].count}; /* what is cached is told at the end */
    srv_put_literal(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    put_head(g, w);
    srv_put_literal(w, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    put_usage(&usage, w);
    srv_put_literal(w, "}}\n\n");
}

static void open_delta(size_t index, const char *type, srv_writer *w)
{
    srv_put_literal(w, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
    srv_put_int(w, (int64_t)index);
    srv_put_literal(w, ",\"delta\":{\"type\":\"");
    srv_puts(w, type);
    srv_put_literal(w, "\",");
}

static void open_block(const srv_item *item, size_t index, srv_writer *w)
{
    srv_put_literal(w, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":");
    srv_put_int(w, (int64_t)index);
    srv_put_literal(w, ",\"content_block\":");
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
        srv_put_literal(w, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":");
        srv_put_int(w, (int64_t)c->closed);
        srv_put_literal(w, "}\n\n");
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
        if (event->text.length > 0 && c->count > 0) {
            open_delta(c->count - 1, type, w);
            srv_puts(w, name);
            srv_put_string(w, event->text.data, event->text.length);
            srv_put_literal(w, "}}\n\n");
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
    if (g->unenforced) {
        srv_put_literal(w, ",\"warnings\":");
        srv_put_lines(w, g->unenforced);
    }
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
