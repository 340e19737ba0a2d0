/* Choice: see choice.h. */
#include "server/requests/choice.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void srv_choice_free(srv_choice *c)
{
    for (size_t i = 0; i < c->count; i++) {
        srv_writer_free(&c->items[i].text);
        free(c->items[i].name);
        free(c->items[i].id);
    }
    free(c->items);
    srv_writer_free(&c->probabilities);
    srv_writer_free(&c->tokens);
    for (int i = 0; i < 4; i++) {
        srv_writer_free(&c->legacy[i]);
    }
    *c = (srv_choice){0};
}

static srv_item *begin(srv_choice *c, srv_item_kind kind)
{
    if (!mo_array_reserve(&c->items, &c->capacity, c->count + 1, sizeof *c->items)) {
        c->failed = true;
        return NULL;
    }
    srv_item *item = &c->items[c->count++];
    *item = (srv_item){.kind = kind};
    c->open = true;
    return item;
}

/* Text goes on in an open item of its kind, or begins one. */
static bool take_text(srv_choice *c, srv_item_kind kind, mo_text text)
{
    srv_item *item = srv_choice_last(c);
    const bool fresh = !c->open || !item || item->kind != kind;
    if (fresh) {
        item = begin(c, kind);
    }
    if (item) {
        srv_put(&item->text, text.data, text.length);
        c->failed = c->failed || item->text.failed;
    }
    return fresh && item;
}

static bool take_call(srv_choice *c, const srv_event *event)
{
    srv_item *item = begin(c, SRV_ITEM_CALL);
    if (item) {
        item->name = strdup(event->text.data);
        item->id = strdup(event->call_id ? event->call_id : "");
        c->failed = c->failed || !item->name || !item->id;
    }
    return item != NULL;
}

bool srv_choice_take(srv_choice *c, const srv_event *event)
{
    bool fresh = false;
    switch (event->kind) {
    case SRV_TEXT: fresh = event->text.length > 0 && take_text(c, SRV_ITEM_TEXT, event->text); break;
    case SRV_THOUGHT: fresh = event->text.length > 0 && take_text(c, SRV_ITEM_THOUGHT, event->text); break;
    case SRV_CALL: fresh = take_call(c, event); break;
    case SRV_ARGUMENTS:
        if (c->count > 0) {
            srv_put(&c->items[c->count - 1].text, event->text.data, event->text.length);
            c->failed = c->failed || c->items[c->count - 1].text.failed;
        }
        break;
    case SRV_CALL_END: c->open = false; break;
    case SRV_END:
        c->finish = event->finish;
        c->stop = event->stop;
        c->open = false;
        break;
    default: break;
    }
    c->completion_tokens = event->completion_tokens;
    return fresh;
}

size_t srv_choice_calls(const srv_choice *c)
{
    size_t calls = 0;
    for (size_t i = 0; i < c->count; i++) {
        calls += c->items[i].kind == SRV_ITEM_CALL;
    }
    return calls;
}

bool srv_choice_has(const srv_choice *c, srv_item_kind kind)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->items[i].kind == kind) {
            return true;
        }
    }
    return false;
}

void srv_put_joined(srv_writer *w, const srv_choice *c, srv_item_kind kind)
{
    srv_put_literal(w, "\"");
    for (size_t i = 0; i < c->count; i++) {
        if (c->items[i].kind == kind) {
            srv_put_escaped(w, c->items[i].text.data, c->items[i].text.length);
        }
    }
    srv_put_literal(w, "\"");
}

void srv_choice_join(const srv_choice *c, srv_item_kind kind, srv_writer *out)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->items[i].kind == kind) {
            srv_put(out, c->items[i].text.data, c->items[i].text.length);
        }
    }
}

void srv_item_arguments(const srv_item *item, srv_writer *w)
{
    const char *text = item->text.data ? item->text.data : "";
    json_t *input = json_loadb(text, item->text.length, JSON_ALLOW_NUL, NULL);
    if (json_is_object(input)) {
        srv_put(w, text, item->text.length);
    } else if (item->text.length > 0) {
        srv_print(w, "{\"_incomplete\":%.*s}", (int)item->text.length, text);
    } else {
        srv_put_literal(w, "{}");
    }
    json_decref(input);
}

void srv_put_usage(srv_writer *w, const srv_usage *usage)
{
    srv_print(w,
              "{\"prompt_tokens\":%ld,\"completion_tokens\":%ld,\"total_tokens\":%ld,"
              "\"prompt_tokens_details\":{\"cached_tokens\":%ld},"
              "\"completion_tokens_details\":{\"reasoning_tokens\":%ld,"
              "\"accepted_prediction_tokens\":%ld,\"rejected_prediction_tokens\":%ld}}",
              usage->prompt_tokens, usage->completion_tokens, usage->prompt_tokens + usage->completion_tokens,
              usage->cached_tokens, usage->thought_tokens, usage->drafts.prediction_accepted,
              usage->drafts.prediction_drafted - usage->drafts.prediction_accepted);
}

static double each_ms(int64_t count, double ms)
{
    return count > 0 ? ms / (double)count : 0;
}

static double rate(int64_t count, double ms)
{
    return ms > 0 ? 1e3 * (double)count / ms : 0;
}

/* As it is printed, so that the rates are those of what is printed. */
static double rounded_ms(double seconds)
{
    return round(seconds * 1e6) * 1e-3;
}

void srv_put_timings(srv_writer *w, const srv_usage *usage, const srv_timings *timings)
{
    const int64_t done = usage->prompt_done - usage->cached_tokens, prompt = done > 0 ? done : 0;
    const int64_t predicted = usage->completion_tokens;
    const double prompt_ms = rounded_ms(timings->prompt_s), predicted_ms = rounded_ms(timings->predicted_s);
    const int64_t steps = predicted > timings->firsts ? predicted - timings->firsts : 0;
    srv_print(w,
              "{\"cache_n\":%ld,\"prompt_n\":%ld,\"prompt_ms\":%.3f,\"prompt_per_token_ms\":%.4f,"
              "\"prompt_per_second\":%.7f,\"predicted_n\":%ld,\"predicted_ms\":%.3f,"
              "\"predicted_per_token_ms\":%.4f,\"predicted_per_second\":%.7f",
              usage->cached_tokens, prompt, prompt_ms, each_ms(prompt, prompt_ms), rate(prompt, prompt_ms),
              predicted, predicted_ms, each_ms(steps, predicted_ms), rate(steps, predicted_ms));
    if (usage->drafts.drafted > 0) {
        srv_print(w, ",\"draft_n\":%ld,\"draft_n_accepted\":%ld", usage->drafts.drafted,
                  usage->drafts.accepted);
    }
    srv_put_literal(w, "}");
}

void srv_put_progress(srv_writer *w, const srv_usage *usage, const srv_timings *timings)
{
    srv_print(w, "{\"total\":%ld,\"cache\":%ld,\"processed\":%ld,\"time_ms\":%.3f}", usage->prompt_tokens,
              usage->cached_tokens, usage->prompt_done, timings->prompt_s * 1e3);
}

/* A token's text, and its bytes, since it may be a part of a character. */
static void put_token(srv_writer *w, const mo_model *model, int32_t id, float logprob)
{
    const mo_text bytes = mo_token_bytes(model, id);
    srv_print(w, "{\"id\":%d,\"token\":%.*s,\"bytes\":[", id, (int)bytes.length, bytes.data);
    for (size_t i = 0; i < bytes.length; i++) {
        srv_puts(w, i > 0 ? "," : "");
        srv_put_int(w, (unsigned char)bytes.data[i]);
    }
    srv_print(w, "],\"logprob\":%g", logprob);
}

/* {"id","token","bytes","logprob","top_logprobs":[...]}. */
static void put_probability(srv_writer *w, const mo_model *model, const mo_generation_token *token)
{
    put_token(w, model, token->id, token->logprob);
    srv_put_literal(w, ",\"top_logprobs\":[");
    for (int i = 0; i < token->top_count; i++) {
        if (i > 0) {
            srv_put_literal(w, ",");
        }
        put_token(w, model, token->top[i].token, token->top[i].logprob);
        srv_put_literal(w, "}");
    }
    srv_put_literal(w, "]}");
}

int64_t srv_put_probabilities(srv_writer *w, const mo_model *model, const srv_event *event, bool more)
{
    int64_t count = 0;
    for (size_t i = 0; i < event->token_count; i++) {
        if (mo_token_ends(model, event->tokens[i].id)) {
            continue;
        }
        if (more || count > 0) {
            srv_put_literal(w, ",");
        }
        put_probability(w, model, &event->tokens[i]);
        count++;
    }
    return count;
}

void srv_put_warnings(srv_writer *w, const char *lines)
{
    if (!lines || !*lines) {
        return;
    }
    srv_put_literal(w, ",\"warnings\":[");
    bool first = true;
    while (*lines) {
        const size_t length = strcspn(lines, "\n");
        if (length > 0) {
            srv_puts(w, first ? "" : ",");
            srv_put_string(w, lines, length);
            first = false;
        }
        lines += length + (lines[length] == '\n');
    }
    srv_put_literal(w, "]");
}
