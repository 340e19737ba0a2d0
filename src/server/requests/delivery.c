/* Generation: the way back, from the engine's events to the client. Events come on threads of the engine, one at a time per
 * job; a request of several prompts has several jobs, so `lock` protects everything from `choices` down. Callbacks of the
 * request (a client that leaves, one that reads again) must not wait: they use atomics alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "server/requests/choice.h"
#include "server/requests/generation.h"
#include "server/requests/running.h"
#include "server/requests/token_replay.h"
#include "server/requests/trace.h"

/* ---- The client ---- */

static void each_job(srv_generation *g, void (*act)(srv_engine *engine, uint64_t job))
{
    for (size_t i = 0; i < g->prompt_count; i++) {
        const uint64_t job = atomic_load(&g->jobs[i]);
        if (job) {
            act(srv_model_engine(g->model_ref), job);
        }
    }
}

static void client_gone(void *user)
{
    srv_generation *g = user;
    atomic_store(&g->stops.gone, true);
    each_job(g, srv_job_cancel);
}

/* The answer was ended from outside: it keeps its text, or fails because the server ends. */
static void stop_here(void *user, bool ending)
{
    srv_generation *g = user;
    atomic_store(ending ? &g->stops.ending : &g->stops.stopped, true);
    each_job(g, srv_job_cancel);
}

static void client_reads(void *user)
{
    srv_generation *g = user;
    atomic_fetch_add(&g->stops.drained, 1);
    each_job(g, srv_job_resume);
}

/* Sends what has been written. A client that reads slowly pauses its jobs; should it have read again meanwhile, they go on. */
static void flush(srv_generation *g)
{
    if (g->starting || !g->streaming || g->out.length == 0) {
        return;
    }
    const unsigned before = atomic_load(&g->stops.drained);
    if (!srv_stream_write(g->request, g->out.data, g->out.length) && !atomic_load(&g->stops.gone)) {
        each_job(g, srv_job_pause);
        if (atomic_load(&g->stops.drained) != before) {
            each_job(g, srv_job_resume);
        }
    }
    srv_writer_empty(&g->out);
}

/* ---- Ends ---- */

static void add_up(srv_generation *g)
{
    g->usage = (srv_usage){0};
    g->timings = (srv_timings){0};
    for (size_t i = 0; i < g->prompt_count; i++) {
        const srv_usage *u = &g->running[i].usage;
        const srv_timings *t = &g->running[i].timings;
        g->usage.prompt_tokens += u->prompt_tokens;
        g->usage.cached_tokens += u->cached_tokens;
        g->usage.prompt_done += u->prompt_done;
        g->usage.completion_tokens += u->completion_tokens;
        g->usage.thought_tokens += u->thought_tokens;
        srv_draft_counts_add(&g->usage.drafts, &u->drafts);
        g->timings.queued_s = fmax(g->timings.queued_s, t->queued_s);
        g->timings.prompt_s += t->prompt_s;
        g->timings.predicted_s += t->predicted_s;
        g->timings.firsts += t->firsts;
        if (t->first_s > 0 && (g->timings.first_s == 0 || t->first_s < g->timings.first_s)) {
            g->timings.first_s = t->first_s;
        }
    }
}

bool srv_generation_is_cut(const srv_generation *g, const srv_choice *c)
{
    return c->finish == SRV_FINISH_LENGTH || (c->finish == SRV_FINISH_NONE && atomic_load(&g->stops.stopped));
}

static const char *finish_word(const srv_generation *g)
{
    if (g->failed) {
        return atomic_load(&g->stops.gone) ? "cancelled" : "failed";
    }
    if (atomic_load(&g->stops.stopped)) {
        return "cancelled";
    }
    return g->choice_count > 0 && g->choices[0].finish == SRV_FINISH_LENGTH ? "length" : "stop";
}

/* All jobs have ended: the answer, or the rest of it, or what went wrong. */
static void complete(srv_generation *g)
{
    if (g->stops.listed) {
        srv_running_remove(g->generator->running, g);
    }
    if (g->trace) { /* before the client knows the answer's end and asks for it */
        srv_trace_end(g->trace);
    }
    add_up(g);
    for (size_t i = 0; i < g->choice_count && !g->failed; i++) {
        if (g->choices[i].failed) {
            g->failed = true;
            srv_fault_set(&g->fault, SRV_FAULT_SERVER, NULL, "out of memory");
        }
    }
    if (g->streaming) {
        g->failed ? g->writer->fail(g, &g->fault, &g->out) : g->writer->end(g, &g->out);
        flush(g);
        srv_stream_close(g->request);
    } else if (g->failed) {
        srv_reply_fault(g->request, &g->fault);
    } else {
        srv_writer_empty(&g->out);
        g->writer->whole(g, &g->out);
        srv_reply_writer(g->request, 200, &g->out);
    }
    const srv_answer_note note = {
        .model = g->model,
        .finish = finish_word(g),
        .prompt_tokens = g->usage.prompt_tokens,
        .cached_tokens = g->usage.cached_tokens,
        .answer_tokens = g->usage.completion_tokens,
        .first_token_s = g->timings.first_s,
    };
    srv_request_note(g->request, &note);
    srv_generation_close(g);
}

/* The field that the grammar comes from. */
static const char *constraint(const srv_generation *g)
{
    return srv_format_asked(&g->format) ? g->format.param : "tools";
}

/* What the engine could not do. Where no other try can, it is the request's fault, so that clients do not ask again. */
static void fail(srv_generation *g, const mo_error *err)
{
    const bool biased = g->parameters.generation.bias_count > 0;
    if (g->failed) {
        return; /* the first reason counts */
    }
    g->failed = true;
    if (err->status == MO_ECANCELLED && atomic_load(&g->stops.ending)) {
        srv_fault_set(&g->fault, SRV_FAULT_UNAVAILABLE, NULL,
                      "the server is shutting down; the answer is incomplete");
    } else if (err->status == MO_ECANCELLED) {
        srv_fault_set(&g->fault, SRV_FAULT_UNAVAILABLE, NULL, "the request was cancelled");
    } else if (err->status == MO_EINVAL && (g->grammar || biased)) { /* no token is allowed */
        srv_fault_set(&g->fault, SRV_FAULT_REQUEST, biased ? "logit_bias" : constraint(g), "%s", err->detail);
    } else if (err->status == MO_ENOSPC && g->grammar) { /* it cannot be followed */
        srv_fault_set(&g->fault, SRV_FAULT_REQUEST, constraint(g), "%s", err->detail);
    } else if (err->status == MO_EUNSUPPORTED && g->parameters.adapters_asked) { /* scales too large */
        srv_fault_status(&g->fault, err, "lora");
    } else {
        char text[sizeof g->fault.message];
        if (err->status == MO_EIO || err->status == MO_EFORMAT) {
            srv_model_doubt(g->model_ref);
        }
        srv_fault_words(err, srv_model_path(g->model_ref), text, sizeof text);
        srv_fault_set(&g->fault, SRV_FAULT_SERVER, NULL, "%s", text);
    }
    each_job(g, srv_job_cancel);
}

/* ---- Events ---- */

void srv_keep_probabilities(srv_generation *g, srv_choice *c, const srv_event *event)
{
    if (g->parameters.logprobs) {
        c->probability_count += srv_put_probabilities(&c->probabilities, srv_model_mo(g->model_ref), event,
                                                      c->probability_count > 0);
    }
}

void srv_keep_unsent(srv_generation *g, srv_choice *c, const srv_event *event)
{
    if (!g->streaming) {
        srv_keep_probabilities(g, c, event);
    }
}

void srv_put_prompt(srv_writer *w, const srv_generation *g, size_t prompt)
{
    srv_writer text = {0};
    const int32_t *ids = g->prompts[prompt].ids;
    for (size_t i = 0; i < g->prompts[prompt].count; i++) {
        const mo_text bytes = mo_token_bytes(srv_model_mo(g->model_ref), ids[i]);
        const bool begins =
            ids[i] < 0 && (i == 0 || ids[i - 1] >= 0); /* a picture, of which there are many rows */
        srv_puts(&text, begins ? MO_IMAGE_MARK : "");
        srv_put(&text, bytes.data, ids[i] < 0 ? 0 : bytes.length);
    }
    srv_put_string(w, text.data, text.length);
    w->failed = w->failed || text.failed;
    srv_writer_free(&text);
}

void srv_keep_tokens(srv_generation *g, srv_choice *c, const srv_event *event)
{
    (void)g;
    for (size_t i = 0; i < event->token_count; i++) {
        srv_puts(&c->tokens, c->tokens.length > 0 ? "," : "");
        srv_put_int(&c->tokens, event->tokens[i].id);
    }
}

static void take(srv_generation *g, size_t prompt, const srv_event *event)
{
    const size_t index = prompt * (size_t)g->parameters.n + (size_t)event->choice;
    if (index >= g->choice_count) {
        return;
    }
    srv_choice *c = &g->choices[index];
    const bool fresh = srv_choice_take(c, event);
    if (event->kind == SRV_CALL && g->call_conversation) {
        srv_call_index_add(g->generator->call_index, event->call_id, g->call_conversation);
    }
    if (g->writer->keep && event->token_count > 0) {
        g->writer->keep(g, c, event);
        c->failed = c->failed || c->probabilities.failed || c->tokens.failed;
    }
    if (g->streaming && !g->failed) {
        g->writer->event(g, index, event, fresh, &g->out);
        if (g->out.failed) {
            c->failed = true;
        }
    }
}

/* A job that was stopped has ended well, with what it has: it does not say that the model was done, or that a call is complete. */
static void end_choices(srv_generation *g, size_t prompt, const srv_event *event)
{
    for (int i = 0; i < (int)g->parameters.n; i++) {
        const srv_choice *c = &g->choices[prompt * (size_t)g->parameters.n + (size_t)i];
        if (c->finish == SRV_FINISH_NONE) {
            srv_event end = *event;
            end.choice = i;
            end.finish = SRV_FINISH_NONE;
            end.stop = -1;
            end.completion_tokens = c->completion_tokens;
            end.token_count = 0;
            end.text = (mo_text){"", 0};
            if (c->open && c->count > 0 && srv_choice_last(c)->kind == SRV_ITEM_CALL) {
                end.kind = SRV_CALL_END;
                take(g, prompt, &end);
            }
            end.kind = SRV_END;
            take(g, prompt, &end);
        }
    }
}

static bool sink(void *user, const srv_event *event)
{
    struct srv_request_job *job = user;
    srv_generation *g = job->generation;
    bool last = false;
    pthread_mutex_lock(&g->lock);
    switch (event->kind) {
    case SRV_STARTED: break;
    case SRV_DONE:
    case SRV_FAILED:
        job->usage = *event->usage;
        job->timings = *event->timings;
        atomic_store(&g->jobs[job->prompt], 0);
        if (event->kind == SRV_FAILED && event->error->status == MO_ECANCELLED &&
            atomic_load(&g->stops.stopped)) {
            end_choices(g, job->prompt, event);
        } else if (event->kind == SRV_FAILED) {
            fail(g, event->error);
        }
        last = --g->running_count == 0 && !g->starting;
        break;
    default: take(g, job->prompt, event); break;
    }
    if (!last && !event->more) {
        flush(g);
    }
    const bool stay = !atomic_load(&g->stops.gone);
    pthread_mutex_unlock(&g->lock);
    if (last) {
        complete(g);
    }
    return stay;
}

/* What was held back is sent: one wake of HTTP's thread, and of the client, for all of it. */
static void on_batch_end(void *user)
{
    srv_generation *g = ((struct srv_request_job *)user)->generation;
    pthread_mutex_lock(&g->lock);
    flush(g);
    pthread_mutex_unlock(&g->lock);
}

/* ---- Start ---- */

static void refused(srv_generation *g, srv_verdict verdict, const mo_error *err, size_t prompt)
{
    switch (verdict) {
    case SRV_QUEUE_FULL: srv_fault_set(&g->fault, SRV_FAULT_QUEUE, NULL, "%s", err->detail); break;
    case SRV_TOO_LONG:
        srv_fault_context(&g->fault, (int64_t)g->prompts[prompt].count, srv_model_context(g->model_ref));
        break;
    case SRV_TOO_MANY: srv_fault_set(&g->fault, SRV_FAULT_REQUEST, "n", "%s", err->detail); break;
    case SRV_INVALID: srv_fault_set(&g->fault, SRV_FAULT_REQUEST, NULL, "%s", err->detail); break;
    case SRV_STOPPING: srv_fault_set(&g->fault, SRV_FAULT_UNAVAILABLE, NULL, "%s", err->detail); break;
    default: srv_fault_set(&g->fault, SRV_FAULT_SERVER, NULL, "%s", err->detail); break;
    }
    g->failed = true;
}

static bool submit(srv_generation *g, size_t prompt, const mo_reply_options *reply)
{
    const srv_parameters *p = &g->parameters;
    srv_job_options o = srv_job_options_default();
    o.tokens = g->prompts[prompt].ids;
    o.count = g->prompts[prompt].count;
    o.images = g->prompts[prompt].pictures
                   ? g->conversation.pictures.images + g->prompts[prompt].first_picture
                   : NULL;
    o.image_count = (int)g->prompts[prompt].pictures;
    o.generation = p->generation;
    o.generation.stop = p->stop;
    o.generation.dry_breakers = p->generation.dry_breaker_count || p->no_breakers ? p->breakers : NULL;
    o.generation.samplers = p->samplers[0] ? p->samplers : NULL;
    o.generation.logprobs = p->logprobs ? (int)p->top : -1;
    o.generation.raw = g->raw;
    memcpy(o.adapters, p->adapters, sizeof o.adapters);
    o.adapter_count = p->adapter_count;
    o.n = (int)p->n;
    o.reply = g->raw ? NULL : reply;
    o.grammar = g->grammar;
    o.no_cache = !p->cache_prompt;
    o.progress = p->return_progress && g->streaming;
    o.priority = srv_request_priority(g->request);
    o.client = srv_request_client_number(g->request);
    o.owner = srv_request_caller(g->request).owner;
    const char *identity = srv_request_owner(g->request);
    o.identity = mo_hash_text(MO_HASH_SEED, identity, strlen(identity));
    o.routes = g->trace && prompt == 0 ? srv_trace_note : NULL;
    o.routes_user = g->trace;
    o.sink = sink;
    o.batch_end = on_batch_end;
    o.user = &g->running[prompt];
    g->running[prompt] = (struct srv_request_job){.generation = g, .prompt = prompt};
    pthread_mutex_lock(&g->lock);
    g->running_count++;
    pthread_mutex_unlock(&g->lock);
    uint64_t job = 0;
    mo_error err = {MO_OK, {0}};
    const srv_verdict verdict = srv_job_submit(srv_model_engine(g->model_ref), &o, &job, &err);
    if (verdict != SRV_ACCEPTED) {
        pthread_mutex_lock(&g->lock);
        g->running_count--;
        refused(g, verdict, &err, prompt);
        pthread_mutex_unlock(&g->lock);
        return false;
    }
    atomic_store(&g->jobs[prompt], job); /* of one that has ended already: cancelling it does nothing */
    return true;
}

/* All prompts of a request wait together: more than can wait would be refused again and again. */
static bool fits_queue(srv_generation *g)
{
    const int most = srv_engine_queue(srv_model_engine(g->model_ref));
    return g->prompt_count <= (size_t)most ||
           srv_fault_set(&g->fault, SRV_FAULT_REQUEST, "prompt",
                         "%zu prompts were sent, but at most %d requests can wait; send fewer",
                         g->prompt_count, most);
}

/* Where it was asked for; of several answers the first is traced. */
static bool begin_trace(srv_generation *g)
{
    if (!g->parameters.trace) {
        return true;
    }
    if (!g->id[0]) {
        return srv_fault_set(&g->fault, SRV_FAULT_REQUEST, "trace",
                             "answers of this endpoint have no id and cannot be traced");
    }
    g->trace = srv_traces_begin(g->generator->traces, g->id, srv_request_owner(g->request), g->model,
                                srv_model_mo(g->model_ref));
    return g->trace || srv_fault_set(&g->fault, SRV_FAULT_SERVER, NULL, "out of memory");
}

void srv_generation_start(srv_generation *g)
{
    if ((g->prompt_count > 1 && !fits_queue(g)) || !begin_trace(g)) {
        srv_generation_refuse(g);
        return;
    }
    srv_parameters_seed(&g->parameters);
    g->choice_count = g->prompt_count * (size_t)g->parameters.n;
    g->choices = calloc(g->choice_count, sizeof *g->choices);
    if (!g->choices) {
        g->choice_count = 0;
        srv_fault_set(&g->fault, SRV_FAULT_SERVER, NULL, "out of memory");
        srv_generation_refuse(g);
        return;
    }
    for (size_t i = 0; i < g->choice_count; i++) {
        g->choices[i].stop = -1;
    }
    g->starting = true;
    g->streaming = g->parameters.stream;
    if (g->streaming) {
        g->writer->begin(g, &g->out);
    }
    srv_request_on_gone(g->request, client_gone, g);
    if (g->generator->running) {
        g->stops.listed =
            srv_running_add(g->generator->running, g->id, srv_request_owner(g->request), stop_here, g);
    }
    mo_reply_options reply = mo_reply_options_default();
    reply.in_thought = g->in_thought;
    reply.keep_thought = g->parameters.keep_thought;
    reply.single = g->tools.single;
    if (g->tools.list && g->tools.calling != SRV_CALLING_NONE) {
        reply.tools = g->tools_text;
        reply.tools_length = strlen(g->tools_text);
    }
    bool good = true;
    for (size_t i = 0; i < g->prompt_count && good; i++) {
        good = submit(g, i, &reply);
    }
    if (!good || atomic_load(&g->stops.gone) || atomic_load(&g->stops.stopped) ||
        atomic_load(&g->stops.ending)) {
        each_job(g, srv_job_cancel);
    }
    pthread_mutex_lock(&g->lock);
    if (g->streaming && !g->failed) {
        srv_stream_open(g->request, g->writer->stream, (int)g->parameters.heartbeat_ms);
        srv_stream_on_drained(g->request, client_reads, g);
    } else {
        g->streaming = false; /* an error before the first byte is an ordinary one */
    }
    g->starting = false;
    const bool ended = g->running_count == 0;
    if (!ended) {
        flush(g);
    }
    pthread_mutex_unlock(&g->lock);
    if (ended) {
        complete(g);
    }
}
