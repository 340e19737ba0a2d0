/* OpenAI's chat completions: requests, answers and streams. */
#include <string.h>

#include "server/common/identity.h"
#include "server/dialects/dialects.h"
#include "server/requests/choice.h"
#include "server/requests/generation.h"

/* ---- Parts of answers ---- */

static const char *finish_reason(const srv_choice *c)
{
    if (c->finish == SRV_FINISH_LENGTH) {
        return "length";
    }
    return c->finish == SRV_FINISH_END && srv_choice_calls(c) > 0 ? "tool_calls" : "stop";
}

/* id, created, model and fingerprint are the same in every chunk. */
static void put_head(const srv_generation *g, const char *object, srv_writer *w)
{
    srv_put_literal(w, "{\"id\":");
    srv_put_cstring(w, g->id);
    srv_put_literal(w, ",\"object\":");
    srv_put_cstring(w, object);
    srv_put_literal(w, ",\"created\":");
    srv_put_int(w, g->times.created);
    srv_put_literal(w, ",\"model\":");
    srv_put_cstring(w, g->model);
    srv_put_literal(w, ",\"system_fingerprint\":");
    srv_put_cstring(w, g->fingerprint);
}

static void put_warnings(const srv_generation *g, srv_writer *w)
{
    if (g->unenforced && *g->unenforced) {
        srv_put_literal(w, ",\"warnings\":");
        srv_put_lines(w, g->unenforced);
    }
}

/* The beginning of a call: name and id, once. */
static void put_call_head(const srv_item *item, srv_writer *w)
{
    srv_put_literal(w, "\"id\":");
    srv_put_cstring(w, item->id);
    srv_put_literal(w, ",\"type\":\"function\",\"function\":{\"name\":");
    srv_put_cstring(w, item->name);
    srv_put_literal(w, ",\"arguments\":");
}

/* ---- Whole ---- */

static void put_joined(const srv_choice *c, srv_item_kind kind, srv_writer *w)
{
    srv_put_literal(w, "\"");
    for (size_t i = 0; i < c->count; i++) {
        if (c->items[i].kind == kind) {
            srv_put_escaped(w, c->items[i].text.data, c->items[i].text.length);
        }
    }
    srv_put_literal(w, "\"");
}

static bool has(const srv_choice *c, srv_item_kind kind)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->items[i].kind == kind) {
            return true;
        }
    }
    return false;
}

static void put_message(const srv_choice *c, srv_writer *w)
{
    srv_put_literal(w, "{\"role\":\"assistant\",\"content\":");
    if (has(c, SRV_ITEM_CALL) && !has(c, SRV_ITEM_TEXT)) {
        srv_put_literal(w, "null");
    } else {
        put_joined(c, SRV_ITEM_TEXT, w);
    }
    if (has(c, SRV_ITEM_THOUGHT)) {
        srv_put_literal(w, ",\"reasoning_content\":");
        put_joined(c, SRV_ITEM_THOUGHT, w);
    }
    bool first = true;
    for (size_t i = 0; i < c->count; i++) {
        if (c->items[i].kind != SRV_ITEM_CALL) {
            continue;
        }
        srv_puts(w, first ? ",\"tool_calls\":[{" : ",{");
        put_call_head(&c->items[i], w);
        srv_put_string(w, c->items[i].text.data, c->items[i].text.length);
        srv_put_literal(w, "}}");
        first = false;
    }
    srv_puts(w, first ? "}" : "]}");
}

static void chat_whole(srv_generation *g, srv_writer *w)
{
    put_head(g, "chat.completion", w);
    srv_put_literal(w, ",\"choices\":[");
    for (size_t i = 0; i < g->choice_count; i++) {
        const srv_choice *c = &g->choices[i];
        srv_puts(w, i > 0 ? ",{\"index\":" : "{\"index\":");
        srv_put_int(w, (int64_t)i);
        srv_put_literal(w, ",\"message\":");
        put_message(c, w);
        srv_put_literal(w, ",\"logprobs\":");
        if (g->parameters.logprobs) {
            srv_put_literal(w, "{\"content\":[");
            srv_put(w, c->probabilities.data, c->probabilities.length);
            srv_put_literal(w, "]}");
        } else {
            srv_put_literal(w, "null");
        }
        srv_put_literal(w, ",\"finish_reason\":");
        srv_put_cstring(w, finish_reason(c));
        srv_put_literal(w, "}");
    }
    srv_put_literal(w, "],\"usage\":");
    srv_put_usage(w, &g->usage);
    srv_put_literal(w, ",\"timings\":");
    srv_put_timings(w, &g->usage, &g->timings);
    put_warnings(g, w);
    srv_put_literal(w, "}");
}

/* ---- Streamed ---- */

/* What a chunk of one choice begins with, up to its delta's members. */
static void open_chunk(srv_generation *g, size_t choice, srv_writer *w)
{
    srv_put(w, g->prefix.data, g->prefix.length);
    srv_put_literal(w, ",\"choices\":[{\"index\":");
    srv_put_int(w, (int64_t)choice);
    srv_put_literal(w, ",\"delta\":{");
}

static void close_chunk(srv_writer *w)
{
    srv_put_literal(w, "}\n\n");
}

static void chat_begin(srv_generation *g, srv_writer *w)
{
    srv_put_literal(&g->prefix, "data: ");
    put_head(g, "chat.completion.chunk", &g->prefix);
    for (size_t i = 0; i < g->choice_count; i++) {
        open_chunk(g, i, w);
        srv_put_literal(w, "\"role\":\"assistant\",\"content\":null},\"finish_reason\":null}]");
        close_chunk(w);
    }
}

static void put_delta(const srv_choice *c, const srv_event *event, srv_writer *w)
{
    switch (event->kind) {
    case SRV_TEXT:
        srv_put_literal(w, "\"content\":");
        srv_put_string(w, event->text.data, event->text.length);
        break;
    case SRV_THOUGHT:
        srv_put_literal(w, "\"reasoning_content\":");
        srv_put_string(w, event->text.data, event->text.length);
        break;
    case SRV_CALL:
        srv_put_literal(w, "\"tool_calls\":[{\"index\":");
        srv_put_int(w, event->call);
        srv_put_literal(w, ",");
        put_call_head(srv_choice_last(c), w);
        srv_put_literal(w, "\"\"}}]");
        break;
    case SRV_ARGUMENTS:
        srv_put_literal(w, "\"tool_calls\":[{\"index\":");
        srv_put_int(w, event->call);
        srv_put_literal(w, ",\"function\":{\"arguments\":");
        srv_put_string(w, event->text.data, event->text.length);
        srv_put_literal(w, "}}]");
        break;
    default: break; /* only tokens that have no text */
    }
}

static void chat_event(srv_generation *g, size_t choice, const srv_event *event, bool fresh, srv_writer *w)
{
    const srv_choice *c = &g->choices[choice];
    (void)fresh;
    if (event->kind == SRV_PROGRESS) {
        srv_put(w, g->prefix.data, g->prefix.length);
        srv_put_literal(w, ",\"choices\":[],\"prompt_progress\":");
        srv_put_progress(w, event->usage, event->timings);
        close_chunk(w);
        return;
    }
    const bool says = event->text.length > 0 && event->kind != SRV_CALL_END;
    const bool probable = g->parameters.logprobs && event->token_count > 0;
    if (says || probable) {
        open_chunk(g, choice, w);
        if (says) {
            put_delta(c, event, w);
        }
        srv_put_literal(w, "}");
        if (probable) {
            srv_put_literal(w, ",\"logprobs\":{\"content\":[");
            srv_put_probabilities(w, srv_model_mo(g->model_ref), event, false);
            srv_put_literal(w, "]}");
        }
        srv_put_literal(w, ",\"finish_reason\":null}]");
        if (g->parameters.timings_per_token) {
            srv_put_literal(w, ",\"timings\":");
            srv_put_timings(w, event->usage, event->timings);
        }
        close_chunk(w);
    }
    if (event->kind == SRV_END) {
        open_chunk(g, choice, w);
        srv_put_literal(w, "},\"finish_reason\":");
        srv_put_cstring(w, finish_reason(c));
        srv_put_literal(w, "}]");
        /* The last chunk of the last choice tells how it went, usage or not. */
        if (g->choice_count == 1) {
            srv_put_literal(w, ",\"timings\":");
            srv_put_timings(w, event->usage, event->timings);
            put_warnings(g, w);
        }
        close_chunk(w);
    }
}

static void chat_end(srv_generation *g, srv_writer *w)
{
    if (g->parameters.include_usage) {
        srv_put(w, g->prefix.data, g->prefix.length);
        srv_put_literal(w, ",\"choices\":[],\"usage\":");
        srv_put_usage(w, &g->usage);
        srv_put_literal(w, ",\"timings\":");
        srv_put_timings(w, &g->usage, &g->timings);
        put_warnings(g, w);
        close_chunk(w);
    }
    srv_put_literal(w, "data: [DONE]\n\n");
}

void srv_openai_fail(srv_generation *g, const srv_fault *fault, srv_writer *w)
{
    (void)g;
    srv_put_literal(w, "data: ");
    srv_fault_write(fault, SRV_SHAPE_OPENAI, w);
    srv_put_literal(w, "\n\n");
}

static const srv_dialect_writer chat_writer = {
    .stream = SRV_STREAM_SSE,
    .begin = chat_begin,
    .event = chat_event,
    .end = chat_end,
    .fail = srv_openai_fail,
    .keep = srv_keep_unsent,
    .whole = chat_whole,
};

/* ---- Requests ---- */

bool srv_chat_read(srv_generation *g)
{
    const srv_field root = srv_field_root(g->root, &g->fault);
    return srv_generation_parameters(g, &root) && srv_tools_read(&root, SRV_DIALECT_CHAT, &g->tools) &&
           srv_format_read(&root, SRV_DIALECT_CHAT, &g->format) &&
           srv_conversation_chat(&root, &g->conversation);
}

void srv_chat(void *owner, srv_request *q)
{
    srv_generation *g = srv_generation_open(owner, q, SRV_DIALECT_CHAT, &chat_writer);
    if (!g) {
        return;
    }
    srv_identity("chatcmpl-", g->id, sizeof g->id);
    if (srv_chat_read(g) && srv_generation_chat(g) && srv_generation_constrain(g)) {
        srv_generation_start(g);
    } else {
        srv_generation_refuse(g);
    }
}
