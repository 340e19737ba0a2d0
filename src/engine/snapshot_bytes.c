/* A snapshot as bytes: a header, with adapters their identity, then tokens, state and logits, little-endian as in memory. */
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "engine/snapshot.h"
#include "numeric/version.h"

typedef struct header {
    char magic[8];
    int64_t numerics; /* MO_NUMERICS of who wrote it */
    int64_t kv, vocab, layers, length;
    uint64_t state_bytes;
    uint64_t flags;
} header;

enum { HAS_LOGITS = 1, BF16 = 2, FLAGS = HAS_LOGITS | BF16 };

static const char snapshot_magic[8] = {'M', 'O', 'S', 'N', 'A', 'P', '0', '2'};
static const char adapted_magic[8] = {'M', 'O', 'S', 'N', 'A', 'P', '0', '3'}; /* 8 bytes follow the header */
static const char older_magic[8] = {'M', 'O', 'S', 'N', 'A', 'P', '0', '1'};

static mo_status join(const mo_snapshot *s, const uint8_t *state, size_t state_bytes, uint8_t **bytes,
                      size_t *size, mo_error *err)
{
    header h = {.numerics = MO_NUMERICS,
                .kv = s->kv,
                .vocab = s->vocab,
                .layers = s->layers,
                .length = s->mark.length,
                .state_bytes = state_bytes,
                .flags = (s->logits ? HAS_LOGITS : 0u) | (s->precision == MO_PRECISION_BF16 ? BF16 : 0u)};
    memcpy(h.magic, s->adapters ? adapted_magic : snapshot_magic, sizeof h.magic);
    const size_t head = sizeof h + (s->adapters ? sizeof s->adapters : 0);
    const size_t tokens = sizeof(int32_t) * (size_t)s->mark.length;
    const size_t logits = s->logits ? sizeof(float) * (size_t)s->vocab : 0;
    const size_t all = head + tokens + state_bytes + logits;
    uint8_t *at = malloc(all);
    if (!at) {
        return mo_fail(err, MO_ENOMEM, "no memory to write a saved state of %zu bytes", all);
    }
    memcpy(at, &h, sizeof h);
    memcpy(at + sizeof h, &s->adapters, head - sizeof h);
    memcpy(at + head, s->tokens, tokens);
    memcpy(at + head + tokens, state, state_bytes);
    if (logits) {
        memcpy(at + head + tokens + state_bytes, s->logits, logits);
    }
    *bytes = at;
    *size = all;
    return MO_OK;
}

mo_status mo_snapshot_write(const mo_snapshot *s, uint8_t **bytes, size_t *size, mo_error *err)
{
    MO_OWN_ERROR(err)
    uint8_t *state;
    size_t state_bytes;
    mo_status status = mo_snapshot_state(s, &state, &state_bytes, err);
    if (status == MO_OK) {
        status = join(s, state, state_bytes, bytes, size, err);
        if (state != s->state) {
            free(state);
        }
    }
    return status;
}

/* Its keys and values are not what this version would have computed, and may be laid out otherwise. */
static mo_status of_other_numerics(int64_t version, mo_error *err)
{
    return mo_fail(
        err, MO_EFORMAT,
        "the saved state was computed by version %lld of the numerics, this library has version %d; "
        "begin a new session and feed its tokens again",
        (long long)version, MO_NUMERICS);
}

mo_status mo_snapshot_open_bytes(const uint8_t *bytes, size_t size, mo_snapshot **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    header h;
    uint64_t adapters = 0;
    *out = NULL;
    const bool adapted =
        size >= sizeof h + sizeof adapters && memcmp(bytes, adapted_magic, sizeof adapted_magic) == 0;
    const size_t head = sizeof h + (adapted ? sizeof adapters : 0);
    if (!adapted && (size < sizeof h || memcmp(bytes, snapshot_magic, sizeof snapshot_magic) != 0)) {
        return size >= sizeof older_magic && memcmp(bytes, older_magic, sizeof older_magic) == 0
                   ? of_other_numerics(1, err)
                   : mo_fail(err, MO_EFORMAT, "this is not a saved state of a session");
    }
    memcpy(&h, bytes, sizeof h);
    memcpy(&adapters, bytes + sizeof h, head - sizeof h);
    if (h.numerics != MO_NUMERICS) {
        return of_other_numerics(h.numerics, err);
    }
    const uint64_t rest = size - head;
    const bool sane = h.kv >= 0 && h.kv < MO_KV_TYPES && h.vocab > 0 && h.vocab < INT32_MAX &&
                      h.length >= 0 && h.length < INT32_MAX && h.flags <= FLAGS && h.state_bytes <= rest;
    const bool logits = (h.flags & HAS_LOGITS) != 0;
    if (!sane || rest != 4 * (uint64_t)h.length + h.state_bytes + (logits ? 4 * (uint64_t)h.vocab : 0)) {
        return mo_fail(err, MO_EFORMAT, "the saved state is damaged or cut short; start anew");
    }
    mo_snapshot *s = mo_snapshot_new(h.length, h.vocab, logits);
    uint8_t *state = malloc(h.state_bytes ? h.state_bytes : 1);
    if (!s || !state) {
        mo_snapshot_close(s);
        free(state);
        return mo_fail(err, MO_ENOMEM, "no memory to read a saved state of %zu bytes", size);
    }
    s->kv = (mo_kv_type)h.kv;
    s->layers = h.layers;
    s->precision = h.flags & BF16 ? MO_PRECISION_BF16 : MO_PRECISION_EXACT;
    s->adapters = adapters;
    s->mark = (mo_state_mark){h.length, h.length, h.length};
    s->least = h.length;
    s->state = state;
    s->state_bytes = h.state_bytes;
    memcpy(s->tokens, bytes + head, sizeof(int32_t) * (size_t)h.length);
    memcpy(state, bytes + head + 4 * h.length, h.state_bytes);
    if (s->logits) {
        memcpy(s->logits, bytes + head + 4 * h.length + h.state_bytes, sizeof(float) * (size_t)h.vocab);
    }
    *out = s;
    return MO_OK;
}
