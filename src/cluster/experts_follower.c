/* A rank that has only experts of a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/status.h"
#include "cluster/experts.h"
#include "engine/adapter.h"
#include "engine/forward.h"

typedef struct helper {
    mo_link *link;
    mo_engine *engine;
    int64_t used; /* maximum experts of a token in any layer */
    int layer;    /* of the last request */
    mo_experts_head head;
    uint32_t drafted[MO_EXPERTS_MAX]; /* rows of drafts by expert */
    uint8_t *body;
    mo_experts_answer answer;
    mo_wire_result result;
} helper;

/* ---- Requests ---- */

static mo_status check_head(const helper *h, mo_error *err)
{
    const mo_experts_head *q = &h->head;
    const mo_model_spec *spec = h->engine->spec;
    const bool known = q->layer >= 0 && q->layer < spec->layer_count && spec->layers[q->layer].routed;
    const int64_t here = spec->experts.end - spec->experts.first;
    if (!known || q->tokens < 1 || q->tokens > h->engine->batch || q->rows < q->tokens ||
        q->rows > q->tokens * spec->layers[q->layer].moe.used || q->experts < 1 || q->experts > here ||
        q->experts > q->rows || (q->codes && (spec->layers[q->layer].moe.io % 32 != 0 || q->adapted)) ||
        (q->adapted && h->engine->adapter_count == 0)) {
        return mo_fail(err, MO_EFORMAT, "rank 0 sent an invalid request for experts");
    }
    return MO_OK;
}

/* Reads the picks, which rank 0 has sorted: fills count, first and token_of of w->picks. */
static mo_status take_picks(helper *h, const mo_forward *f, mo_error *err)
{
    const mo_experts_head *q = &h->head;
    const mo_expert_range *here = &f->spec->experts;
    const int experts = f->layer->moe.experts;
    mo_picks *picks = &f->w->picks;
    int64_t row = 0;
    int last = -1;
    bool good = true;
    mo_picks_begin(picks, experts, f->layer->moe.used, q->tokens);
    memset(picks->count, 0, sizeof *picks->count * (size_t)experts);
    for (int i = 0; i < q->experts && good; i++) {
        mo_experts_pick p;
        memcpy(&p, h->body + sizeof p * (size_t)i, sizeof p);
        good = p.expert > last && p.expert >= here->first && p.expert < here->end && p.expert < experts &&
               p.rows >= 1 && p.rows <= q->tokens && p.rows <= q->rows - row && p.drafts >= 0 &&
               p.drafts <= p.rows;
        if (good) {
            picks->count[p.expert] = p.rows;
            h->drafted[p.expert] = (uint32_t)p.drafts;
            row += p.rows;
            last = p.expert;
        }
    }
    mo_picks_lay(picks);
    memcpy(picks->token_of, h->body + sizeof(mo_experts_pick) * (size_t)q->experts,
           sizeof(int32_t) * (size_t)q->rows);
    for (int64_t i = 0; i < q->rows; i++) {
        good &= picks->token_of[i] >= 0 && picks->token_of[i] < q->tokens;
    }
    return good && row == q->rows
               ? MO_OK
               : mo_fail(err, MO_EFORMAT, "rank 0 requested experts that this rank does not have");
}

static void take_token(const mo_forward *f, const uint8_t *at, int64_t token, bool codes)
{
    const mo_acts *in = &f->in_experts;
    if (!codes) {
        memcpy(in->x + token * in->cols, at, sizeof(float) * (size_t)in->cols);
        mo_forward_quantize(f->k, in, token);
        return;
    }
    const int64_t blocks = in->cols / 32;
    memcpy(in->q + token * in->cols, at, (size_t)in->cols);
    memcpy(in->d + token * blocks, at + in->cols, sizeof(float) * (size_t)blocks);
    mo_acts_sums(in, token);
}

static void take_tokens(const helper *h, const mo_forward *f)
{
    const mo_experts_head *q = &h->head;
    const size_t bytes = mo_experts_token_bytes(f->in_experts.cols, q->codes != 0);
    const uint8_t *at = h->body + mo_experts_body_bytes(q, f->in_experts.cols) - mo_experts_uses_bytes(q) -
                        bytes * (size_t)q->tokens;
    for (int64_t t = 0; t < q->tokens; t++) {
        take_token(f, at + bytes * (size_t)t, t, q->codes != 0);
    }
}

/* Reads each token's adapters, as if each were a slice of its own. */
static mo_status take_uses(const helper *h, const mo_forward *f, mo_error *err)
{
    const mo_experts_head *q = &h->head;
    const mo_engine *e = h->engine;
    mo_adapting *a = &f->w->adapting;
    const uint8_t *at = h->body + mo_experts_body_bytes(q, f->in_experts.cols) - mo_experts_uses_bytes(q);
    a->count = q->adapted ? e->adapter_count : 0;
    a->slice_of = f->w->slice_of;
    for (int i = 0; i < a->count; i++) {
        a->lora[i] = &e->adapters[i]->lora;
    }
    for (int64_t t = 0; t < q->tokens && q->adapted; t++) {
        f->w->slice_of[t] = (int32_t)t;
        for (int i = 0; i < MO_ADAPTERS_USED; i++, at += sizeof(mo_experts_use)) {
            mo_experts_use use;
            memcpy(&use, at, sizeof use);
            if (use.adapter < -1 || use.adapter >= e->adapter_count) {
                return mo_fail(err, MO_EFORMAT, "rank 0 named adapters that this rank has not loaded");
            }
            a->uses[t * MO_ADAPTERS_USED + i] = (mo_adapting_use){.which = use.adapter, .scale = use.scale};
        }
    }
    return MO_OK;
}

/* ---- Replies ---- */

/* Computes rows of w->down, or the error to reply. MO_EFORMAT in err: the request is invalid. */
static mo_status compute(helper *h, mo_error *err)
{
    mo_engine *e = h->engine;
    const mo_slice slice = {.count = h->head.tokens, .prompt = h->head.prompt != 0};
    mo_forward f = {.engine = e,
                    .tally = atomic_load(&e->tally),
                    .spec = e->spec,
                    .k = e->kernels,
                    .w = &e->space,
                    .slices = &slice,
                    .slice_count = 1,
                    .tokens = h->head.tokens,
                    .layer = &e->spec->layers[h->head.layer],
                    .index = h->head.layer,
                    .experts_only = true,
                    .drafted = h->drafted};
    mo_error own = {0};
    f.in_experts = mo_acts_lay(f.w->in, f.tokens, f.layer->moe.io);
    mo_status status = take_picks(h, &f, err);
    if (status == MO_OK) {
        status = take_uses(h, &f, err);
    }
    if (status != MO_OK) {
        return status;
    }
    take_tokens(h, &f);
    if (e->tiers && e->tiers->store && h->head.layer <= h->layer) { /* a new step begins */
        mo_store_pass(e->tiers->store, slice.prompt ? MO_STORE_PROMPT : MO_STORE_GENERATION);
    }
    h->layer = h->head.layer;
    h->answer = (mo_experts_answer){.status = (int32_t)mo_forward_experts(&f, &own), .rows = h->head.rows};
    h->answer.listens = mo_guess_wanted(e->tiers);
    if (h->answer.status != MO_OK) {
        h->result = (mo_wire_result){.status = h->answer.status, .rank = mo_link_rank(h->link)};
        snprintf(h->result.detail, sizeof h->result.detail, "%.*s", MO_WIRE_TEXT - 1, own.detail);
    }
    atomic_fetch_add_explicit(&e->layers_run, 1, memory_order_relaxed);
    return MO_OK;
}

static mo_status answer(helper *h, mo_error *err)
{
    const mo_model_spec *spec = h->engine->spec;
    mo_status status = check_head(h, err);
    const int64_t io = status == MO_OK ? spec->layers[h->head.layer].moe.io : 0;
    if (status == MO_OK) {
        status = mo_link_receive(h->link, 0, h->body, mo_experts_body_bytes(&h->head, io), false, err);
    }
    if (status == MO_OK) {
        const int64_t began = mo_clock_ns();
        mo_engine_take_turn(h->engine);
        mo_host_float_mode();
        status = compute(h, err);
        pthread_mutex_unlock(&h->engine->lock);
        h->answer.work_ns = mo_clock_ns() - began;
    }
    if (status == MO_OK) {
        status = mo_link_send(h->link, 0, &h->answer, sizeof h->answer, err);
    }
    if (status == MO_OK) {
        status = h->answer.status == MO_OK ? mo_link_send(h->link, 0, h->engine->space.down,
                                                          sizeof(float) * (size_t)(h->head.rows * io), err)
                                           : mo_link_send(h->link, 0, &h->result, sizeof h->result, err);
    }
    return status == MO_OK ? mo_link_flush(h->link, err) : status;
}

/* ---- Prefetching ---- */

static mo_status look_ahead(helper *h, mo_error *err)
{
    const mo_experts_head *q = &h->head;
    const mo_model_spec *spec = h->engine->spec;
    int32_t experts[MO_EXPERTS_MAX];
    bool good = q->layer >= 0 && q->layer < spec->layer_count && spec->layers[q->layer].routed &&
                q->experts > 0 && q->experts <= spec->layers[q->layer].moe.used && q->rows == 0 &&
                q->tokens == 0;
    const mo_status status =
        good ? mo_link_receive(h->link, 0, h->body, mo_experts_body_bytes(q, spec->width), false, err)
             : MO_OK;
    for (int i = 0; i < q->experts && good && status == MO_OK; i++) {
        mo_experts_pick p;
        memcpy(&p, h->body + sizeof p * (size_t)i, sizeof p);
        good = p.expert >= spec->experts.first && p.expert < spec->experts.end &&
               p.expert < spec->layers[q->layer].moe.experts;
        experts[i] = p.expert;
    }
    if (!good) {
        return mo_fail(err, MO_EFORMAT, "rank 0 predicted experts that this rank does not have");
    }
    if (status == MO_OK) {
        mo_engine_take_turn(h->engine);
        mo_guess_take(h->engine->tiers, q->layer, experts, q->experts);
        pthread_mutex_unlock(&h->engine->lock);
    }
    return status;
}

/* Logs the results of prefetching, because this rank has no reports of its own. */
static void tell_guesses(const helper *h)
{
    const mo_tiers *tiers = h->engine ? h->engine->tiers : NULL;
    const mo_store_counters c = tiers && tiers->store ? mo_store_count(tiers->store) : (mo_store_counters){0};
    const unsigned long long read = c.guessed, needed = c.useful + c.late;
    if (read) {
        mo_log(MO_LOG_INFO, "cluster", "%llu experts were prefetched, %llu of which were needed", read,
               needed);
    }
}

/* ---- Serving ---- */

static mo_status serve(helper *h, bool *closed, mo_error *err)
{
    const mo_status status = mo_link_receive(h->link, 0, &h->head, sizeof h->head, true, err);
    if (status != MO_OK) {
        return status;
    }
    if (h->head.order != MO_WIRE_ORDER) {
        return mo_fail(err, MO_EFORMAT, "rank 0 sent a message that is not a request for experts");
    }
    mo_link_moved(h->link);
    *closed = h->head.kind == MO_EXPERTS_CLOSE;
    if (*closed) {
        return MO_OK;
    }
    if (h->engine && h->head.kind == MO_EXPERTS_AHEAD) {
        return look_ahead(h, err);
    }
    return h->engine && h->head.kind == MO_EXPERTS_ASK
               ? answer(h, err)
               : mo_fail(err, MO_EFORMAT, "rank 0 sent an unknown request (%d)", h->head.kind);
}

static bool allocate(helper *h)
{
    const mo_model_spec *spec = h->engine->spec;
    const mo_extent e = mo_extent_of(spec);
    h->used = e.used;
    h->body = malloc((size_t)(h->engine->batch * mo_experts_message_bytes(e.expert_io, h->used, 1)));
    return h->body != NULL;
}

mo_status mo_experts_follow(mo_link *link, mo_engine *engine, mo_error *err)
{
    helper h = {.link = link, .engine = engine, .layer = INT32_MAX};
    bool closed = false;
    mo_status status = MO_OK;
    if (engine && !allocate(&h)) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for messages from other ranks");
    }
    if (engine) {
        mo_link_watch(link, &engine->layers_run);
    }
    while (status == MO_OK && !closed) {
        status = serve(&h, &closed, err);
    }
    mo_link_watch(link, NULL);
    tell_guesses(&h);
    if (status != MO_OK) {
        mo_link_fail(link, err);
    }
    free(h.body);
    return status;
}
