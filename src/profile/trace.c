/* The file: header, layers, passes, ids, and a checksum of all this. Little-endian. */
#include "profile/trace.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/growing.h"
#include "base/hash.h"
#include "base/input.h"
#include "base/output.h"
#include "base/status.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is written as it is in memory");

enum { VERSION = 1, LAYER_LIMIT = 65536, EXPERT_LIMIT = 32768, PASS_LIMIT = 1 << 24 };
/* maximum bytes of an expert or the core; larger values are treated as damage */
#define BYTES_LIMIT ((int64_t)1 << 50)

static const char magic[8] = "mo-trace";

typedef struct file_header {
    char magic[8];
    uint32_t version, layers, experts, used;
    uint64_t fingerprint;
    int64_t core_bytes;
    uint64_t steps, tokens;
} file_header;
_Static_assert(sizeof(file_header) == 56, "file layout");

typedef struct file_layer {
    int32_t number;
    uint32_t zero;
    int64_t expert_bytes;
} file_layer;
_Static_assert(sizeof(file_layer) == 16, "file layout");
_Static_assert(sizeof(mo_trace_step) == 8, "file layout");

/* ---- Recording ---------------------------------------------------------------------------------- */

struct mo_tracer {
    mo_arena *memory; /* for the shape and this struct */
    mo_trace_shape shape;
    int32_t *index; /* [layer_limit] index of a layer number among the routed layers, or -1 */
    int32_t layer_limit;
    mo_trace_step *steps; /* malloc'ed, doubled */
    uint16_t *ids;        /* malloc'ed, doubled */
    int64_t step_count, token_count;
    size_t step_capacity, token_capacity;
    int64_t unheard;        /* choices of the last pass that have not arrived yet */
    int64_t first_position; /* of the last pass, for the observer; -1: unknown yet */
};

static bool copy_shape(mo_tracer *t, const mo_trace_shape *shape)
{
    const size_t layers = (size_t)shape->layers;
    t->shape = *shape;
    t->shape.layer = mo_arena_array(t->memory, layers, sizeof *shape->layer);
    t->shape.expert_bytes = mo_arena_array(t->memory, layers, sizeof *shape->expert_bytes);
    t->layer_limit = shape->layer[shape->layers - 1] + 1;
    t->index = mo_arena_array(t->memory, (size_t)t->layer_limit, sizeof *t->index);
    if (!t->shape.layer || !t->shape.expert_bytes || !t->index) {
        return false;
    }
    memcpy(t->shape.layer, shape->layer, layers * sizeof *shape->layer);
    memcpy(t->shape.expert_bytes, shape->expert_bytes, layers * sizeof *shape->expert_bytes);
    memset(t->index, -1, (size_t)t->layer_limit * sizeof *t->index);
    for (int i = 0; i < shape->layers; i++) {
        t->index[shape->layer[i]] = i;
    }
    return true;
}

/* Checks the shape in a file or given to a tracer. `path` is for errors. */
static mo_status check_shape(const mo_trace_shape *s, const char *path, mo_error *err)
{
    int64_t all = 0;
    if (s->layers < 1 || s->layers > LAYER_LIMIT || s->experts < 1 || s->experts > EXPERT_LIMIT ||
        s->used < 1 || s->used > s->experts) {
        return mo_fail(err, MO_EFORMAT, "%s: invalid shape: %d of %d experts in %d layers", path, s->used,
                       s->experts, s->layers);
    }
    if (s->core_bytes < 0 || s->core_bytes > BYTES_LIMIT) {
        return mo_fail(err, MO_EFORMAT, "%s: invalid core size of %" PRId64 " bytes", path, s->core_bytes);
    }
    for (int i = 0; i < s->layers; i++) {
        const int64_t bytes = s->expert_bytes[i];
        if (s->layer[i] < 0 || s->layer[i] >= LAYER_LIMIT || (i && s->layer[i] <= s->layer[i - 1])) {
            return mo_fail(err, MO_EFORMAT, "%s: layer numbers are not in ascending order", path);
        }
        if (bytes < 1 || bytes > BYTES_LIMIT || bytes * s->experts > INT64_MAX - all) {
            return mo_fail(err, MO_EFORMAT, "%s: invalid expert size of %" PRId64 " bytes in layer %d", path,
                           bytes, s->layer[i]);
        }
        all += bytes * s->experts;
    }
    return MO_OK;
}

mo_status mo_tracer_create(const mo_trace_shape *shape, mo_tracer **out, mo_error *err)
{
    *out = NULL;
    const mo_status status = check_shape(shape, "the model to trace", err);
    if (status != MO_OK) {
        return status;
    }
    mo_arena *memory = mo_arena_create(0);
    mo_tracer *t = memory ? mo_arena_alloc(memory, sizeof *t) : NULL;
    if (t) {
        t->memory = memory;
    }
    if (!t || !copy_shape(t, shape)) {
        mo_arena_destroy(memory);
        return mo_fail(err, MO_ENOMEM, "out of memory for a trace");
    }
    *out = t;
    return MO_OK;
}

void mo_tracer_close(mo_tracer *t)
{
    if (t) {
        free(t->steps);
        free(t->ids);
        mo_arena_destroy(t->memory);
    }
}

static size_t ids_per_token(const mo_trace_shape *s)
{
    return (size_t)s->layers * (size_t)s->used;
}

/* Removes the last pass if it is incomplete. */
static void forget_unheard(mo_tracer *t)
{
    if (t->unheard) {
        t->token_count -= t->steps[--t->step_count].tokens;
        t->unheard = 0;
    }
}

mo_status mo_tracer_step(mo_tracer *t, int tokens, int text, mo_trace_phase phase, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "tracer", t)
    if (tokens < 1 || tokens > PASS_LIMIT) {
        return MO_REFUSE(err, "tokens", "must be 1 to %d, not %d", PASS_LIMIT, tokens);
    }
    if (text < 0 || text > UINT16_MAX) {
        return MO_REFUSE(err, "text", "must be 0 to %d, not %d", UINT16_MAX, text);
    }
    if ((int)phase < MO_TRACE_PROMPT || phase > MO_TRACE_GENERATION) {
        return MO_REFUSE(err, "phase", "must be prompt or generation, not number %d", (int)phase);
    }
    forget_unheard(t);
    if (!mo_array_reserve(&t->steps, &t->step_capacity, (size_t)t->step_count + 1, sizeof *t->steps) ||
        !mo_array_reserve(&t->ids, &t->token_capacity, (size_t)(t->token_count + tokens),
                          ids_per_token(&t->shape) * sizeof *t->ids)) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a trace of %" PRId64 " tokens; trace fewer",
                       t->token_count + tokens);
    }
    t->steps[t->step_count++] =
        (mo_trace_step){.tokens = tokens, .text = (uint16_t)text, .phase = (uint16_t)phase};
    t->token_count += tokens;
    t->unheard = (int64_t)tokens * t->shape.layers;
    t->first_position = -1;
    return MO_OK;
}

/* Adds the choice of one token of the current pass in routed layer number `layer` (of the model). */
static void add_routes(mo_tracer *t, int layer, int64_t token, const int32_t *ids, int used)
{
    const mo_trace_shape *s = &t->shape;
    assert(t->step_count && t->unheard > 0 && used >= 1 && used <= s->used);
    const int64_t tokens = t->steps[t->step_count - 1].tokens;
    assert(layer >= 0 && layer < t->layer_limit && t->index[layer] >= 0 && token >= 0 && token < tokens);
    uint16_t *out = t->ids + (size_t)(t->token_count - tokens + token) * ids_per_token(s) +
                    (size_t)t->index[layer] * (size_t)s->used;
    for (int i = 0; i < s->used; i++) {
        const int32_t id = ids[i < used ? i : used - 1]; /* layers with fewer experts repeat their last one */
        assert(id >= 0 && id < s->experts);
        out[i] = (uint16_t)id;
    }
    t->unheard--;
}

void mo_tracer_observe(void *tracer, int layer, int64_t position, const int32_t *ids, const float *weights,
                       int used)
{
    mo_tracer *t = tracer;
    (void)weights;
    if (t->first_position < 0) {
        t->first_position = position;
    }
    add_routes(t, layer, position - t->first_position, ids, used);
}

static mo_status append(mo_output *o, uint64_t *sum, const void *data, size_t bytes, mo_error *err)
{
    *sum = mo_hash(*sum, data, bytes);
    return mo_output_append(o, data, bytes, err);
}

static mo_status write_shape(mo_output *o, uint64_t *sum, const file_header *h, const mo_trace_shape *s,
                             mo_error *err)
{
    mo_status status = append(o, sum, h, sizeof *h, err);
    for (int i = 0; i < s->layers && status == MO_OK; i++) {
        const file_layer layer = {.number = s->layer[i], .expert_bytes = s->expert_bytes[i]};
        status = append(o, sum, &layer, sizeof layer, err);
    }
    return status;
}

mo_status mo_tracer_save(const mo_tracer *t, const char *path, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "tracer, path", t, path)
    const mo_status named = mo_check_path(path, "path", __func__, err);
    if (named != MO_OK) {
        return named;
    }
    const mo_trace_shape *s = &t->shape;
    const int64_t steps = t->step_count - (t->unheard ? 1 : 0);
    const int64_t tokens = t->token_count - (t->unheard ? t->steps[steps].tokens : 0);
    if (steps == 0) {
        return mo_fail(err, MO_EINVAL, "%s: nothing was recorded; no trace is written", path);
    }
    file_header h = {.version = VERSION,
                     .layers = (uint32_t)s->layers,
                     .experts = (uint32_t)s->experts,
                     .used = (uint32_t)s->used,
                     .fingerprint = s->fingerprint,
                     .core_bytes = s->core_bytes,
                     .steps = (uint64_t)steps,
                     .tokens = (uint64_t)tokens};
    memcpy(h.magic, magic, sizeof magic);
    const size_t step_bytes = (size_t)steps * sizeof *t->steps;
    const size_t id_bytes = (size_t)tokens * ids_per_token(s) * sizeof *t->ids;
    uint64_t sum = MO_HASH_SEED;
    mo_output *o = NULL;
    mo_status status = mo_output_create(
        path, sizeof h + (size_t)s->layers * sizeof(file_layer) + step_bytes + id_bytes + sizeof sum, &o,
        err);
    if (status == MO_OK) {
        status = write_shape(o, &sum, &h, s, err);
    }
    if (status == MO_OK) {
        status = append(o, &sum, t->steps, step_bytes, err);
    }
    if (status == MO_OK) {
        status = append(o, &sum, t->ids, id_bytes, err);
    }
    if (status == MO_OK) {
        status = mo_output_append(o, &sum, sizeof sum, err);
    }
    if (status != MO_OK) {
        mo_output_abort(o);
        return status;
    }
    return mo_output_commit(o, err);
}

/* ---- Reading ------------------------------------------------------------------------------------ */

#define FETCH_AGAIN "record or copy it again"

/* The file size by its header; 0 if it overflows. */
static uint64_t bytes_of(const file_header *h)
{
    uint64_t layers, steps, ids, sum;
    if (__builtin_mul_overflow((uint64_t)h->layers, sizeof(file_layer), &layers) ||
        __builtin_mul_overflow(h->steps, sizeof(mo_trace_step), &steps) ||
        __builtin_mul_overflow((uint64_t)h->layers, (uint64_t)h->used, &ids) ||
        __builtin_mul_overflow(ids, sizeof(uint16_t), &ids) || __builtin_mul_overflow(ids, h->tokens, &ids) ||
        __builtin_add_overflow(layers, steps, &sum) || __builtin_add_overflow(sum, ids, &sum) ||
        __builtin_add_overflow(sum, sizeof *h + sizeof(uint64_t), &sum)) {
        return 0;
    }
    return sum;
}

static mo_status check_header(const file_header *h, const char *path, uint64_t bytes, mo_error *err)
{
    if (memcmp(h->magic, magic, sizeof magic) != 0) {
        return mo_fail(err, MO_EFORMAT, "%s: is not a trace; record one with moraine trace", path);
    }
    if (h->version != VERSION) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "%s: is a trace of version %" PRIu32 ", but this program reads "
                       "version %d; record it again",
                       path, h->version, VERSION);
    }
    if (h->layers > LAYER_LIMIT || h->experts > EXPERT_LIMIT || h->steps < 1 || h->tokens < 1 ||
        h->tokens > INT64_MAX || bytes_of(h) != bytes) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: its size of %" PRIu64 " bytes does not match its header; " FETCH_AGAIN, path,
                       bytes);
    }
    return MO_OK;
}

/* Points the trace's arrays into the file's bytes. Those of the shape are copied. */
static mo_status read_shape(mo_trace *t, const file_header *h, const uint8_t *data, const char *path,
                            mo_error *err)
{
    mo_trace_shape *s = &t->shape;
    mo_arena *memory = t->memory;
    *s = (mo_trace_shape){.fingerprint = h->fingerprint,
                          .layers = (int)h->layers,
                          .experts = (int)h->experts,
                          .used = (int)(h->used > EXPERT_LIMIT ? 0 : h->used),
                          .layer = mo_arena_array(memory, h->layers, sizeof *s->layer),
                          .expert_bytes = mo_arena_array(memory, h->layers, sizeof *s->expert_bytes),
                          .core_bytes = h->core_bytes};
    if (!s->layer || !s->expert_bytes) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while reading it", path);
    }
    for (int i = 0; i < s->layers; i++) {
        file_layer layer;
        memcpy(&layer, data + sizeof *h + (size_t)i * sizeof layer, sizeof layer);
        s->layer[i] = layer.number;
        s->expert_bytes[i] = layer.expert_bytes;
    }
    return check_shape(s, path, err);
}

static mo_status check_content(const mo_trace *t, const char *path, mo_error *err)
{
    int64_t tokens = 0;
    const size_t ids = (size_t)t->token_count * ids_per_token(&t->shape);
    for (int64_t i = 0; i < t->step_count; i++) {
        const mo_trace_step *s = &t->steps[i];
        if (s->tokens < 1 || s->tokens > PASS_LIMIT || s->phase > MO_TRACE_GENERATION) {
            return mo_fail(err, MO_EFORMAT, "%s: pass %" PRId64 " is invalid; " FETCH_AGAIN, path, i);
        }
        tokens += s->tokens;
    }
    if (tokens != t->token_count) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: its passes have %" PRId64 " tokens, but its header says %" PRId64
                       "; " FETCH_AGAIN,
                       path, tokens, t->token_count);
    }
    for (size_t i = 0; i < ids; i++) {
        if (t->ids[i] >= t->shape.experts) {
            return mo_fail(err, MO_EFORMAT, "%s: expert %u of %d does not exist; " FETCH_AGAIN, path,
                           t->ids[i], t->shape.experts);
        }
    }
    return MO_OK;
}

/* Reads the rest of a file whose header was checked; the bytes are in the trace's memory. */
static mo_status parse(mo_trace *t, const file_header *h, uint8_t *data, uint64_t bytes, const char *path,
                       mo_error *err)
{
    uint64_t sum;
    memcpy(&sum, data + bytes - sizeof sum, sizeof sum);
    if (sum != mo_hash(MO_HASH_SEED, data, (size_t)bytes - sizeof sum)) {
        return mo_fail(err, MO_EFORMAT, "%s: its checksum is wrong; " FETCH_AGAIN, path);
    }
    const mo_status status = read_shape(t, h, data, path, err);
    if (status != MO_OK) {
        return status;
    }
    t->step_count = (int64_t)h->steps;
    t->token_count = (int64_t)h->tokens;
    t->steps = (mo_trace_step *)(void *)(data + sizeof *h + (size_t)h->layers * sizeof(file_layer));
    t->ids = (uint16_t *)(void *)(t->steps + t->step_count);
    return check_content(t, path, err);
}

static mo_status read_trace(const mo_input *input, mo_trace **out, mo_error *err)
{
    const char *path = mo_input_path(input);
    const uint64_t bytes = mo_input_bytes(input);
    file_header h;
    if (bytes < sizeof h + sizeof(uint64_t)) {
        return mo_fail(err, MO_EFORMAT, "%s: is too short to be a trace; record one with moraine trace",
                       path);
    }
    mo_status status = mo_input_read_at(input, &h, sizeof h, 0, err);
    if (status == MO_OK) {
        status = check_header(&h, path, bytes, err); /* before memory is allocated */
    }
    if (status != MO_OK) {
        return status;
    }
    mo_arena *memory = mo_arena_create(0);
    mo_trace *t = memory ? mo_arena_alloc(memory, sizeof *t) : NULL;
    uint8_t *data = t ? mo_arena_alloc(memory, (size_t)bytes) : NULL;
    if (!data) {
        status =
            mo_fail(err, MO_ENOMEM, "%s: out of memory while reading its %" PRIu64 " bytes", path, bytes);
    } else {
        t->memory = memory;
        status = mo_input_read_at(input, data, (size_t)bytes, 0, err);
        if (status == MO_OK && memcmp(data, &h, sizeof h) != 0) {
            status = mo_fail(err, MO_EFORMAT, "%s: changed while being read; try again", path);
        }
        if (status == MO_OK) {
            status = parse(t, &h, data, bytes, path, err);
        }
    }
    if (status != MO_OK) {
        mo_arena_destroy(memory);
        return status;
    }
    *out = t;
    return MO_OK;
}

mo_status mo_trace_open(const char *path, mo_trace **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, path, out)
    mo_input *input = NULL;
    *out = NULL;
    mo_status status = mo_check_path(path, "path", __func__, err);
    if (status == MO_OK) {
        status = mo_input_open(path, &input, err);
    }
    if (status == MO_OK) {
        status = read_trace(input, out, err);
    }
    mo_input_close(input);
    return status;
}

void mo_trace_close(mo_trace *t)
{
    if (t) {
        mo_arena_destroy(t->memory);
    }
}

void mo_trace_picks(const mo_trace *t, uint64_t *picks)
{
    const mo_trace_shape *s = &t->shape;
    const uint16_t *id = t->ids;
    memset(picks, 0, (size_t)s->layers * (size_t)s->experts * sizeof *picks);
    for (int64_t token = 0; token < t->token_count; token++) {
        for (int layer = 0; layer < s->layers; layer++) {
            for (int i = 0; i < s->used; i++) {
                picks[(size_t)layer * (size_t)s->experts + *id++]++;
            }
        }
    }
}
