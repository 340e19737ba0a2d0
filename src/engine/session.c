#include "engine/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "engine/discover.h"

/* Logits of all positions of a step, when they are asked for: a step is made as short as this wants it. */
#define LOGITS_BYTES_MAX ((int64_t)64 << 20)

struct mo_session {
    mo_engine *engine;
    mo_state state;
    int32_t *tokens; /* [context] what the state holds, state.length of them */
    float *logits;   /* [vocab] */
    float *rows;     /* [rows_room][vocab], made by the first feed that wants every position */
    int64_t rows_room;
    bool has_logits;
    mo_touch touch; /* experts of this conversation; empty when nothing is counted */
    bool prompt;    /* more than one token is new: somebody's text, to its last token */
    int64_t computed;
    int64_t told; /* positions of this feed that were handed out: none is told twice */
    atomic_bool cancel;
};

struct mo_snapshot {
    mo_kv_type kv;
    int64_t vocab; /* of the model it belongs to */
    int64_t layers;
    int64_t length;
    int32_t *tokens;
    uint8_t *state;
    size_t state_bytes;
    float *logits; /* NULL when the session had none */
};

/* How many of `count` positions a step may have that keeps the logits of all. */
static int64_t logits_rows(const mo_model_spec *spec, int64_t count)
{
    const int64_t rows = LOGITS_BYTES_MAX / (int64_t)sizeof(float) / spec->vocab;
    return count < rows ? count : rows > 1 ? rows : 1;
}

int64_t mo_session_logits_bytes(const mo_model_spec *spec, int64_t batch, bool all)
{
    const int64_t rows = 1 + (all ? logits_rows(spec, batch) : 0);
    return rows * spec->vocab * (int64_t)sizeof(float);
}

mo_status mo_engine_session_open(mo_engine *engine, mo_kv_type kv, int64_t context, mo_session **out,
                                 mo_error *err)
{
    *out = NULL;
    if (context < 1 || context > engine->context) {
        return mo_fail(err, MO_EINVAL, "a session of this engine holds 1 to %lld positions, not %lld",
                       (long long)engine->context, (long long)context);
    }
    mo_session *s = calloc(1, sizeof *s);
    if (!s) {
        return mo_fail(err, MO_ENOMEM, "no memory for a session");
    }
    s->engine = engine;
    const mo_status status = mo_state_init(&s->state, engine->spec, kv, context, engine->batch, err);
    if (status != MO_OK) {
        free(s);
        return status;
    }
    const mo_accelerator *accelerator = atomic_load(&engine->accelerator);
    const mo_status seated =
        accelerator ? accelerator->open_session(accelerator->owner, &s->state, err) : MO_OK;
    if (seated != MO_OK) {
        mo_session_close(s);
        return seated;
    }
    s->tokens = malloc(sizeof(int32_t) * (size_t)context);
    const size_t logits_bytes = (sizeof(float) * (size_t)engine->spec->vocab + 4095) / 4096 * 4096;
    s->logits = aligned_alloc(4096, logits_bytes);
    if (!s->tokens || !s->logits) {
        mo_session_close(s);
        return mo_fail(err, MO_ENOMEM, "no memory for a session");
    }
    if (s->state.gpu_session) {
        s->state.accelerator->adopt_logits(&s->state, s->logits, logits_bytes);
    }
    if (engine->tally) {
        const mo_status counting = mo_touch_create(engine->tally, &s->touch, err);
        if (counting != MO_OK) {
            mo_session_close(s);
            return counting;
        }
    }
    *out = s;
    return MO_OK;
}

/* Another text begins, or none: what this one touched is recorded as one prompt. */
static void end_conversation(mo_session *s)
{
    if (s->touch.touched) {
        pthread_mutex_lock(&s->engine->lock);
        if (s->engine->tally) { /* counting may have been switched off meanwhile */
            mo_tally_prompt(s->engine->tally, &s->touch);
        }
        pthread_mutex_unlock(&s->engine->lock);
    }
}

void mo_session_close(mo_session *session)
{
    if (session) {
        end_conversation(session);
        mo_touch_destroy(&session->touch);
        if (session->state.gpu_session) {
            session->state.accelerator->close_session(&session->state);
        }
        mo_state_drop(&session->state);
        free(session->tokens);
        free(session->logits);
        free(session->rows);
        free(session);
    }
}

const float *mo_session_logits(const mo_session *session)
{
    return session->has_logits ? session->logits : NULL;
}

int64_t mo_session_length(const mo_session *session)
{
    return session->state.length;
}

int64_t mo_session_computed(const mo_session *session)
{
    return session->computed;
}

void mo_session_cancel(mo_session *session)
{
    atomic_store(&session->cancel, true);
}

/* ---- Feeding ---------------------------------------------------------------------------------- */

/* A state whose device is lost begins anew, in RAM. */
static void leave_lost_device(mo_session *s)
{
    if (s->state.gpu_session && !atomic_load(&s->engine->accelerator)) {
        s->state.accelerator->close_session(&s->state);
        mo_state_reset(&s->state);
        s->has_logits = false;
    }
}

/* Shortens the state to what it shares with the sequence, less the last token. */
static mo_status begin_feed(const mo_feed *f, mo_error *err)
{
    mo_session *s = f->session;
    int64_t common = 0;
    leave_lost_device(s);
    s->told = 0;
    if (f->count < 1 || f->count > s->state.context) {
        return mo_fail(
            err, MO_EINVAL,
            "the text has %lld tokens and this session %lld positions; choose a larger --ctx or shorten it",
            (long long)f->count, (long long)s->state.context);
    }
    while (common < s->state.length && common < f->count && s->tokens[common] == f->tokens[common]) {
        common++;
    }
    if (common == 0 && s->state.length > 0) {
        end_conversation(s);
    }
    s->computed = 0;
    if (common == f->count && common == s->state.length && s->has_logits && !f->logits) {
        return MO_OK; /* nothing new: the logits are there */
    }
    s->has_logits = false;
    const int64_t keep = common < f->count ? common : f->count - 1;
    if (!mo_state_trim(&s->state, keep)) {
        mo_state_reset(&s->state);
    }
    s->prompt = f->count - s->state.length > 1;
    return MO_OK;
}

static mo_status want_rows(mo_session *s, int64_t rows, mo_error *err)
{
    if (rows > s->rows_room) {
        float *more = realloc(s->rows, sizeof(float) * (size_t)(rows * s->engine->spec->vocab));
        if (!more) {
            return mo_fail(err, MO_ENOMEM,
                           "no memory for the logits of %lld positions; choose a smaller --batch",
                           (long long)rows);
        }
        s->rows = more;
        s->rows_room = rows;
    }
    return MO_OK;
}

/* What the engine calls while a slice runs needs the position, not the token's number in its slice. */
static void pass_routes(void *user, int layer, int64_t token, const int32_t *ids, const float *weights,
                        int used)
{
    const mo_feed *f = user;
    const int64_t position = f->session->state.length + token;
    if (position >= f->session->told) {
        f->routes(f->user, layer, position, ids, weights, used);
    }
}

static mo_status next_slice(const mo_feed *f, int64_t room, mo_slice *out, mo_error *err)
{
    mo_session *s = f->session;
    const int64_t rest = f->count - s->state.length;
    const int64_t step = f->step > 0 && f->step < room ? f->step : room;
    int64_t count = rest < step ? rest : step;
    if (f->logits) { /* every position has its row */
        count = logits_rows(s->engine->spec, count);
    }
    *out = (mo_slice){.state = &s->state,
                      .tokens = f->tokens + s->state.length,
                      .count = count,
                      .prompt = s->prompt,
                      .cancel = &s->cancel};
    out->routes = f->routes ? pass_routes : NULL;
    out->user = (void *)f;
    out->touch = s->touch.touched ? &s->touch : NULL;
    if (f->logits) {
        const mo_status status = want_rows(s, count, err);
        if (status != MO_OK) {
            return status;
        }
        out->logits = s->rows;
    } else if (count == rest) {
        out->logits = s->logits;
        out->logits_from = count - 1;
    }
    return MO_OK;
}

/* After a step: the session remembers its tokens and hands out what was asked for. */
static void end_slice(const mo_feed *f, const mo_slice *slice)
{
    mo_session *s = f->session;
    const int64_t vocab = s->engine->spec->vocab;
    const int64_t from = s->state.length - slice->count;
    memcpy(s->tokens + from, slice->tokens, sizeof(int32_t) * (size_t)slice->count);
    s->computed += slice->count;
    for (int64_t i = 0; f->logits && i < slice->count; i++) {
        if (from + i >= s->told) {
            f->logits(f->user, from + i, s->rows + i * vocab);
        }
    }
    s->told = s->state.length > s->told ? s->state.length : s->told;
    if (s->state.length == f->count) {
        if (f->logits) {
            memcpy(s->logits, s->rows + (slice->count - 1) * vocab, sizeof(float) * (size_t)vocab);
        }
        s->has_logits = true;
    }
}

static bool done(const mo_feed *f)
{
    return f->session->state.length == f->count;
}

enum { FEEDS_MAX = 256 };

/* One step over all feeds that have tokens left, sharing the batch evenly. */
static mo_status step_all(const mo_feed *feeds, int count, mo_error *err)
{
    mo_slice slices[FEEDS_MAX] = {{0}};
    const mo_feed *of[FEEDS_MAX] = {NULL};
    mo_engine *engine = feeds[0].session->engine;
    int waiting = 0, used = 0;
    for (int i = 0; i < count; i++) {
        waiting += !done(&feeds[i]);
    }
    int64_t room = engine->batch;
    for (int i = 0; i < count && room > 0; i++) {
        if (done(&feeds[i])) {
            continue;
        }
        const int64_t share = room / waiting > 0 ? room / waiting : 1;
        const mo_status status = next_slice(&feeds[i], share, &slices[used], err);
        if (status != MO_OK) {
            return status;
        }
        room -= slices[used].count;
        waiting--;
        of[used++] = &feeds[i];
    }
    if (used == 0) {
        return MO_OK;
    }
    const mo_status status = mo_step(engine, slices, used, err);
    for (int i = 0; i < used && status == MO_OK; i++) {
        end_slice(of[i], &slices[i]);
        if (of[i]->progress && !of[i]->progress(of[i]->user, of[i]->session->state.length, of[i]->count)) {
            atomic_store(&of[i]->session->cancel, true);
        }
    }
    return status;
}

/* The feeds as this library knows them: a caller's may be shorter or longer. */
static mo_status read_feeds(const mo_feed *feeds, int count, mo_feed *out, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < count && status == MO_OK; i++) {
        const char *callers = (const char *)feeds + (size_t)i * feeds->size;
        out[i] = (mo_feed){0};
        status = mo_options_read(&out[i], sizeof out[i], callers, "mo_feed", err);
    }
    return status;
}

mo_status mo_session_feed_all(const mo_feed *callers, int count, mo_error *err)
{
    mo_feed feeds[FEEDS_MAX];
    MO_OWN_ERROR(err)
    if (count < 1 || count > FEEDS_MAX) {
        return mo_fail(err, MO_EINVAL, "1 to %d sessions can be fed at once, not %d", FEEDS_MAX, count);
    }
    const mo_status read = read_feeds(callers, count, feeds, err);
    if (read != MO_OK) {
        return read;
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            if (feeds[i].session == feeds[j].session ||
                feeds[i].session->engine != feeds[j].session->engine) {
                return mo_fail(err, MO_EINVAL,
                               "sessions fed together must be different ones of the same model");
            }
        }
        const mo_status status = begin_feed(&feeds[i], err);
        if (status != MO_OK) {
            return status;
        }
    }
    for (;;) {
        bool all = true;
        for (int i = 0; i < count; i++) {
            all &= done(&feeds[i]);
        }
        if (all) {
            return MO_OK;
        }
        for (int i = 0; i < count; i++) {
            if (atomic_exchange(&feeds[i].session->cancel, false)) {
                return mo_fail(err, MO_ECANCELLED, "cancelled after %lld of %lld tokens",
                               (long long)feeds[i].session->state.length, (long long)feeds[i].count);
            }
        }
        mo_status status = step_all(feeds, count, err);
        if (status == MO_EDEVICE && !atomic_load(&feeds[0].session->engine->accelerator) &&
            feeds[0].session->state.gpu_session) {
            for (int i = 0; i < count; i++) { /* the CPU goes on, from the first token */
                leave_lost_device(feeds[i].session);
            }
            status = MO_OK;
        }
        if (status != MO_OK) {
            for (int i = 0; i < count; i++) {
                atomic_store(&feeds[i].session->cancel, false);
            }
            return status;
        }
    }
}

mo_status mo_session_feed(const mo_feed *feed, mo_error *err)
{
    return mo_session_feed_all(feed, 1, err);
}

mo_status mo_session_discover(mo_session *session, const int32_t *tokens, int64_t count, int64_t *experts,
                              mo_error *err)
{
    MO_OWN_ERROR(err)
    return mo_discover(session->engine, &session->state, tokens, count, &session->cancel, experts, err);
}

/* ---- Snapshots -------------------------------------------------------------------------------- */

static mo_snapshot *snapshot_new(int64_t length, size_t state_bytes, int64_t vocab)
{
    mo_snapshot *s = calloc(1, sizeof *s);
    if (s) {
        s->length = length;
        s->vocab = vocab;
        s->state_bytes = state_bytes;
        s->tokens = malloc(sizeof(int32_t) * (size_t)(length ? length : 1));
        s->state = malloc(state_bytes ? state_bytes : 1);
        s->logits = malloc(sizeof(float) * (size_t)vocab);
        if (s->tokens && s->state && s->logits) {
            return s;
        }
    }
    mo_snapshot_close(s);
    return NULL;
}

void mo_snapshot_close(mo_snapshot *snapshot)
{
    if (snapshot) {
        free(snapshot->tokens);
        free(snapshot->state);
        free(snapshot->logits);
        free(snapshot);
    }
}

mo_status mo_snapshot_open(const mo_session *session, mo_snapshot **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    const int64_t vocab = session->engine->spec->vocab;
    mo_snapshot *s = snapshot_new(session->state.length, mo_state_saved_bytes(&session->state), vocab);
    *out = s;
    if (!s) {
        return mo_fail(err, MO_ENOMEM, "no memory for a copy of the session's state (%.1f MiB)",
                       (double)mo_state_saved_bytes(&session->state) / (1 << 20));
    }
    s->kv = session->state.kv;
    s->layers = session->engine->spec->layer_count;
    memcpy(s->tokens, session->tokens, sizeof(int32_t) * (size_t)s->length);
    pthread_mutex_lock(&session->engine->lock);
    const mo_accelerator *accelerator = atomic_load(&session->engine->accelerator);
    const mo_status pulled = accelerator ? accelerator->pull(&session->state, err) : MO_OK;
    pthread_mutex_unlock(&session->engine->lock);
    if (pulled != MO_OK) {
        mo_snapshot_close(s);
        *out = NULL;
        return pulled;
    }
    mo_state_save(&session->state, s->state);
    if (session->has_logits) {
        memcpy(s->logits, session->logits, sizeof(float) * (size_t)vocab);
    } else {
        free(s->logits);
        s->logits = NULL;
    }
    return MO_OK;
}

mo_status mo_session_restore(mo_session *session, const mo_snapshot *snapshot, mo_error *err)
{
    MO_OWN_ERROR(err)
    const mo_model_spec *spec = session->engine->spec;
    if (snapshot->kv != session->state.kv || snapshot->vocab != spec->vocab ||
        snapshot->layers != spec->layer_count) {
        return mo_fail(err, MO_EINVAL,
                       "the saved state belongs to another model or another --kv format; start anew");
    }
    leave_lost_device(session);
    mo_status status =
        mo_state_restore(&session->state, snapshot->state, snapshot->state_bytes, snapshot->length, err);
    if (status == MO_OK) {
        pthread_mutex_lock(&session->engine->lock);
        const mo_accelerator *accelerator = atomic_load(&session->engine->accelerator);
        status = accelerator ? accelerator->push(&session->state, err) : MO_OK;
        pthread_mutex_unlock(&session->engine->lock);
    }
    if (status == MO_OK) {
        memcpy(session->tokens, snapshot->tokens, sizeof(int32_t) * (size_t)snapshot->length);
        session->has_logits = snapshot->logits != NULL;
        if (snapshot->logits) {
            memcpy(session->logits, snapshot->logits, sizeof(float) * (size_t)spec->vocab);
        }
    }
    return status;
}

/* A snapshot as bytes: this header, then tokens, state and logits, little-endian as in memory. */
typedef struct header {
    char magic[8];
    int64_t kv, vocab, layers, length;
    uint64_t state_bytes;
    uint64_t has_logits;
} header;

static const char snapshot_magic[8] = {'M', 'O', 'S', 'N', 'A', 'P', '0', '1'};

mo_status mo_snapshot_write(const mo_snapshot *s, uint8_t **bytes, size_t *size, mo_error *err)
{
    MO_OWN_ERROR(err)
    header h = {.kv = s->kv,
                .vocab = s->vocab,
                .layers = s->layers,
                .length = s->length,
                .state_bytes = s->state_bytes,
                .has_logits = s->logits != NULL};
    memcpy(h.magic, snapshot_magic, sizeof h.magic);
    const size_t tokens = sizeof(int32_t) * (size_t)s->length;
    const size_t logits = s->logits ? sizeof(float) * (size_t)s->vocab : 0;
    *size = sizeof h + tokens + s->state_bytes + logits;
    *bytes = malloc(*size);
    if (!*bytes) {
        return mo_fail(err, MO_ENOMEM, "no memory to write a saved state of %zu bytes", *size);
    }
    uint8_t *at = *bytes;
    memcpy(at, &h, sizeof h);
    memcpy(at + sizeof h, s->tokens, tokens);
    memcpy(at + sizeof h + tokens, s->state, s->state_bytes);
    if (logits) {
        memcpy(at + sizeof h + tokens + s->state_bytes, s->logits, logits);
    }
    return MO_OK;
}

mo_status mo_snapshot_open_bytes(const uint8_t *bytes, size_t size, mo_snapshot **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    header h;
    *out = NULL;
    if (size < sizeof h || memcmp(bytes, snapshot_magic, sizeof snapshot_magic) != 0) {
        return mo_fail(err, MO_EFORMAT, "this is not a saved state of a session, or one of another version");
    }
    memcpy(&h, bytes, sizeof h);
    const uint64_t rest = size - sizeof h;
    const bool sane = h.kv >= MO_KV_F16 && h.kv <= MO_KV_Q8_0 && h.vocab > 0 && h.vocab < INT32_MAX &&
                      h.length >= 0 && h.length < INT32_MAX && h.has_logits <= 1 && h.state_bytes <= rest;
    if (!sane ||
        rest != 4 * (uint64_t)h.length + h.state_bytes + (h.has_logits ? 4 * (uint64_t)h.vocab : 0)) {
        return mo_fail(err, MO_EFORMAT, "the saved state is damaged or cut short; start anew");
    }
    mo_snapshot *s = snapshot_new(h.length, h.state_bytes, h.vocab);
    if (!s) {
        return mo_fail(err, MO_ENOMEM, "no memory to read a saved state of %zu bytes", size);
    }
    s->kv = (mo_kv_type)h.kv;
    s->layers = h.layers;
    memcpy(s->tokens, bytes + sizeof h, sizeof(int32_t) * (size_t)h.length);
    memcpy(s->state, bytes + sizeof h + 4 * h.length, h.state_bytes);
    if (h.has_logits) {
        memcpy(s->logits, bytes + sizeof h + 4 * h.length + h.state_bytes, sizeof(float) * (size_t)h.vocab);
    } else {
        free(s->logits);
        s->logits = NULL;
    }
    *out = s;
    return MO_OK;
}
