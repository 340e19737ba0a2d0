/* OpenAI's completions: requests, answers and streams. */
#include <string.h>

#include "server/common/identity.h"
#include "server/dialects/dialects.h"
#include "server/requests/choice.h"
#include "server/requests/generation.h"

/* ---- Log probabilities: the older form, lists side by side, and the one of chats ---- */

enum { TOKENS, LOGPROBS, TOP, OFFSETS };

static void put_top(srv_writer *w, const mo_model *model, const mo_generation_token *token)
{
    srv_put_literal(w, "{");
    for (int i = 0; i < token->top_count; i++) {
        const mo_text bytes = mo_token_bytes(model, token->top[i].token);
        srv_puts(w, i > 0 ? "," : "");
        srv_print(w, "%.*s:%g", (int)bytes.length, bytes.data, token->top[i].logprob);
    }
    srv_put_literal(w, "}");
}

static int64_t characters(mo_text text)
{
    int64_t count = 0;
    for (size_t i = 0; i < text.length; i++) {
        count += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    }
    return count;
}

static void text_keep(srv_generation *g, srv_choice *c, const srv_event *event)
{
    if (!g->parameters.logprobs) {
        return;
    }
    const mo_model *model = srv_model_mo(g->model_ref);
    if (g->streaming) { /* a chunk has its own tokens only */
        for (int i = 0; i < 4; i++) {
            srv_writer_empty(&c->legacy[i]);
        }
        srv_writer_empty(&c->probabilities);
        c->probability_count = 0;
    }
    srv_keep_probabilities(g, c, event);
    for (size_t i = 0; i < event->token_count; i++) {
        if (mo_token_ends(model, event->tokens[i].id)) {
            continue;
        }
        const mo_text bytes = mo_token_bytes(model, event->tokens[i].id);
        for (int k = 0; k < 4; k++) {
            srv_puts(&c->legacy[k], c->legacy[k].length > 0 ? "," : "");
        }
        srv_put_string(&c->legacy[TOKENS], bytes.data, bytes.length);
        srv_put_float(&c->legacy[LOGPROBS], event->tokens[i].logprob);
        put_top(&c->legacy[TOP], model, &event->tokens[i]);
        srv_put_int(&c->legacy[OFFSETS], c->characters);
        c->characters += characters(bytes);
        c->failed = c->failed || c->legacy[TOP].failed || c->legacy[TOKENS].failed;
    }
}

static void put_logprobs(const srv_generation *g, const srv_choice *c, srv_writer *w)
{
    static const char *const names[] = {",\"tokens\":[", ",\"token_logprobs\":[", ",\"top_logprobs\":[",
                                        ",\"text_offset\":["};
    if (!g->parameters.logprobs) {
        srv_put_literal(w, "null");
        return;
    }
    srv_put_literal(w, "{\"content\":[");
    srv_put(w, c->probabilities.data, c->probabilities.length);
    srv_put_literal(w, "]");
    for (int i = 0; i < 4; i++) {
        srv_puts(w, names[i]);
        srv_put(w, c->legacy[i].data, c->legacy[i].length);
        srv_put_literal(w, "]");
    }
    srv_put_literal(w, "}");
}

/* ---- Answers ---- */

static const char *finish_reason(const srv_choice *c)
{
    return c->finish == SRV_FINISH_LENGTH ? "length" : "stop";
}

static void put_head(const srv_generation *g, srv_writer *w)
{
    srv_print(
        w, "{\"id\":%s,\"object\":\"text_completion\",\"created\":%ld,\"model\":%s,\"system_fingerprint\":%s",
        g->id, g->times.created, g->model, g->fingerprint);
}

static void put_tail(const srv_generation *g, const srv_usage *usage, const srv_timings *timings, bool all,
                     srv_writer *w)
{
    if (all) {
        srv_put_literal(w, ",\"usage\":");
        srv_put_usage(w, usage);
    }
    srv_put_literal(w, ",\"timings\":");
    srv_put_timings(w, usage, timings);
    srv_put_warnings(w, g->unenforced);
}

static void text_whole(srv_generation *g, srv_writer *w)
{
    put_head(g, w);
    srv_put_literal(w, ",\"choices\":[");
    for (size_t i = 0; i < g->choice_count; i++) {
        const srv_choice *c = &g->choices[i];
        srv_puts(w, i > 0 ? ",{\"text\":" : "{\"text\":");
        srv_put_joined(w, c, SRV_ITEM_TEXT);
        srv_print(w, ",\"index\":%ld,\"logprobs\":", (int64_t)i);
        put_logprobs(g, c, w);
        srv_print(w, ",\"finish_reason\":%s}", finish_reason(c));
    }
    srv_put_literal(w, "]");
    put_tail(g, &g->usage, &g->timings, true, w);
    srv_put_literal(w, "}");
}

/* ---- Streams ---- */

static void text_begin(srv_generation *g, srv_writer *w)
{
    (void)w;
    srv_put_literal(&g->prefix, "data: ");
    put_head(g, &g->prefix);
}

static void text_event(srv_generation *g, size_t choice, const srv_event *event, bool fresh, srv_writer *w)
{
    const srv_choice *c = &g->choices[choice];
    (void)fresh;
    if (event->kind == SRV_PROGRESS) {
        srv_put(w, g->prefix.data, g->prefix.length);
        srv_put_literal(w, ",\"choices\":[],\"prompt_progress\":");
        srv_put_progress(w, event->usage, event->timings);
        srv_put_literal(w, "}\n\n");
        return;
    }
    const bool ends = event->kind == SRV_END;
    if (event->text.length == 0 && !ends && !(g->parameters.logprobs && event->token_count > 0)) {
        return;
    }
    srv_put(w, g->prefix.data, g->prefix.length);
    srv_print(w, ",\"choices\":[{\"text\":%.*s,\"index\":%ld,\"logprobs\":", (int)event->text.length,
              event->text.data, (int64_t)choice);
    if (event->token_count > 0) {
        put_logprobs(g, c, w);
    } else {
        srv_put_literal(w, "null");
    }
    srv_put_literal(w, ",\"finish_reason\":");
    srv_put_cstring(w, ends ? finish_reason(c) : NULL);
    srv_put_literal(w, "}]");
    if ((ends && g->choice_count == 1) || g->parameters.timings_per_token) {
        put_tail(g, event->usage, event->timings, false, w);
    }
    srv_put_literal(w, "}\n\n");
}

static void text_end(srv_generation *g, srv_writer *w)
{
    if (g->parameters.include_usage) {
        srv_put(w, g->prefix.data, g->prefix.length);
        srv_put_literal(w, ",\"choices\":[]");
        put_tail(g, &g->usage, &g->timings, true, w);
        srv_put_literal(w, "}\n\n");
    }
    srv_put_literal(w, "data: [DONE]\n\n");
}

static const srv_dialect_writer text_writer = {
    .stream = SRV_STREAM_SSE,
    .begin = text_begin,
    .event = text_event,
    .end = text_end,
    .fail = srv_openai_fail,
    .keep = text_keep,
    .whole = text_whole,
};

/* ---- Requests ---- */

void srv_text(void *owner, srv_request *q)
{
    srv_generation *g = srv_generation_open(owner, q, SRV_DIALECT_TEXT, &text_writer);
    if (!g) {
        return;
    }
    srv_identity("cmpl-", g->id, sizeof g->id);
    const srv_field root = srv_field_root(g->root, &g->fault), prompt = srv_member(&root, "prompt");
    if (srv_generation_parameters(g, &root) && srv_format_read(&root, SRV_DIALECT_TEXT, &g->format) &&
        srv_generation_text(g, &prompt) && srv_generation_constrain(g)) {
        srv_generation_start(g);
    } else {
        srv_generation_refuse(g);
    }
}
