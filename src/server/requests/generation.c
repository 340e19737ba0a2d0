/* Generation: see generation.h. From a request's JSON to what the engine is asked; delivery.c has the way back. */
#include "server/requests/generation.h"

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "server/common/body.h"
#include "server/requests/known_fields.h"
#include "server/requests/parameters.h"
#include "server/requests/speculation.h"
#include "server/requests/thinking.h"
#include "server/requests/token_replay.h"
#include "server/requests/trace.h"

enum { LARGE_BODY = 4 << 20 };

/* ---- Open and close ---- */

static bool no_memory(srv_generation *g)
{
    return srv_fault_set(&g->fault, SRV_FAULT_SERVER, NULL, "out of memory");
}

/* A server with one model has one for every name; models.h knows. */
static bool ref_model(srv_generation *g)
{
    const srv_field root = srv_field_root(g->root, &g->fault);
    mo_text name = {"", 0};
    const int64_t began = mo_clock_ns();
    if (!srv_read_text(srv_member(&root, "model"), &name) ||
        !srv_model_ref(g->generator->models, name.data, g->request, &g->model_ref, &g->fault)) {
        return false;
    }
    g->times.load_ns = mo_clock_ns() - began;
    g->model = srv_model_id(g->model_ref);
    g->conversation.pictures.accepted = mo_model_reads_pictures(srv_model_mo(g->model_ref));
    g->conversation.pictures.fetched = g->generator->image_urls ? srv_address_public : NULL;
    snprintf(g->fingerprint, sizeof g->fingerprint, "moraine-%s-%016" PRIx64, mo_version(),
             srv_engine_info(srv_model_engine(g->model_ref))->fingerprint);
    return true;
}

srv_generation *srv_generation_open(const srv_generator *generator, srv_request *request, srv_dialect dialect,
                                    const srv_dialect_writer *writer)
{
    srv_generation *g = calloc(1, sizeof *g);
    if (!g) {
        srv_fault fault = {0};
        srv_fault_set(&fault, SRV_FAULT_SERVER, NULL, "out of memory");
        srv_reply_fault(request, &fault);
        srv_request_end(request);
        return NULL;
    }
    pthread_mutex_init(&g->lock, NULL);
    g->generator = generator;
    g->request = request;
    g->dialect = dialect;
    g->writer = writer;
    g->parameters = srv_parameters_default();
    g->times.created = (int64_t)time(NULL);
    g->times.begun_ns = srv_request_begun_ns(request);
    g->large = srv_request_body(request).length > LARGE_BODY;
    if (!srv_body_read(srv_request_body(request), &g->root, &g->root_held, &g->fault) || !ref_model(g)) {
        srv_generation_refuse(g);
        return NULL;
    }
    return g;
}

void srv_generation_close(srv_generation *g)
{
    if (g->trace) {
        srv_trace_end(g->trace);
        srv_trace_release(g->trace);
    }
    srv_request_end(g->request); /* after this, a client that leaves or reads again is not reported */
    for (size_t i = 0; i < g->prompt_count; i++) {
        free(g->prompts[i].ids);
    }
    for (size_t i = 0; i < g->choice_count; i++) {
        srv_choice_free(&g->choices[i]);
    }
    free(g->choices);
    mo_grammar_close(g->grammar);
    if (g->model_ref) {
        srv_model_unref(g->model_ref);
    }
    free(g->tools_text);
    free(g->unenforced);
    srv_writer_free(&g->prefix);
    srv_writer_free(&g->out);
    srv_tools_free(&g->tools);
    srv_format_free(&g->format);
    srv_conversation_free(&g->conversation);
    srv_parameters_free(&g->parameters);
    json_decref(g->history.before);
    json_decref(g->root);
    srv_body_release(g->root_held);
    pthread_mutex_destroy(&g->lock);
    const bool large = g->large;
    free(g);
    if (large) {
        malloc_trim(0); /* or what the largest request took stays with the process */
    }
}

void srv_generation_refuse(srv_generation *g)
{
    srv_reply_fault(g->request, &g->fault);
    srv_generation_close(g);
}

/* ---- Parameters ---- */

static void take_number(double given, float *out)
{
    *out = isnan(given) ? *out : (float)given;
}

static void take_whole(int64_t given, int64_t *out)
{
    *out = given == SRV_NOT_GIVEN ? *out : given;
}

/* What the model's file recommends, overridden by the server's options. */
static void take_defaults(srv_generation *g)
{
    const srv_defaults *d = srv_model_defaults(g->model_ref);
    srv_parameters *p = &g->parameters;
    mo_generation_options *o = &p->generation;
    mo_generation_options_recommend(srv_model_mo(g->model_ref), o);
    take_number(d->temperature, &o->temperature);
    take_number(d->top_p, &o->top_p);
    take_number(d->min_p, &o->min_p);
    take_number(d->repeat_penalty, &o->repeat_penalty);
    take_number(d->presence_penalty, &o->presence_penalty);
    take_number(d->frequency_penalty, &o->frequency_penalty);
    take_whole(d->top_k, &o->top_k);
    take_whole(d->repeat_last_n, &o->penalty_last);
    take_whole(d->max_tokens, &o->max_tokens);
    take_whole(d->reasoning_budget, &o->thought_tokens);
    p->adapter_count = srv_model_adapters(g->model_ref, p->adapters);
    if (d->seed >= 0) {
        o->seed = d->seed;
        p->seeded = true;
    }
    p->verbose = d->verbose;
    p->keep_thought = d->reasoning_format && strcmp(d->reasoning_format, "none") == 0;
    if (d->reasoning) {
        p->thinking = strcmp(d->reasoning, "on") == 0    ? SRV_ON
                      : strcmp(d->reasoning, "off") == 0 ? SRV_OFF
                                                         : SRV_UNSET;
    }
}

bool srv_generation_parameters(srv_generation *g, const srv_field *object)
{
    take_defaults(g);
    return srv_known_fields_check(object, g->dialect, g->dialect == SRV_DIALECT_OLLAMA) &&
           srv_parameters_read(object, g->dialect, srv_model_mo(g->model_ref), &g->parameters) &&
           srv_thinking_read(object, &g->parameters) && srv_speculation_read(object, &g->parameters) &&
           (g->dialect != SRV_DIALECT_CHAT ||
            srv_prediction_read(object, srv_model_mo(g->model_ref), &g->parameters));
}

/* The answer reports the parts of a schema that are not enforced, and skipped parts of a history. */
static bool note(srv_generation *g, const char *lines)
{
    if (!lines || !*lines) {
        return true;
    }
    srv_writer all = {0};
    srv_puts(&all, g->unenforced ? g->unenforced : "");
    srv_puts(&all, all.length > 0 && all.data[all.length - 1] != '\n' ? "\n" : "");
    srv_puts(&all, lines);
    char *text = all.failed ? NULL : strndup(all.data, all.length);
    srv_writer_free(&all);
    free(g->unenforced);
    g->unenforced = text;
    return text || no_memory(g);
}

/* ---- Prompts ---- */

/* Tokens that are made of a prompt. Of one that cannot fit the rest is not tokenized; most refusals can still say how many it
 * has. */
static size_t tokens_most(const srv_generation *g)
{
    return 4 * (size_t)srv_model_context(g->model_ref) + 4096;
}

static bool check_length(srv_generation *g, size_t count)
{
    const int64_t context = srv_model_context(g->model_ref);
    return (int64_t)count < context ||
           (count < tokens_most(g) ? srv_fault_context(&g->fault, (int64_t)count, context)
                                   : srv_fault_context_more(&g->fault, (int64_t)tokens_most(g) - 1, context));
}

/* The rows of a prompt's pictures, in the places that were left for them. A prompt that was cut does not fit anyway. */
static bool place_pictures(srv_generation *g, srv_tokens *tokens)
{
    const srv_pictures *p = &g->conversation.pictures;
    int32_t *all = NULL;
    size_t count = 0;
    mo_error err;
    if (tokens->pictures == 0 || (tokens->most && tokens->count >= tokens->most)) {
        return true;
    }
    if (mo_images_place(p->images + tokens->first_picture, (int)tokens->pictures, tokens->ids, tokens->count,
                        &all, &count, &err) != MO_OK) {
        return g->raw ? srv_fault_status(&g->fault, &err, "prompt")
                      : srv_fault_set(&g->fault, SRV_FAULT_REQUEST, "messages",
                                      "the model's template does not show all pictures: %s", err.detail);
    }
    free(tokens->ids);
    tokens->ids = all;
    tokens->count = count;
    return true;
}

bool srv_generation_render(srv_generation *g, srv_rendering *out)
{
    const char *kwargs = srv_model_defaults(g->model_ref)->template_kwargs;
    if (g->tools.list) {
        g->tools_text = mo_json_dump(g->tools.list, JSON_COMPACT);
        if (!g->tools_text) {
            return no_memory(g);
        }
    }
    srv_pictures *pictures = &g->conversation.pictures;
    const size_t body = srv_request_body(g->request).length;
    const size_t bytes = body > pictures->text ? body - pictures->text : 0; /* pictures are no text */
    if ((pictures->count && !srv_pictures_open(pictures, 0, pictures->count, srv_model_mo(g->model_ref),
                                               srv_model_context(g->model_ref), &g->fault)) ||
        !srv_text_hold(bytes, &g->fault)) {
        return false;
    }
    const bool good = srv_rendering_make(srv_model_mo(g->model_ref), &g->conversation, &g->tools,
                                         &g->parameters, kwargs, out, &g->fault);
    srv_text_release(bytes);
    out->tokens.pictures = pictures->count;
    return good && place_pictures(g, &out->tokens);
}

/* Answers that come back as text are taken as the tokens they were. */
static void replay_tokens(srv_generation *g, srv_rendering *rendered)
{
    const srv_token_replay r = {
        .owner = srv_request_caller(g->request).owner,
        .model = srv_model_mo(g->model_ref),
        .model_id = g->model,
        .engine = srv_model_engine(g->model_ref),
        .call_index = g->generator->call_index,
        .context = srv_model_context(g->model_ref),
        .conversation = &g->conversation,
        .tools = &g->tools,
        .tools_text = g->tools_text,
        .parameters = &g->parameters,
        .kwargs = srv_model_defaults(g->model_ref)->template_kwargs,
    };
    if (r.call_index && !g->conversation.prefill && g->tools.list && !g->conversation.pictures.count) {
        g->call_conversation = srv_token_replay_number(&r);
        srv_token_replay_apply(&r, rendered);
    }
}

bool srv_generation_chat(srv_generation *g)
{
    srv_rendering r = {.tokens.most = tokens_most(g)};
    bool good = srv_generation_render(g, &r);
    if (good) {
        replay_tokens(g, &r);
    }
    g->prompts[0] = r.tokens;
    g->prompt_count = 1;
    g->in_thought = r.in_thought;
    r.tokens = (srv_tokens){0};
    good = good &&
           (g->prompts[0].count > 0 ||
            srv_fault_set(&g->fault, SRV_FAULT_REQUEST, "messages", "the rendered prompt is empty")) &&
           check_length(g, g->prompts[0].count);
    if (good && g->conversation.left_out.length > 0) {
        srv_put(&g->conversation.left_out, "", 1);
        good = g->conversation.left_out.failed ? no_memory(g) : note(g, g->conversation.left_out.data);
    }
    srv_rendering_free(&r);
    return good;
}

bool srv_generation_text(srv_generation *g, const srv_field *prompt)
{
    g->raw = true;
    if (g->parameters.think_field) {
        return srv_fault_set(&g->fault, SRV_FAULT_REQUEST, g->parameters.think_field,
                             "requires a conversation; text completions have no reasoning");
    }
    if (!prompt->value) {
        return srv_missing(prompt);
    }
    srv_pictures *pictures = &g->conversation.pictures;
    const size_t body = srv_request_body(g->request).length, media = srv_prompts_media(prompt);
    const size_t bytes = body > media ? body - media : 0;
    if (!srv_text_hold(bytes, &g->fault)) {
        return false;
    }
    for (size_t i = 0; i < SRV_PROMPTS_MAX; i++) {
        g->prompts[i].most = tokens_most(g);
    }
    bool good = srv_prompts_read(prompt, srv_model_mo(g->model_ref), pictures, g->prompts, SRV_PROMPTS_MAX,
                                 &g->prompt_count, &g->several);
    srv_text_release(bytes);
    for (size_t i = 0; i < g->prompt_count && good; i++) {
        srv_tokens *t = &g->prompts[i];
        good = (!t->pictures ||
                srv_pictures_open(pictures, t->first_picture, t->pictures, srv_model_mo(g->model_ref),
                                  srv_model_context(g->model_ref), &g->fault)) &&
               place_pictures(g, t) && check_length(g, t->count);
    }
    return good;
}

/* ---- Constraints ---- */

static bool calls_wanted(const srv_generation *g)
{
    return g->tools.list && g->tools.calling != SRV_CALLING_NONE;
}

/* Does one of the functions ask that its arguments follow its schema to the letter? */
static bool strict_tools(const srv_generation *g)
{
    size_t i;
    json_t *tool;
    json_array_foreach(g->tools.list, i, tool)
    {
        if (json_is_true(json_object_get(json_object_get(tool, "function"), "strict"))) {
            return true;
        }
    }
    return false;
}

/* Calls as the tools' schemas say; text, where there is one, as the format says. */
static bool constrain_calls(srv_generation *g, const char *text_gbnf)
{
    mo_tools_options o = mo_tools_options_default();
    o.tools = g->tools_text;
    o.tools_length = strlen(g->tools_text);
    o.required = g->tools.calling == SRV_CALLING_REQUIRED || g->tools.calling == SRV_CALLING_NAMED;
    o.name = g->tools.calling == SRV_CALLING_NAMED ? g->tools.name : NULL;
    o.single = g->tools.single;
    o.in_thought = g->in_thought;
    o.strict = strict_tools(g);
    o.text_gbnf = text_gbnf;
    mo_error err;
    if (mo_tools_grammar(srv_model_mo(g->model_ref), &o, &g->grammar, &err) != MO_OK) {
        return srv_fault_status(&g->fault, &err, "tools");
    }
    return note(g, mo_grammar_unenforced(g->grammar));
}

/* The grammar that a format stands for; *gbnf is NULL where none is asked, and mo_free()d. */
static bool format_gbnf(srv_generation *g, char **gbnf)
{
    if (g->format.grammar.data) {
        *gbnf = strndup(g->format.grammar.data, g->format.grammar.length);
        return *gbnf || no_memory(g);
    }
    if (!g->format.schema) {
        return true;
    }
    char *schema = mo_json_dump(g->format.schema, JSON_COMPACT | JSON_ENCODE_ANY), *unenforced = NULL;
    if (!schema) {
        return no_memory(g);
    }
    mo_grammar_options o = mo_grammar_options_default();
    o.strict = g->format.strict;
    mo_error err;
    bool good;
    if (strlen(schema) > SRV_SCHEMA_BYTES) {
        good = srv_fault_set(&g->fault, SRV_FAULT_REQUEST, g->format.param, "the schema exceeds %d bytes",
                             SRV_SCHEMA_BYTES);
    } else if (mo_schema_gbnf(schema, strlen(schema), "root", &o, gbnf, &unenforced, &err) != MO_OK) {
        good = srv_fault_status(&g->fault, &err, g->format.param);
    } else {
        good = note(g, unenforced);
    }
    free(schema);
    mo_free(unenforced);
    return good;
}

/* Thoughts, and marks before the answer, are the model's; the grammar is the answer's. It is tried as it is first: its errors
 * have the client's own lines. */
static bool constrain_text(srv_generation *g, const char *gbnf)
{
    const mo_model *model = srv_model_mo(g->model_ref);
    char *whole = NULL;
    mo_error err;
    mo_status status = mo_grammar_open(model, gbnf, strlen(gbnf), NULL, &g->grammar, &err);
    if (status == MO_OK && !g->raw) {
        mo_grammar_close(g->grammar);
        g->grammar = NULL;
        status = mo_answer_grammar(model, gbnf, strlen(gbnf), g->in_thought, &whole, &err);
        if (status == MO_OK) {
            status = mo_grammar_open(model, whole, strlen(whole), NULL, &g->grammar, &err);
        }
        mo_free(whole);
    }
    return status == MO_OK || srv_fault_status(&g->fault, &err, g->format.param);
}

bool srv_generation_constrain(srv_generation *g)
{
    if (g->format.grammar.data && calls_wanted(g)) {
        return srv_fault_set(&g->fault, SRV_FAULT_REQUEST, g->format.param,
                             "cannot be combined with tools; omit one, or set tool_choice to none");
    }
    char *gbnf = NULL;
    bool good = format_gbnf(g, &gbnf);
    if (good && calls_wanted(g)) {
        good = constrain_calls(g, gbnf);
    } else if (good && gbnf) {
        good = constrain_text(g, gbnf);
    }
    mo_free(gbnf);
    return good;
}
