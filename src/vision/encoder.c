/* Encoder: see encoder.h. What it computes is in run.c. */
#include "vision/encoder.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/host.h"
#include "base/status.h"
#include "gguf/fingerprint.h"
#include "vision/bind.h"

struct mo_encoder {
    mo_gguf *gguf;
    mo_arena *arena;
    mo_vision_spec spec;
    uint8_t *region; /* NULL: described alone */
    int64_t bytes;
};

static mo_status load(mo_encoder *e, mo_vision_binder *b, mo_error *err)
{
    mo_input *input;
    mo_status status = mo_input_open(mo_gguf_part_path(e->gguf, 0), &input, err);
    if (status != MO_OK) {
        return status;
    }
    e->region = mo_host_alloc_huge((size_t)e->bytes);
    if (e->region) {
        b->region = e->region;
        b->input = input;
        status = mo_vision_bind(b, e->arena, &e->spec);
    } else {
        status = mo_fail(err, MO_ENOMEM, "%s: no memory for %lld bytes", mo_gguf_part_path(e->gguf, 0),
                         (long long)e->bytes);
    }
    mo_input_close(input);
    return status;
}

mo_status mo_encoder_open(const char *path, bool describe, mo_encoder **out, mo_error *err)
{
    mo_encoder *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while opening it", path);
    }
    mo_status status = mo_gguf_open(path, &e->gguf, err);
    if (status == MO_OK && mo_gguf_parts(e->gguf) > 1) {
        status = mo_fail(err, MO_EUNSUPPORTED, "%s: encoders in several files are not read", path);
    }
    if (status == MO_OK && !(e->arena = mo_arena_create(0))) {
        status = mo_fail(err, MO_ENOMEM, "%s: out of memory while opening it", path);
    }
    if (status == MO_OK) {
        mo_vision_binder b = {.gguf = e->gguf, .err = err};
        status = mo_vision_bind(&b, e->arena, &e->spec);
        e->bytes = b.used;
        if (status == MO_OK && !describe) {
            status = load(e, &b, err);
        }
    }
    if (status != MO_OK) {
        mo_encoder_close(e);
        return status;
    }
    *out = e;
    return MO_OK;
}

void mo_encoder_close(mo_encoder *e)
{
    if (e) {
        if (e->region) {
            mo_host_free_huge(e->region, (size_t)e->bytes);
        }
        mo_arena_destroy(e->arena);
        mo_gguf_close(e->gguf);
        free(e);
    }
}

const mo_vision_spec *mo_encoder_spec(const mo_encoder *e)
{
    return &e->spec;
}

uint64_t mo_encoder_hash(const mo_encoder *e)
{
    const uint64_t described = mo_gguf_fingerprint(e->gguf);
    return e->region ? mo_hash_words(described, e->region, (size_t)e->bytes) : described;
}

int64_t mo_encoder_weight_bytes(const mo_encoder *e)
{
    return e->bytes;
}

mo_status mo_encoder_rule(const mo_encoder *e, int64_t min_rows, int64_t max_rows, mo_resize_rule *out,
                          mo_error *err)
{
    enum { ROWS_MAX = 1 << 20 };
    const int64_t align = e->spec.patch * e->spec.merge;
    const int64_t low = min_rows > 0 ? min_rows : e->spec.min_rows;
    const int64_t high = max_rows > 0 ? max_rows : e->spec.max_rows;
    if (low > high) {
        return mo_fail(err, MO_EINVAL, "a picture cannot have at least %lld and at most %lld tokens",
                       (long long)low, (long long)high);
    }
    if (high > ROWS_MAX) {
        return mo_fail(err, MO_EINVAL, "a picture cannot have %lld tokens; the limit is %d", (long long)high,
                       ROWS_MAX);
    }
    *out = (mo_resize_rule){align, low * align * align, high * align * align};
    return MO_OK;
}

int64_t mo_encoder_rows(const mo_encoder *e, int64_t width, int64_t height)
{
    const int64_t align = e->spec.patch * e->spec.merge;
    return width / align * (height / align);
}
