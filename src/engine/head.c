#include "engine/head.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/forward.h"
#include "engine/step.h"

/* Calls without guesses after the first failure, and at most. */
enum { FIRST_WAIT = 64, MOST_WAIT = 8192 };

/* ---- Heads ------------------------------------------------------------------------------------ */

static bool is_whole(const mo_model_spec *spec)
{
    return !mo_linear_present(&spec->head.join);
}

/* Values of a state that is handed over: what the output reads, or all streams of a model that has several. */
static int64_t values_of(const mo_model_spec *spec)
{
    return spec->streams.count ? spec->streams.count * spec->width : spec->width;
}

static int64_t batch_of(const mo_model_spec *spec, int64_t batch, bool late)
{
    if (late) { /* it takes in what it was left alone */
        return MO_HEAD_LATER;
    }
    const int64_t most = batch < MO_HEAD_BATCH_ROUTED ? batch : MO_HEAD_BATCH_ROUTED;
    return spec->layers[spec->layer_count - 1].routed && most > MO_HEAD_BATCH ? most : MO_HEAD_BATCH;
}

/* Positions of a session: a draft model may be made for fewer than its model. */
static int64_t context_of(const mo_model_spec *spec, int64_t context)
{
    return is_whole(spec) && spec->context > 0 && spec->context < context ? spec->context : context;
}

static mo_state_size states_of(const mo_model_spec *spec, const mo_state_size *states)
{
    mo_state_size size = *states;
    size.context = context_of(spec, size.context);
    return size;
}

static size_t rows_bytes(const mo_model_spec *spec, int64_t batch)
{
    return (sizeof(float) * (size_t)values_of(spec) + sizeof(int32_t)) * (size_t)batch;
}

mo_status mo_head_open(mo_engine *trunk, const mo_checkpoint *checkpoint, const mo_state_size *states,
                       bool late, mo_head **out, mo_error *err)
{
    mo_head *h = calloc(1, sizeof *h);
    *out = NULL;
    if (!h) {
        return mo_fail(err, MO_ENOMEM, "out of memory for what guesses tokens");
    }
    h->trunk = trunk;
    h->draft = mo_head_guess;
    h->whole = is_whole(mo_checkpoint_spec(checkpoint));
    h->late = late;
    h->tiers.rows = trunk->tiers ? trunk->tiers->rows : NULL;
    const mo_model_spec *spec = mo_checkpoint_spec(checkpoint);
    const bool reads = h->tiers.rows && !spec->embed.data;
    const int64_t batch = batch_of(spec, trunk->batch, late);
    const mo_engine_options options = {.kernels = trunk->kernels,
                                       .pool = trunk->pool,
                                       .batch = batch,
                                       .context = context_of(spec, trunk->context),
                                       .tiers = reads ? &h->tiers : NULL,
                                       .states = states_of(spec, states)};
    mo_status status = mo_engine_create(checkpoint, &options, &h->engine, err);
    h->rows = malloc(rows_bytes(spec, batch));
    if (status == MO_OK && !h->rows) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for what guesses tokens");
    }
    if (status != MO_OK) {
        mo_head_close(h);
        return status;
    }
    h->tokens = (int32_t *)(h->rows + batch * values_of(spec));
    mo_host_touch(h->engine->space.memory, h->engine->space.bytes); /* an answer would wait for it */
    *out = h;
    return MO_OK;
}

void mo_head_close(mo_head *head)
{
    if (head) {
        mo_engine_destroy(head->engine);
        free(head->rows);
        free(head);
    }
}

size_t mo_head_bytes(const mo_model_spec *spec, const mo_state_size *states, int64_t batch, bool late,
                     int threads)
{
    mo_state_size size = states_of(spec, states);
    size.batch = batch_of(spec, batch, late);
    return mo_engine_bytes(spec, size.batch, size.context, threads) + rows_bytes(spec, size.batch) +
           (size_t)mo_state_pool_bytes(spec, &size);
}

/* ---- Sessions --------------------------------------------------------------------------------- */

size_t mo_head_session_bytes(const mo_model_spec *spec, int64_t context)
{
    if (is_whole(spec)) {
        return sizeof(float) * (size_t)spec->vocab + sizeof(int32_t) * (size_t)context_of(spec, context);
    }
    return sizeof(float) * (size_t)((MO_HEAD_LATER + 1) * values_of(spec) + spec->vocab) +
           sizeof(int32_t) * MO_HEAD_LATER;
}

/* The text goes on from here, of which the head knows nothing: the state before the first token counts as zero. */
static void begin_at(mo_head_session *s, int64_t at)
{
    mo_state_reset(&s->state);
    s->base = at;
    if (!s->head->whole) {
        s->later = 1;
        memset(s->rows, 0, sizeof(float) * (size_t)values_of(s->head->engine->spec));
    }
}

/* What a session of an MTP head has beside its cache, or one of a draft model. */
static bool make_space(mo_head_session *s, const mo_model_spec *spec, int64_t context)
{
    const size_t values = (size_t)values_of(spec);
    s->logits = malloc(sizeof(float) * (size_t)spec->vocab);
    s->tokens = malloc(sizeof(int32_t) * (size_t)(s->head->whole ? context : MO_HEAD_LATER));
    if (s->head->whole) {
        return s->logits && s->tokens;
    }
    s->rows = malloc(sizeof(float) * (size_t)MO_HEAD_LATER * values);
    s->own = malloc(sizeof(float) * values);
    return s->logits && s->tokens && s->rows && s->own;
}

mo_status mo_head_session_open(mo_head *head, int64_t context, mo_head_session **out, mo_error *err)
{
    const mo_model_spec *spec = head->engine->spec;
    mo_head_session *s = calloc(1, sizeof *s);
    mo_block_pool *pool = NULL;
    *out = NULL;
    if (!s) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a session's guesses");
    }
    s->head = head;
    context = context_of(spec, context);
    mo_status status = mo_engine_pool(head->engine, head->engine->states.kv, &pool, err);
    if (status == MO_OK) {
        status = mo_state_init_in(&s->state, pool, spec, head->engine->states.kv, context,
                                  head->engine->batch, err);
    }
    if (status != MO_OK) {
        free(s);
        return status;
    }
    if (!make_space(s, spec, context)) {
        mo_head_session_close(s);
        return mo_fail(err, MO_ENOMEM, "out of memory for a session's guesses");
    }
    begin_at(s, 0);
    *out = s;
    return MO_OK;
}

void mo_head_session_forget(mo_head_session *s, int64_t at)
{
    begin_at(s, at);
}

void mo_head_session_close(mo_head_session *s)
{
    if (s) {
        mo_block_pool *pool = s->state.here.pool;
        mo_state_drop(&s->state);
        if (pool) {
            mo_block_pool_sweep(pool);
        }
        free(s->rows);
        free(s->tokens);
        free(s->own);
        free(s->logits);
        free(s);
    }
}

/* What comes out of the last layer of a head or its model, as it is handed over. */
static void give_out(const mo_kernels *k, const mo_model_spec *spec, const float *stream, float *out)
{
    if (spec->streams.count) {
        memcpy(out, stream, sizeof *out * (size_t)values_of(spec));
    } else {
        mo_forward_out_norm(k, spec, out, stream);
    }
}

bool mo_head_step(mo_head *head, const mo_slice *slices, int count)
{
    mo_error err = {0};
    if (mo_step(head->engine, slices, count, &err) == MO_OK) {
        return true;
    }
    if (!head->failed) {
        head->failed = true;
        mo_log(MO_LOG_WARN, "speculate", "the %s failed, so it guesses nothing for a while: %s",
               head->whole ? "draft model" : "MTP head", err.detail);
    }
    return false;
}

static mo_slice slice_of(mo_head_session *s, int64_t count)
{
    return (mo_slice){.state = &s->state, .tokens = s->tokens, .states = s->rows, .count = count};
}

/* ---- Following -------------------------------------------------------------------------------- */

/* The next position that the model may compute: */
static int64_t next_of(const mo_head_session *s)
{
    return s->base + s->state.length + (s->later ? s->later - 1 : -1);
}

/* Goes back to a text that has only this many tokens. */
static void rewind_to(mo_head_session *s, int64_t at)
{
    const int64_t held = s->base + s->state.length;
    const bool known = at >= s->base && at <= next_of(s);
    if (known && at >= held) {
        s->later = at - held + 1;
        return;
    }
    if (!known || !mo_state_trim(&s->state, at - s->base)) {
        begin_at(s, at);
        return;
    }
    if (s->later || at < held - 1) { /* otherwise the first row is that of before */
        memset(s->rows, 0, sizeof(float) * (size_t)values_of(s->head->engine->spec));
    }
    s->later = 1;
}

/* What a session has to take in: the rows that it left for later, and behind them what the model gives out now. Each but the last is
 * followed by a token. */
typedef struct intake {
    mo_head_session *session;
    const mo_model_spec *spec; /* the model's */
    const float *stream;
    const int32_t *tokens; /* of the stream: that of row `later - 1` is the first */
    int64_t later, count;  /* rows of each */
} intake;

/* Row `at` of the intake, with its token, unless it is the last. */
static void take_row(const intake *in, int64_t at, float *row, int32_t *token)
{
    const mo_head_session *s = in->session;
    const int64_t n = values_of(in->spec), new = at - in->later;
    if (new < 0) {
        memmove(row, s->rows + at * n, sizeof *row * (size_t)n);
    } else {
        give_out(s->head->engine->kernels, in->spec, in->stream + new *n, row);
    }
    if (at < in->later + in->count - 1) {
        *token = new < -1 ? s->tokens[at] : in->tokens[new + 1];
    }
}

/* Feeds as many of them to the head as cannot be left for later. Returns how many, -1: a step has failed. */
static int64_t feed_rows(const intake *in)
{
    mo_head_session *s = in->session;
    mo_head *head = s->head;
    const int64_t n = values_of(in->spec), all = in->later + in->count;
    int64_t fed = 0;
    while (all - fed > MO_HEAD_LATER) {
        const int64_t rest = all - 1 - fed, some = rest < head->engine->batch ? rest : head->engine->batch;
        for (int64_t i = 0; i < some; i++) {
            take_row(in, fed + i, head->rows + i * n, &head->tokens[i]);
        }
        const mo_slice slice = {
            .state = &s->state, .tokens = head->tokens, .states = head->rows, .count = some};
        s->fed = head->tokens[some - 1];
        if (!mo_head_step(head, &slice, 1)) {
            return -1;
        }
        fed += some;
    }
    return fed;
}

/* If there are too many, of the positions that were left for later the last ones stay, and nothing of what is before them. */
static void forget_first(mo_head_session *s, int64_t too_many, int64_t values)
{
    const int64_t most = s->later - 1, more = too_many + MO_HEAD_LATER - MO_HEAD_KEPT;
    const int64_t drop = more < most ? more : most;
    if (too_many <= 0) {
        return;
    }
    s->base += s->state.length + drop;
    mo_state_reset(&s->state);
    s->later -= drop;
    memmove(s->rows, s->rows + drop * values, sizeof *s->rows * (size_t)(s->later * values));
    memmove(s->tokens, s->tokens + drop, sizeof *s->tokens * (size_t)s->later);
}

void mo_head_follow(mo_head_session *s, const mo_model_spec *spec, const int32_t *tokens, int64_t at,
                    int64_t count, const float *stream)
{
    const bool beside = s->head->late || atomic_load(&s->head->trunk->accelerator) != NULL;
    const int64_t left_out = beside ? mo_head_leaves_out(count) : 0;
    if (left_out) {
        begin_at(s, at + left_out);
        tokens += left_out;
        stream += left_out * values_of(spec);
        at += left_out;
        count -= left_out;
    }
    if (at != next_of(s)) {
        rewind_to(s, at);
    }
    if (!s->later && tokens[0] != s->fed) { /* another token than was guessed from */
        rewind_to(s, at);
    }
    if (beside) {
        forget_first(s, s->later + count - MO_HEAD_LATER, values_of(spec));
    }
    const intake in = {
        .session = s, .spec = spec, .stream = stream, .tokens = tokens, .later = s->later, .count = count};
    const int64_t all = in.later + in.count;
    int64_t fed = feed_rows(&in);
    if (fed < 0) {
        begin_at(s, at + count);
        fed = all - 1;
    }
    s->behind = in.later > 0;
    s->later = all - fed;
    for (int64_t i = fed; i < all; i++) {
        take_row(&in, i, s->rows + (i - fed) * values_of(spec), &s->tokens[i - fed]);
    }
}

/* ---- Guessing --------------------------------------------------------------------------------- */

int32_t mo_head_likeliest(const float *logits, int64_t vocab)
{
    int32_t best = 0;
    for (int64_t i = 1; i < vocab; i++) {
        best = logits[i] > logits[best] ? (int32_t)i : best;
    }
    return best;
}

/* Steps these sessions, and notes what each guesses; draft: the number of the guess. */
static bool guess(mo_head *head, mo_head_wish *const *of, const mo_slice *slices, int count, int64_t draft)
{
    const mo_engine *e = head->engine;
    int64_t last = -1;
    if (!mo_head_step(head, slices, count)) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        last += slices[i].count;
        const float *stream = e->spec->streams.count ? e->space.streams.x : e->space.x;
        give_out(e->kernels, e->spec, stream + last * values_of(e->spec), of[i]->session->own);
        of[i]->out[draft] = mo_head_likeliest(of[i]->session->logits, e->spec->vocab);
    }
    return true;
}

/* The last row that was left for later is the first now. */
static void keep_last(mo_head_session *s, int64_t values)
{
    memmove(s->rows, s->rows + (s->later - 1) * values, sizeof *s->rows * (size_t)values);
}

/* What was left by steps before the last one, which guesses made then would have had behind them. */
static bool catch_up(mo_head *head, mo_head_wish *wishes, int count)
{
    bool good = true;
    for (int done = 0; done < count && good;) {
        mo_slice slices[MO_HEAD_TOGETHER];
        mo_head_session *of[MO_HEAD_TOGETHER];
        int used = 0;
        for (int64_t tokens = 0; done < count; done++) {
            mo_head_session *s = wishes[done].session;
            const int64_t some = s->behind ? s->later - 1 : 0;
            if (tokens + some > head->engine->batch) {
                break;
            }
            if (some) {
                slices[used] = slice_of(s, some);
                of[used++] = s;
                tokens += some;
            }
        }
        good = !used || mo_head_step(head, slices, used);
        for (int i = 0; i < used && good; i++) {
            keep_last(of[i], values_of(head->engine->spec));
            of[i]->later = 1;
            of[i]->behind = false;
        }
    }
    return good;
}

/* The last positions, and the last token of the text: gives the first guess of each. */
static bool begin(mo_head *head, mo_head_wish *wishes, int count)
{
    mo_slice slices[MO_HEAD_TOGETHER];
    mo_head_wish *of[MO_HEAD_TOGETHER];
    bool good = true;
    for (int done = 0; done < count && good;) {
        int used = 0;
        for (int64_t tokens = 0; done < count && tokens + wishes[done].session->later <= head->engine->batch;
             done++) {
            mo_head_session *s = wishes[done].session;
            s->fed = s->tokens[s->later - 1] = wishes[done].tokens[wishes[done].count - 1];
            slices[used] = slice_of(s, s->later);
            slices[used].logits = s->logits;
            slices[used].logits_from = s->later - 1;
            of[used++] = &wishes[done];
            tokens += s->later;
        }
        good = guess(head, of, slices, used, 0);
        for (int i = 0; i < used && good; i++) {
            keep_last(of[i]->session, values_of(head->engine->spec));
            of[i]->session->later = 0;
        }
    }
    return good;
}

/* Further ones, each from the one before it and the head's own state. */
static bool go_on(mo_head *head, mo_head_wish *wishes, int count)
{
    bool good = true;
    for (int64_t draft = 1, used = 1; used && good; draft++) {
        mo_slice slices[MO_HEAD_TOGETHER];
        mo_head_wish *of[MO_HEAD_TOGETHER];
        used = 0;
        for (int i = 0; i < count; i++) {
            mo_head_session *s = wishes[i].session;
            if (draft < wishes[i].drafts) {
                slices[used] = (mo_slice){.state = &s->state,
                                          .tokens = &wishes[i].out[draft - 1],
                                          .states = s->own,
                                          .count = 1,
                                          .logits = s->logits};
                of[used++] = &wishes[i];
            }
        }
        good = !used || guess(head, of, slices, (int)used, draft);
    }
    return good;
}

bool mo_head_guess(mo_head *head, mo_head_wish *wishes, int count, int64_t *behind_ns)
{
    for (int i = 0; i < count; i++) {
        mo_head_session *s = wishes[i].session;
        if (!s->later || next_of(s) != wishes[i].count - 1) { /* the model was fed without it */
            rewind_to(s, wishes[i].count - 1);
        }
    }
    const int64_t began = mo_clock_ns();
    bool good = catch_up(head, wishes, count);
    *behind_ns = mo_clock_ns() - began;
    good = good && begin(head, wishes, count) && go_on(head, wishes, count);
    for (int i = 0; i < count; i++) {
        mo_head_session *s = wishes[i].session;
        if (good) { /* guesses are no part of the text yet */
            mo_state_trim(&s->state, wishes[i].count - s->base);
        } else {
            begin_at(s, wishes[i].count);
            s->later = 0;
        }
    }
    return good;
}

/* After a failure nothing is guessed for some calls, and after the next one for twice as many. */
static void wait_after(mo_head *head, bool good)
{
    const int64_t next = 2 * head->wait < MOST_WAIT ? 2 * head->wait : MOST_WAIT;
    head->wait = good ? 0 : head->wait ? next : FIRST_WAIT;
    head->left = head->wait;
}

bool mo_head_draft(mo_engine *trunk, mo_head_wish *wishes, int count, int64_t *behind_ns)
{
    mo_head *head = wishes[0].session->head;
    bool good = false;
    const int64_t asked = mo_clock_ns();
    mo_engine_take_turn(trunk);
    const int64_t waited = mo_clock_ns() - asked; /* for an encoder's layer: no time of guesses */
    if (head->left > 0) {
        head->left--;
    } else {
        good = head->draft(head, wishes, count, behind_ns);
        *behind_ns += waited;
        wait_after(head, good);
    }
    pthread_mutex_unlock(&trunk->lock);
    return good;
}
