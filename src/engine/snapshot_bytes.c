/* A snapshot as bytes: a header, then tokens, state and logits, little-endian as in memory. The header
 * identifies the model and has a checksum of everything. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/hash.h"
#include "base/status.h"
#include "engine/snapshot.h"
#include "numeric/version.h"

typedef struct header {
    char magic[8];
    int64_t numerics; /* MO_NUMERICS of the writer */
    int64_t kv, vocab, layers, length;
    uint64_t state_bytes;
    uint64_t flags;
    uint64_t fingerprint; /* of the model */
    uint64_t adapters;    /* as in mo_session_adapters() */
    uint64_t check;       /* of the members above and of the data after the header */
} header;

enum { HAS_LOGITS = 1, BF16 = 2, FLAGS = HAS_LOGITS | BF16, MAGIC_BYTES = 7 };

static const char snapshot_magic[8] = {'M', 'O', 'S', 'N', 'A', 'P', '0', '4'};

static uint64_t check_of(const header *h, const uint8_t *rest, size_t bytes)
{
    return mo_hash_words(mo_hash_words(MO_HASH_SEED, h, offsetof(header, check)), rest, bytes);
}

static mo_status join(const mo_snapshot *s, const uint8_t *state, size_t state_bytes, uint8_t **bytes,
                      size_t *size, mo_error *err)
{
    header h = {.numerics = MO_NUMERICS,
                .kv = s->kv,
                .vocab = s->vocab,
                .layers = s->layers,
                .length = s->mark.length,
                .state_bytes = state_bytes,
                .flags = (s->logits ? HAS_LOGITS : 0u) | (s->precision == MO_PRECISION_BF16 ? BF16 : 0u),
                .fingerprint = s->fingerprint,
                .adapters = s->adapters};
    memcpy(h.magic, snapshot_magic, sizeof h.magic);
    const size_t tokens = sizeof(int32_t) * (size_t)s->mark.length;
    const size_t logits = s->logits ? sizeof(float) * (size_t)s->vocab : 0;
    const size_t all = sizeof h + tokens + state_bytes + logits;
    uint8_t *at = malloc(all);
    if (!at) {
        return mo_fail(err, MO_ENOMEM, "out of memory while writing a saved state of %zu bytes", all);
    }
    memcpy(at + sizeof h, s->tokens, tokens);
    memcpy(at + sizeof h + tokens, state, state_bytes);
    if (logits) {
        memcpy(at + sizeof h + tokens + state_bytes, s->logits, logits);
    }
    h.check = check_of(&h, at + sizeof h, all - sizeof h);
    memcpy(at, &h, sizeof h);
    *bytes = at;
    *size = all;
    return MO_OK;
}

mo_status mo_snapshot_write(const mo_snapshot *s, uint8_t **bytes, size_t *size, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "snapshot, bytes, size", s, bytes, size)
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

/* Another version computes another KV cache, perhaps in another layout. */
static mo_status refuse_numerics(int64_t version, mo_error *err)
{
    return mo_fail(
        err, MO_EFORMAT,
        "the saved state was computed by version %lld of the numerics, but this library has version %d; "
        "start a new session and feed its tokens again",
        (long long)version, MO_NUMERICS);
}

static mo_status refuse_magic(const uint8_t *bytes, size_t size, mo_error *err)
{
    if (size < sizeof snapshot_magic || memcmp(bytes, snapshot_magic, MAGIC_BYTES) != 0) {
        return mo_fail(err, MO_EFORMAT, "this is not a saved state of a session");
    }
    return bytes[MAGIC_BYTES] == '1'
               ? refuse_numerics(1, err)
               : mo_fail(err, MO_EFORMAT,
                         "the saved state has format %c, which this library does not read (it reads %c); "
                         "start a new session and feed its tokens again",
                         bytes[MAGIC_BYTES], snapshot_magic[MAGIC_BYTES]);
}

/* If the model reads pictures, numbers below -1 are their rows; the caller that feeds the session passes the
 * pictures with its tokens. */
static bool tokens_in_range(const uint8_t *bytes, int64_t count, int64_t vocab, bool pictures)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t token;
        memcpy(&token, bytes + sizeof token * (size_t)i, sizeof token);
        if (token >= vocab || (token < 0 && (!pictures || token == -1))) {
            return false;
        }
    }
    return true;
}

static mo_status check_bytes(const header *h, const uint8_t *bytes, size_t size, bool pictures, mo_error *err)
{
    const uint64_t rest = size - sizeof *h;
    const bool sane = h->kv >= 0 && h->kv < MO_KV_TYPES && h->vocab > 0 && h->vocab < INT32_MAX &&
                      h->length >= 0 && h->length < INT32_MAX && h->flags <= FLAGS && h->state_bytes <= rest;
    const bool logits = (h->flags & HAS_LOGITS) != 0;
    if (!sane || rest != 4 * (uint64_t)h->length + h->state_bytes + (logits ? 4 * (uint64_t)h->vocab : 0) ||
        h->check != check_of(h, bytes + sizeof *h, rest) ||
        !tokens_in_range(bytes + sizeof *h, h->length, h->vocab, pictures)) {
        return mo_fail(err, MO_EFORMAT, "the saved state is damaged or truncated; start a new session");
    }
    return MO_OK;
}

mo_status mo_engine_snapshot_read(const mo_engine *engine, const uint8_t *bytes, size_t size,
                                  mo_snapshot **out, mo_error *err)
{
    header h;
    if (size < sizeof snapshot_magic || memcmp(bytes, snapshot_magic, sizeof snapshot_magic) != 0) {
        return refuse_magic(bytes, size, err);
    }
    if (size < sizeof h) {
        return mo_fail(err, MO_EFORMAT, "the saved state is truncated; start a new session");
    }
    memcpy(&h, bytes, sizeof h);
    if (h.numerics != MO_NUMERICS) {
        return refuse_numerics(h.numerics, err);
    }
    mo_status status = check_bytes(&h, bytes, size, engine->spec->pictures.accepted, err);
    if (status != MO_OK) {
        return status;
    }
    mo_snapshot *s = mo_snapshot_new(h.length, h.vocab, (h.flags & HAS_LOGITS) != 0);
    uint8_t *state = malloc(h.state_bytes ? h.state_bytes : 1);
    if (!s || !state) {
        mo_snapshot_close(s);
        free(state);
        return mo_fail(err, MO_ENOMEM, "out of memory while reading a saved state of %zu bytes", size);
    }
    const uint8_t *tokens = bytes + sizeof h, *saved = tokens + sizeof(int32_t) * (size_t)h.length;
    s->kv = (mo_kv_type)h.kv;
    s->layers = h.layers;
    s->fingerprint = h.fingerprint;
    s->precision = h.flags & BF16 ? MO_PRECISION_BF16 : MO_PRECISION_EXACT;
    s->adapters = h.adapters;
    s->mark = (mo_state_mark){h.length, h.length, h.length};
    s->least = h.length;
    s->state = state;
    s->state_bytes = h.state_bytes;
    memcpy(s->tokens, tokens, sizeof(int32_t) * (size_t)h.length);
    memcpy(state, saved, h.state_bytes);
    if (s->logits) {
        memcpy(s->logits, saved + h.state_bytes, sizeof(float) * (size_t)h.vocab);
    }
    status = mo_snapshot_check_model(s, engine, err);
    if (status != MO_OK) {
        mo_snapshot_close(s);
        return status;
    }
    *out = s;
    return MO_OK;
}
