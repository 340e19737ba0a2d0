/* llama-server's own completion: requests, answers and streams. */
#include <stdlib.h>
#include <string.h>

#include "server/common/identity.h"
#include "server/dialects/dialects.h"
#include "server/requests/choice.h"

/* ---- Answers ---- */

static void put_tokens_text(const srv_generation *g, size_t prompt, srv_writer *w)
{
    srv_writer text = {0};
    for (size_t i = 0; i < g->prompts[prompt].count; i++) {
        const mo_text bytes = mo_token_bytes(srv_model_mo(g->model_ref), g->prompts[prompt].ids[i]);
        srv_put(&text, bytes.data, bytes.length);
    }
    srv_put_string(w, text.data, text.length);
    w->failed = w->failed || text.failed;
    srv_writer_free(&text);
}

static void put_float_member(srv_writer *w, const char *name, float value)
{
    srv_puts(w, name);
    srv_put_float(w, value);
}

static void put_int_member(srv_writer *w, const char *name, int64_t value)
{
    srv_puts(w, name);
    srv_put_int(w, value);
}

static void put_settings(const srv_generation *g, srv_writer *w)
{
    const srv_parameters *p = &g->parameters;
    const mo_sampler_options *s = &p->sampler;
    put_int_member(w, "{\"n_predict\":", p->max_tokens);
    put_int_member(w, ",\"max_tokens\":", p->max_tokens);
    put_int_member(w, ",\"seed\":", (int64_t)s->seed);
    put_float_member(w, ",\"temperature\":", s->temperature);
    put_int_member(w, ",\"top_k\":", s->top_k);
    put_float_member(w, ",\"top_p\":", s->top_p);
    put_float_member(w, ",\"min_p\":", s->min_p);
    put_float_member(w, ",\"repeat_penalty\":", s->repeat_penalty);
    put_int_member(w, ",\"repeat_last_n\":", s->penalty_last);
    put_float_member(w, ",\"presence_penalty\":", s->presence_penalty);
    put_float_member(w, ",\"frequency_penalty\":", s->frequency_penalty);
    srv_put_literal(w, ",\"stop\":[");
    for (size_t i = 0; i < p->stop_count; i++) {
        srv_puts(w, i > 0 ? "," : "");
        srv_put_cstring(w, p->stop[i]);
    }
    srv_put_literal(w, "],\"ignore_eos\":");
    srv_put_bool(w, p->ignore_eos);
    srv_put_literal(w, ",\"stream\":");
    srv_put_bool(w, p->stream);
    put_int_member(w, ",\"n_probs\":", p->logprobs ? p->top : 0);
    srv_put_literal(w, "}");
}

static const char *stop_type(const srv_choice *c)
{
    switch (c->finish) {
    case SRV_FINISH_END: return "eos";
    case SRV_FINISH_STRING: return "word";
    case SRV_FINISH_LENGTH: return "limit";
    default: return "none";
    }
}

/* A stream has already sent the text; its last object has none. */
static void put_result(const srv_generation *g, size_t choice, const srv_usage *usage,
                       const srv_timings *timings, srv_writer *w)
{
    const srv_choice *c = &g->choices[choice];
    const size_t prompt = choice / (size_t)g->parameters.n;
    srv_writer text = {0};
    srv_choice_join(c, SRV_ITEM_TEXT, &text);
    put_int_member(w, "{\"index\":", (int64_t)choice);
    srv_put_literal(w, ",\"content\":");
    srv_put_string(w, text.data, g->streaming ? 0 : text.length);
    srv_put_literal(w, ",\"tokens\":[");
    if (!g->streaming && g->parameters.return_tokens) {
        srv_put(w, c->tokens.data, c->tokens.length);
    }
    srv_put_literal(w, "],\"id_slot\":-1,\"stop\":true,\"model\":");
    srv_put_cstring(w, g->model);
    put_int_member(w, ",\"tokens_predicted\":", c->completion_tokens);
    put_int_member(w, ",\"tokens_evaluated\":", (int64_t)g->prompts[prompt].count);
    srv_put_literal(w, ",\"generation_settings\":");
    put_settings(g, w);
    srv_put_literal(w, ",\"prompt\":");
    put_tokens_text(g, prompt, w);
    srv_put_literal(w, ",\"has_new_line\":");
    srv_put_bool(w, text.length > 0 && memchr(text.data, '\n', text.length));
    srv_put_literal(w, ",\"truncated\":false,\"stop_type\":");
    srv_put_cstring(w, stop_type(c));
    srv_put_literal(w, ",\"stopping_word\":");
    srv_put_cstring(w, c->finish == SRV_FINISH_STRING && c->stop >= 0 ? g->parameters.stop[c->stop] : "");
    put_int_member(w, ",\"tokens_cached\":", (int64_t)g->prompts[prompt].count + c->completion_tokens);
    srv_put_literal(w, ",\"timings\":");
    srv_put_timings(w, usage, timings);
    if (g->parameters.logprobs && !g->streaming) {
        srv_put_literal(w, ",\"completion_probabilities\":[");
        srv_put(w, c->probabilities.data, c->probabilities.length);
        srv_put_literal(w, "]");
    }
    if (g->unenforced) {
        srv_put_literal(w, ",\"warnings\":");
        srv_put_lines(w, g->unenforced);
    }
    srv_put_literal(w, "}");
    w->failed = w->failed || text.failed;
    srv_writer_free(&text);
}

/* ---- Selected fields ---- */

/* What "a/b/c" leads to, borrowed. */
static json_t *find(const json_t *object, const char *path)
{
    char name[128];
    while (object && *path) {
        const size_t length = strcspn(path, "/");
        if (length >= sizeof name) {
            return NULL;
        }
        memcpy(name, path, length);
        name[length] = '\0';
        object = json_object_get(object, name);
        path += length + (path[length] == '/');
    }
    return (json_t *)object;
}

/* Of the object that begins at `from`, only what response_fields names, by the last part of each path. */
static void select_fields(const srv_generation *g, size_t from, srv_writer *w)
{
    const json_t *fields = json_object_get(g->root, "response_fields");
    if (json_array_size(fields) == 0 || w->failed) {
        return;
    }
    json_t *whole = json_loadb(w->data + from, w->length - from, JSON_ALLOW_NUL, NULL), *some = json_object(),
           *field;
    size_t i;
    json_array_foreach(fields, i, field)
    {
        const char *path = json_string_value(field), *last = path ? strrchr(path, '/') : NULL;
        json_t *value = path ? find(whole, path) : NULL;
        if (value) {
            json_object_set(some, last ? last + 1 : path, value);
        }
    }
    char *text = json_dumps(some, JSON_COMPACT);
    if (text) {
        w->length = from;
        srv_puts(w, text);
    }
    w->failed = w->failed || !text;
    free(text);
    json_decref(some);
    json_decref(whole);
}

static void completion_whole(srv_generation *g, srv_writer *w)
{
    const bool list = g->several || g->parameters.n > 1;
    srv_puts(w, list ? "[" : "");
    for (size_t i = 0; i < g->choice_count; i++) {
        const struct srv_request_job *job = &g->running[i / (size_t)g->parameters.n];
        srv_puts(w, i > 0 ? "," : "");
        const size_t from = w->length;
        put_result(g, i, &job->usage, &job->timings, w);
        select_fields(g, from, w);
    }
    srv_puts(w, list ? "]" : "");
}

/* ---- Streams ---- */

static void completion_begin(srv_generation *g, srv_writer *w)
{
    (void)g;
    (void)w;
}

static void put_piece(const srv_generation *g, size_t choice, const srv_event *event, srv_writer *w)
{
    const size_t prompt = choice / (size_t)g->parameters.n;
    put_int_member(w, "data: {\"index\":", (int64_t)choice);
    srv_put_literal(w, ",\"content\":");
    srv_put_string(w, event->text.data, event->text.length);
    srv_put_literal(w, ",\"tokens\":[");
    for (size_t i = 0; i < event->token_count; i++) {
        put_int_member(w, i > 0 ? "," : "", event->tokens[i].id);
    }
    srv_put_literal(w, "],\"stop\":false,\"id_slot\":-1");
    put_int_member(w, ",\"tokens_predicted\":", event->completion_tokens);
    put_int_member(w, ",\"tokens_evaluated\":", (int64_t)g->prompts[prompt].count);
    if (g->parameters.logprobs && event->token_count > 0) {
        srv_put_literal(w, ",\"completion_probabilities\":[");
        srv_put_probabilities(w, srv_model_mo(g->model_ref), event, false);
        srv_put_literal(w, "]");
    }
    if (g->parameters.timings_per_token) {
        srv_put_literal(w, ",\"timings\":");
        srv_put_timings(w, event->usage, event->timings);
    }
    if (event->kind == SRV_PROGRESS) {
        srv_put_literal(w, ",\"prompt_progress\":");
        srv_put_progress(w, event->usage, event->timings);
    }
    srv_put_literal(w, "}\n\n");
}

static void completion_event(srv_generation *g, size_t choice, const srv_event *event, bool fresh,
                             srv_writer *w)
{
    (void)fresh;
    /* Tokens without a text (the last one, those of a stop string, all where there is no vocabulary) are sent if tokens were requested. */
    const bool wanted = g->parameters.logprobs || g->parameters.return_tokens || event->kind == SRV_TEXT;
    if (event->text.length > 0 || event->kind == SRV_PROGRESS || (wanted && event->token_count > 0)) {
        put_piece(g, choice, event, w);
    }
    if (event->kind == SRV_END) {
        srv_put_literal(w, "data: ");
        const size_t from = w->length;
        put_result(g, choice, event->usage, event->timings, w);
        select_fields(g, from, w);
        srv_put_literal(w, "\n\n");
    }
}

static void completion_keep(srv_generation *g, srv_choice *c, const srv_event *event)
{
    if (!g->streaming) {
        srv_keep_probabilities(g, c, event);
        if (g->parameters.return_tokens) {
            srv_keep_tokens(g, c, event);
        }
    }
}

static const srv_dialect_writer completion_writer = {
    .stream = SRV_STREAM_SSE,
    .begin = completion_begin,
    .event = completion_event,
    .end = completion_begin, /* nothing comes after the last object */
    .fail = srv_openai_fail,
    .keep = completion_keep,
    .whole = completion_whole,
};

/* ---- Requests ---- */

void srv_completion(void *owner, srv_request *q)
{
    srv_generation *g = srv_generation_open(owner, q, SRV_DIALECT_COMPLETION, &completion_writer);
    if (!g) {
        return;
    }
    srv_identity("cmpl-", g->id, sizeof g->id);
    const srv_field root = srv_field_root(g->root, &g->fault), prompt = srv_member(&root, "prompt");
    const srv_field fields = srv_member(&root, "response_fields");
    if (srv_generation_parameters(g, &root) && srv_is_list(fields) &&
        srv_format_read(&root, SRV_DIALECT_COMPLETION, &g->format) && srv_generation_text(g, &prompt) &&
        srv_generation_constrain(g)) {
        srv_generation_start(g);
    } else {
        srv_generation_refuse(g);
    }
}
