/* Snapshot: a copy of a session's state with its tokens and logits. */
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "engine/session.h"

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
    const mo_status pulled =
        accelerator ? accelerator->pull(&session->state, err)
        : session->state.gpu_session
            ? mo_fail(err, MO_EDEVICE, "the device was lost, and the session's state with it; feed it again")
            : MO_OK;
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
        return mo_fail(
            err, MO_EINVAL,
            "the saved state belongs to another model or another format of keys and values; start anew");
    }
    mo_session_leave_lost_device(session);
    mo_status status =
        mo_state_restore(&session->state, snapshot->state, snapshot->state_bytes, snapshot->length, err);
    if (status == MO_OK && snapshot->length == 0) {
        mo_state_reset(
            &session->state); /* on a device a state that holds nothing may still have to be cleared */
    } else if (status == MO_OK) {
        pthread_mutex_lock(&session->engine->lock);
        const mo_accelerator *accelerator = atomic_load(&session->engine->accelerator);
        status = accelerator ? accelerator->push(&session->state, err) : MO_OK;
        pthread_mutex_unlock(&session->engine->lock);
        if (status != MO_OK) { /* the device has neither the old state nor all of the new one */
            mo_state_reset(&session->state);
            session->has_logits = false;
        }
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
