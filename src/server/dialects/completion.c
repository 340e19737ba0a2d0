/* llama-server's own completion: requests, answers and streams. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/common/identity.h"
#include "server/dialects/dialects.h"
#include "server/requests/choice.h"

/* ---- Answers ---- */

/* A value of -infinity is null, as at llama-server. */
static void put_bias(int32_t token, float value, bool *first, srv_writer *w)
{
    srv_print(w, *first ? "{\"token\":%d,\"bias\":" : ",{\"token\":%d,\"bias\":", token);
    if (isinf(value)) {
        srv_put_literal(w, "null}");
    } else {
        srv_print(w, "%g}", value);
    }
    *first = false;
}

/* Those of the request, and of the tokens that end an answer where they are ignored. */
static void put_biases(const srv_generation *g, srv_writer *w)
{
    const mo_generation_options *s = &g->parameters.generation;
    const mo_model *model = srv_model_mo(g->model_ref);
    mo_model_info info;
    bool first = true;
    mo_model_describe(model, &info, sizeof info);
    for (size_t i = 0; i < s->bias_count; i++) {
        put_bias(s->bias[i].token, s->bias[i].bias, &first, w);
    }
    for (int32_t token = 0; s->ignore_end && token < info.vocab; token++) {
        if (mo_token_ends(model, token)) {
            put_bias(token, -INFINITY, &first, w);
        }
    }
}

/* Those of the samplers that few requests set. adaptive_target is not supported: it is off. */
static void put_more_settings(const mo_generation_options *s, srv_writer *w)
{
    srv_print(w,
              ",\"top_n_sigma\":%g,\"typical_p\":%g,\"xtc_probability\":%g,\"xtc_threshold\":%g,"
              "\"dynatemp_range\":%g,\"dynatemp_exponent\":%g,\"mirostat\":%ld,\"mirostat_tau\":%g,"
              "\"mirostat_eta\":%g,\"dry_multiplier\":%g,\"dry_base\":%g,\"dry_allowed_length\":%ld,"
              "\"dry_penalty_last_n\":%ld,\"adaptive_target\":-1,\"adaptive_decay\":0",
              s->top_n_sigma, s->typical_p, s->xtc_probability, s->xtc_threshold, s->dynatemp_range,
              s->dynatemp_exponent, s->mirostat, s->mirostat_tau, s->mirostat_eta, s->dry_multiplier,
              s->dry_base, s->dry_allowed_length, s->dry_penalty_last);
}

static void put_settings(const srv_generation *g, srv_writer *w)
{
    const srv_parameters *p = &g->parameters;
    const mo_generation_options *s = &p->generation;
    srv_print(
        w,
        "{\"n_predict\":%ld,\"max_tokens\":%ld,\"seed\":%ld,\"temperature\":%g,\"top_k\":%ld,\"top_p\":%g,"
        "\"min_p\":%g,\"repeat_penalty\":%g,\"repeat_last_n\":%ld,\"presence_penalty\":%g,"
        "\"frequency_penalty\":%g,\"stop\":[",
        s->max_tokens, s->max_tokens, s->seed, s->temperature, s->top_k, s->top_p, s->min_p,
        s->repeat_penalty, s->penalty_last, s->presence_penalty, s->frequency_penalty);
    for (size_t i = 0; i < s->stop_count; i++) {
        srv_puts(w, i > 0 ? "," : "");
        srv_put_cstring(w, p->stop[i]);
    }
    srv_put_literal(w, "],\"logit_bias\":[");
    put_biases(g, w);
    srv_put_literal(w, "],\"ignore_eos\":");
    srv_put_bool(w, s->ignore_end);
    srv_put_literal(w, ",\"stream\":");
    srv_put_bool(w, p->stream);
    put_more_settings(s, w);
    srv_print(w,
              ",\"n_probs\":%ld,\"speculative.n_max\":%d,\"speculative.n_min\":%d,"
              "\"speculative.p_min\":%g}",
              p->logprobs ? p->top : 0, s->draft_max, s->draft_min, (double)s->draft_p_min);
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

/* Did the end of the window end it? As llama-server says it, also where the request's own limit was the same. */
static bool is_truncated(const srv_generation *g, const srv_choice *c, size_t prompt)
{
    return c->finish == SRV_FINISH_LENGTH && c->completion_tokens > 0 &&
           (int64_t)g->prompts[prompt].count + c->completion_tokens >= srv_model_context(g->model_ref);
}

/* A stream has already sent the text; its last object has none. */
static void put_result(const srv_generation *g, size_t choice, const srv_usage *usage,
                       const srv_timings *timings, srv_writer *w)
{
    const srv_choice *c = &g->choices[choice];
    const size_t prompt = choice / (size_t)g->parameters.n;
    srv_writer text = {0};
    srv_choice_join(c, SRV_ITEM_TEXT, &text);
    srv_print(w, "{\"index\":%ld,\"content\":%.*s,\"tokens\":[", (int64_t)choice,
              (int)(g->streaming ? 0 : text.length), text.data);
    if (!g->streaming && g->parameters.return_tokens) {
        srv_put(w, c->tokens.data, c->tokens.length);
    }
    srv_print(w,
              "],\"id_slot\":-1,\"stop\":true,\"model\":%s,\"tokens_predicted\":%ld,\"tokens_evaluated\":%ld,"
              "\"generation_settings\":",
              g->model, c->completion_tokens, (int64_t)g->prompts[prompt].count);
    put_settings(g, w);
    srv_put_literal(w, ",\"prompt\":");
    srv_put_prompt(w, g, prompt);
    srv_put_literal(w, ",\"has_new_line\":");
    srv_put_bool(w, text.length > 0 && memchr(text.data, '\n', text.length));
    srv_put_literal(w, ",\"truncated\":");
    srv_put_bool(w, is_truncated(g, c, prompt));
    srv_print(w, ",\"stop_type\":%s,\"stopping_word\":%s,\"tokens_cached\":%ld,\"timings\":", stop_type(c),
              c->finish == SRV_FINISH_STRING && c->stop >= 0 ? g->parameters.stop[c->stop] : "",
              (int64_t)g->prompts[prompt].count + c->completion_tokens);
    srv_put_timings(w, usage, timings);
    if (g->parameters.logprobs && !g->streaming) {
        srv_put_literal(w, ",\"completion_probabilities\":[");
        srv_put(w, c->probabilities.data, c->probabilities.length);
        srv_put_literal(w, "]");
    }
    srv_put_warnings(w, g->unenforced);
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

/* Of the object that begins at `from`, only what response_fields names; each value under the path as it was written. */
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
        const char *path = json_string_value(field);
        json_t *value = path ? find(whole, path) : NULL;
        if (value) {
            json_object_set(some, path, value);
        }
    }
    char *text = mo_json_dump(some, JSON_COMPACT);
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
    srv_print(w, "data: {\"index\":%ld,\"content\":%.*s,\"tokens\":[", (int64_t)choice,
              (int)event->text.length, event->text.data);
    for (size_t i = 0; i < event->token_count; i++) {
        srv_puts(w, i > 0 ? "," : "");
        srv_put_int(w, event->tokens[i].id);
    }
    srv_print(w, "],\"stop\":false,\"id_slot\":-1,\"tokens_predicted\":%ld,\"tokens_evaluated\":%ld",
              event->completion_tokens, (int64_t)g->prompts[prompt].count);
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
