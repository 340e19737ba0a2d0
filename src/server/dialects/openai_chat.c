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
    srv_print(w, "{\"id\":%s,\"object\":%s,\"created\":%ld,\"model\":%s,\"system_fingerprint\":%s", g->id,
              object, g->times.created, g->model, g->fingerprint);
}

/* llama-server's: what the template made of the conversation. */
static void put_verbose(const srv_generation *g, srv_writer *w)
{
    if (g->parameters.verbose) {
        srv_put_literal(w, ",\"__verbose\":{\"prompt\":");
        srv_put_prompt(w, g, 0);
        srv_put_literal(w, "}");
    }
}

/* The beginning of a call: name and id, once. */
static void put_call_head(const srv_item *item, srv_writer *w)
{
    srv_print(w, "\"id\":%s,\"type\":\"function\",\"function\":{\"name\":%s,\"arguments\":", item->id,
              item->name);
}

/* ---- Whole ---- */

static void put_message(const srv_choice *c, srv_writer *w)
{
    srv_put_literal(w, "{\"role\":\"assistant\",\"content\":");
    if (srv_choice_has(c, SRV_ITEM_CALL) && !srv_choice_has(c, SRV_ITEM_TEXT)) {
        srv_put_literal(w, "null");
    } else {
        srv_put_joined(w, c, SRV_ITEM_TEXT);
    }
    if (srv_choice_has(c, SRV_ITEM_THOUGHT)) {
        srv_put_literal(w, ",\"reasoning_content\":");
        srv_put_joined(w, c, SRV_ITEM_THOUGHT);
    }
    bool first = true;
    for (size_t i = 0; i < c->count; i++) {
        if (c->items[i].kind != SRV_ITEM_CALL) {
            continue;
        }
        srv_puts(w, first ? ",\"tool_calls\":[{" : ",{");
        put_call_head(&c->items[i], w);
        srv_print(w, "%.*s}}", (int)c->items[i].text.length, c->items[i].text.data);
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
        srv_print(w, "%ld,\"message\":", (int64_t)i);
        put_message(c, w);
        srv_put_literal(w, ",\"logprobs\":");
        if (g->parameters.logprobs) {
            srv_put_literal(w, "{\"content\":[");
            srv_put(w, c->probabilities.data, c->probabilities.length);
            srv_put_literal(w, "]}");
        } else {
            srv_put_literal(w, "null");
        }
        srv_print(w, ",\"finish_reason\":%s}", finish_reason(c));
    }
    srv_put_literal(w, "],\"usage\":");
    srv_put_usage(w, &g->usage);
    srv_put_literal(w, ",\"timings\":");
    srv_put_timings(w, &g->usage, &g->timings);
    put_verbose(g, w);
    srv_put_warnings(w, g->unenforced);
    srv_put_literal(w, "}");
}

/* ---- Streamed ---- */

/* What a chunk of one choice begins with, up to its delta's members. */
static void open_chunk(srv_generation *g, size_t choice, srv_writer *w)
{
    srv_put(w, g->prefix.data, g->prefix.length);
    srv_print(w, ",\"choices\":[{\"index\":%ld,\"delta\":{", (int64_t)choice);
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
    case SRV_TEXT: srv_print(w, "\"content\":%.*s", (int)event->text.length, event->text.data); break;
    case SRV_THOUGHT:
        srv_print(w, "\"reasoning_content\":%.*s", (int)event->text.length, event->text.data);
        break;
    case SRV_CALL:
        srv_print(w, "\"tool_calls\":[{\"index\":%d,", event->call);
        put_call_head(srv_choice_last(c), w);
        srv_put_literal(w, "\"\"}}]");
        break;
    case SRV_ARGUMENTS:
        srv_print(w, "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":%.*s}}]", event->call,
                  (int)event->text.length, event->text.data);
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
        srv_print(w, "},\"finish_reason\":%s}]", finish_reason(c));
        /* The last chunk of the last choice tells how it went, usage or not. */
        if (g->choice_count == 1) {
            srv_put_literal(w, ",\"timings\":");
            srv_put_timings(w, event->usage, event->timings);
            put_verbose(g, w);
            srv_put_warnings(w, g->unenforced);
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
        srv_put_warnings(w, g->unenforced);
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
