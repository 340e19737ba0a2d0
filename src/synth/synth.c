/* The work is a list of chunks of one tensor, a few MiB each. The pool's threads generate a wave of chunks,
   each into its own buffer, and write them. Between waves progress is reported and the work may be
   cancelled. */
#include "synth/synth.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/output.h"
#include "base/pool.h"
#include "base/status.h"
#include "numeric/math.h"
#include "synth/noise.h"
#include "synth/vocabulary.h"

enum { CHUNK_BYTES = 4 << 20, CHUNKS_PER_THREAD = 16 };

typedef struct tensor {
    mo_shape_tensor shape;
    mo_type type;
    mo_noise noise;
    bool scaled;              /* the model has a scale tensor for it */
    const uint8_t *fixed;     /* all values, if they are not random; owned by the arena */
    const mo_gguf_tensor *at; /* owned by the writer */
    int64_t blocks, chunk_blocks;
    int64_t first_chunk;
} tensor;

typedef struct synth {
    const mo_shape *shape;
    const mo_like *like; /* NULL: use the shape */
    mo_synth_options options;
    mo_type type, experts; /* of all matrices, and of routed experts; MO_TYPE_LIMIT: as published */
    int layers;
    mo_arena *arena;
    mo_gguf_writer *writer;
    tensor *tensors;
    int64_t count;
    int64_t chunks;

    mo_output *output;
    uint8_t **buffers; /* one for each thread */
    int threads;
    int64_t wave; /* first chunk of the current wave */
    atomic_flag failing;
    _Atomic bool failed; /* set after `error` was filled, by the thread that won `failing` */
    mo_error error;
} synth;

/* ---- Options ---- */

/* MO_TYPE_LIMIT if no name is given. */
static mo_status find_format(const char *member, const char *name, mo_type *out, mo_error *err)
{
    const mo_format *f = name ? mo_format_named(name) : NULL;
    *out = f ? f->type : MO_TYPE_LIMIT;
    if (name && (!f || f->kind == MO_KIND_INTEGER)) {
        return mo_fail(err, MO_EINVAL,
                       "%s \"%.40s\" is not a weight format; choose one of " MO_WEIGHT_TYPE_NAMES
                       "in upper or lower case",
                       member, name);
    }
    return MO_OK;
}

static mo_status check_options(synth *s, mo_error *err)
{
    const mo_synth_options *o = &s->options;
    if (o->layers < 0 || o->layers > s->shape->layers) {
        return mo_fail(err, MO_EINVAL, "`layers` must be 1 to %d, the layers of %s (or 0 for all), not %d",
                       s->shape->layers, s->shape->name, o->layers);
    }
    if (!(o->skew >= 0.0f && o->skew <= 8.0f)) {
        return mo_fail(err, MO_EINVAL, "`skew` must be 0 (none) to 8, not %g", (double)o->skew);
    }
    if (o->threads < 0) {
        return mo_fail(err, MO_EINVAL, "`threads` must be 1 or more (or 0 for one per core), not %d",
                       o->threads);
    }
    if (s->like && (o->type || o->experts || o->vocabulary)) {
        return mo_fail(err, MO_EINVAL, "the formats and the vocabulary are those of %s; omit them",
                       s->shape->name);
    }
    s->layers = o->layers ? o->layers : s->shape->layers;
    if (o->experts && s->shape->experts == 0) {
        return mo_fail(err, MO_EINVAL, "%s has no experts to choose a format for", s->shape->name);
    }
    const mo_status status = find_format("`type`", o->type, &s->type, err);
    return status == MO_OK ? find_format("`experts`", o->experts, &s->experts, err) : status;
}

/* ---- Values ---- */

static bool is_gemma(const mo_shape *shape)
{
    return strncmp(shape->architecture, "gemma", 5) == 0;
}

/* NVFP4 files store the magnitude of a matrix in a scale tensor, because the format's own scales are coarse
   for small weights. Gemma has other tensors with these names, and its norms make the scale unnecessary. */
static bool has_scale(const synth *s, const tensor *t)
{
    if (s->like) {
        return t->scaled;
    }
    return t->type == MO_NVFP4 && t->shape.role != MO_SHAPE_EMBEDDING && !is_gemma(s->shape);
}

/* Values of a scaled matrix, for which the format's scales are around 1. */
static const double scaled_deviation = 4.0;

/* Matrices keep a vector's magnitude: 1 / sqrt(inputs). Outputs that are added to the stream are divided by
   the square root of the number of additions, so that the stream keeps magnitude 1 at any depth. The middle
   of a feed-forward part is smaller than its inputs, hence the 2. A tied embedding has the magnitude of the
   output matrix. Gemma multiplies the embedding by sqrt(width), so there it is smaller (and the last norm
   larger); otherwise every token would predict itself. The published number of layers is used, so a file with
   fewer layers contains the first layers of the whole model. */
static double deviation_of(const mo_shape *shape, const mo_shape_tensor *t)
{
    const double keep = 1.0 / sqrt((double)t->size[0]);
    const double back = is_gemma(shape) ? keep : keep / sqrt(2.0 * shape->layers);
    switch (t->role) {
    case MO_SHAPE_EMBEDDING: return is_gemma(shape) ? 0.25 * keep : shape->tied ? keep : 1.0;
    case MO_SHAPE_BACK: return back;
    case MO_SHAPE_DOWN:
    case MO_SHAPE_EXPERT_DOWN: return 2.0 * back;
    case MO_SHAPE_CONV: return 0.5;
    default: return keep;
    }
}

void mo_synth_skew(uint64_t seed, const char *name, float skew, int experts, float *out)
{
    const uint64_t key = mo_noise_key(seed, name);
    double sum = 0.0;
    for (int e = 0; e < experts; e++) {
        const uint64_t mine = mo_noise_word(~key, (uint64_t)e);
        int rank = 0;
        for (int other = 0; other < experts; other++) {
            rank += mo_noise_word(~key, (uint64_t)other) < mine;
        }
        const float z = experts > 1 ? 2.0f * (float)rank / (float)(experts - 1) - 1.0f : 0.0f;
        out[e] = mo_exp(skew * z);
        sum += (double)out[e] * (double)out[e];
    }
    const float size = (float)sqrt(sum / experts);
    for (int e = 0; e < experts; e++) {
        out[e] /= size;
    }
}

static mo_status set_router(synth *s, tensor *t, mo_error *err)
{
    mo_noise_matrix(&t->noise, s->options.seed, t->shape.name, MO_F32, deviation_of(s->shape, &t->shape));
    if (s->options.skew > 0.0f) {
        float *rows = mo_arena_array(s->arena, (size_t)t->shape.size[1], sizeof *rows);
        if (!rows) {
            return mo_fail(err, MO_ENOMEM, "out of memory for the plan of a model file");
        }
        mo_synth_skew(s->options.seed, t->shape.name, s->options.skew, (int)t->shape.size[1], rows);
        t->noise.row_scale = rows;
        t->noise.row_values = t->shape.size[0];
    }
    return MO_OK;
}

/* Gemma's full layers rotate only the first eighth of the pairs. */
static mo_status set_rope_factors(synth *s, tensor *t, mo_error *err)
{
    float *factors = mo_arena_array(s->arena, (size_t)t->shape.size[0], sizeof *factors);
    if (!factors) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the plan of a model file");
    }
    for (int64_t i = 0; i < t->shape.size[0]; i++) {
        factors[i] = i < t->shape.size[0] / 4 ? 1.0f : 1e30f;
    }
    t->fixed = (const uint8_t *)factors;
    return MO_OK;
}

/* Different experts for each token. */
static mo_status set_tokens(synth *s, tensor *t, mo_error *err)
{
    const int64_t used = t->shape.size[0], tokens = t->shape.size[1], experts = s->shape->experts;
    if (experts < used) { /* the header is invalid: zeros have the same length */
        mo_noise_values(&t->noise, s->options.seed, t->shape.name, 0.0f, 0.0f);
        return MO_OK;
    }
    int32_t *ids = mo_arena_array(s->arena, (size_t)(used * tokens), sizeof *ids);
    if (!ids) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the plan of a model file");
    }
    const uint64_t key = mo_noise_key(s->options.seed, t->shape.name);
    for (int64_t i = 0; i < used * tokens; i++) {
        const int64_t first = i / used * used;
        int64_t expert = (int64_t)(mo_noise_word(key, (uint64_t)i) % (uint64_t)experts);
        for (int64_t other = first; other < i; other++) {
            if (ids[other] == expert) {
                expert = (expert + 1) % experts;
                other = first - 1; /* continues with the first */
            }
        }
        ids[i] = (int32_t)expert;
    }
    t->fixed = (const uint8_t *)ids;
    return MO_OK;
}

static mo_status set_values(synth *s, tensor *t, mo_error *err)
{
    const mo_shape *shape = s->shape;
    float centre = 0.0f;
    float spread = 0.0f;
    switch (t->shape.role) {
    case MO_SHAPE_ROUTER: return set_router(s, t, err);
    case MO_SHAPE_ROPE_FACTORS: return set_rope_factors(s, t, err);
    case MO_SHAPE_TOKENS: return set_tokens(s, t, err);
    case MO_SHAPE_NORM: centre = is_gemma(shape) && t->shape.layer < 0 ? 4.0f : 1.0f; break;
    case MO_SHAPE_HEAD_NORM: /* Gemma 4 does not divide scores by the head size */
        centre = strcmp(shape->architecture, "gemma4") == 0
                     ? (float)(1.0 / sqrt(sqrt((double)t->shape.size[0])))
                     : 1.0f;
        break;
    case MO_SHAPE_POST_NORM: centre = 1.0f; break;
    case MO_SHAPE_ROUTER_SCALE: centre = (float)sqrt((double)shape->width); break;
    case MO_SHAPE_ONE: centre = 1.0f; break;
    case MO_SHAPE_BIAS: spread = 0.05f; break;
    case MO_SHAPE_SINK: spread = 0.5f; break;
    case MO_SHAPE_ROPE_STRETCH: centre = 2.0f, spread = 1.0f; break;
    case MO_SHAPE_DECAY: centre = -4.0f, spread = 3.5f; break; /* with MO_SHAPE_STEP: decays of 0.5 to 0.99 */
    case MO_SHAPE_STEP: centre = -3.0f, spread = 1.0f; break;
    default:
        mo_noise_matrix(&t->noise, s->options.seed, t->shape.name, t->type,
                        has_scale(s, t) ? scaled_deviation : deviation_of(shape, &t->shape));
        return MO_OK;
    }
    if (spread == 0.0f && t->shape.role != MO_SHAPE_ONE) {
        spread = 0.1f * centre;
    }
    mo_noise_values(&t->noise, s->options.seed, t->shape.name, centre, spread);
    return MO_OK;
}

/* ---- Plan ---- */

/* Adds the scale tensor of matrix `of`: one value, or one for each expert. */
static void add_scale(synth *s, const tensor *of)
{
    tensor *t = &s->tensors[s->count++];
    const size_t stem = strlen(of->shape.name) - strlen("weight");
    *t = (tensor){.type = MO_F32};
    memcpy(t->shape.name, of->shape.name, stem);
    memcpy(t->shape.name + stem, "scale", sizeof "scale");
    t->shape.dims = 1;
    t->shape.size[0] = of->shape.size[2];
    t->shape.size[1] = t->shape.size[2] = 1;
    t->shape.role = MO_SHAPE_SCALE;
    t->shape.layer = of->shape.layer;
    const float scale = (float)(deviation_of(s->shape, &of->shape) / scaled_deviation);
    mo_noise_values(&t->noise, s->options.seed, t->shape.name, scale, 0.0f);
}

/* MO_TYPE_LIMIT: as published. */
static mo_type chosen_format(const synth *s, mo_shape_role role)
{
    const bool expert = role == MO_SHAPE_EXPERT || role == MO_SHAPE_EXPERT_DOWN;
    if (expert && s->experts != MO_TYPE_LIMIT) {
        return s->experts;
    }
    return mo_shape_mixed(role) ? s->type : MO_TYPE_LIMIT;
}

/* The tensor with this name. NULL: none. */
static const tensor *tensor_named(const synth *s, const char *stem, size_t length, const char *last)
{
    for (int64_t i = 0; i < s->count; i++) {
        const char *name = s->tensors[i].shape.name;
        if (strncmp(name, stem, length) == 0 && strcmp(name + length, last) == 0) {
            return &s->tensors[i];
        }
    }
    return NULL;
}

/* Sets a scale tensor, or a matrix that has one: their product has the usual magnitude. */
static mo_status set_like_values(synth *s, tensor *t, mo_error *err)
{
    const size_t length = strlen(t->shape.name);
    if (t->shape.role == MO_SHAPE_SCALE) {
        const tensor *of = tensor_named(s, t->shape.name, length - strlen("scale"), "weight");
        const double scale =
            of && of->type == MO_NVFP4 ? deviation_of(s->shape, &of->shape) / scaled_deviation : 1.0;
        mo_noise_values(&t->noise, s->options.seed, t->shape.name, (float)scale, 0.0f);
        return MO_OK;
    }
    if (t->shape.role == MO_SHAPE_TOKENS && t->type == MO_I32) {
        return set_tokens(s, t, err);
    }
    /* zeros have the same length in all four-byte formats */
    if (mo_format_of(t->type)->kind == MO_KIND_INTEGER) {
        mo_noise_values(&t->noise, s->options.seed, t->shape.name, 0.0f, 0.0f);
        return MO_OK;
    }
    t->scaled = t->type == MO_NVFP4 && length > strlen("weight") &&
                tensor_named(s, t->shape.name, length - strlen("weight"), "scale");
    return set_values(s, t, err);
}

static mo_status list_like(synth *s, mo_error *err)
{
    const int64_t count = mo_like_tensors(s->like, s->layers, NULL, NULL, 0);
    mo_shape_tensor *shapes = mo_arena_array(s->arena, (size_t)(count + 1), sizeof *shapes);
    mo_type *types = mo_arena_array(s->arena, (size_t)(count + 1), sizeof *types);
    s->tensors = mo_arena_array(s->arena, (size_t)(count + 1), sizeof *s->tensors);
    if (!shapes || !types || !s->tensors) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the plan of a model file");
    }
    mo_like_tensors(s->like, s->layers, shapes, types, count);
    for (; s->count < count; s->count++) {
        s->tensors[s->count] = (tensor){.shape = shapes[s->count], .type = types[s->count]};
    }
    mo_status status = MO_OK;
    for (int64_t i = 0; i < count && status == MO_OK; i++) {
        status = set_like_values(s, &s->tensors[i], err);
    }
    return status;
}

static mo_status list_tensors(synth *s, mo_error *err)
{
    if (s->like) {
        return list_like(s, err);
    }
    const int64_t count = mo_shape_tensors(s->shape, s->layers, NULL, 0);
    mo_shape_tensor *shapes = mo_arena_array(s->arena, (size_t)count, sizeof *shapes);
    s->tensors = mo_arena_array(s->arena, (size_t)(2 * count), sizeof *s->tensors);
    if (!shapes || !s->tensors) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the plan of a model file");
    }
    mo_shape_tensors(s->shape, s->layers, shapes, count);
    for (int64_t i = 0; i < count; i++) {
        tensor *t = &s->tensors[s->count++];
        const mo_type chosen = chosen_format(s, shapes[i].role);
        t->shape = shapes[i];
        t->type = chosen != MO_TYPE_LIMIT ? mo_shape_fallback(chosen, shapes[i].size[0])
                                          : mo_shape_format(s->shape, &shapes[i]);
        const mo_status status = set_values(s, t, err);
        if (status != MO_OK) {
            return status;
        }
        if (has_scale(s, t)) {
            add_scale(s, t);
        }
    }
    return MO_OK;
}

static mo_status lay_out_tensors(synth *s, mo_error *err)
{
    for (int64_t i = 0; i < s->count; i++) {
        const tensor *t = &s->tensors[i];
        mo_gguf_put_tensor(s->writer, t->shape.name, t->type, t->shape.dims, t->shape.size);
    }
    const mo_status status = mo_gguf_writer_layout(s->writer, err);
    if (status != MO_OK) {
        return status;
    }
    for (int64_t i = 0; i < s->count; i++) {
        tensor *t = &s->tensors[i];
        const int64_t block_bytes = mo_format_of(t->type)->block_bytes;
        t->at = mo_gguf_writer_tensor(s->writer, i);
        t->blocks = t->at->bytes / block_bytes;
        t->chunk_blocks = CHUNK_BYTES / block_bytes / MO_NOISE_GRAIN * MO_NOISE_GRAIN;
        t->first_chunk = s->chunks;
        s->chunks += (t->blocks + t->chunk_blocks - 1) / t->chunk_blocks;
    }
    return MO_OK;
}

static mo_status lay_out(synth *s, mo_error *err)
{
    char text[160];
    s->writer = mo_gguf_writer_create(0);
    if (!s->writer) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the header of a model file");
    }
    snprintf(text, sizeof text, "%.140s, random weights", s->shape->title);
    if (s->like) {
        mo_like_keys(s->like, s->layers, s->writer);
        mo_gguf_put_string(s->writer, "general.name", text);
        return lay_out_tensors(s, err);
    }
    mo_shape_keys(s->shape, s->layers, s->writer);
    mo_gguf_put_string(s->writer, "general.name", text);
    snprintf(text, sizeof text, "made by moraine synth %s: seed %llu, router skew %g", s->shape->name,
             (unsigned long long)s->options.seed, (double)s->options.skew);
    mo_gguf_put_string(s->writer, "general.description", text);
    mo_gguf_put_u32(s->writer, "general.quantization_version", 2);
    if (s->type == MO_TYPE_LIMIT &&
        s->experts == MO_TYPE_LIMIT) { /* for display only; tensors have their own types */
        mo_gguf_put_u32(s->writer, "general.file_type", s->shape->mix == MO_MIX_MXFP4 ? 38 : 15);
    }
    if (s->options.vocabulary) {
        const mo_status made = mo_synth_vocabulary(s->writer, s->arena, s->shape->vocabulary, err);
        if (made != MO_OK) {
            return made;
        }
    } else {
        mo_gguf_put_string(s->writer, "tokenizer.ggml.model", "no_vocab");
    }
    return lay_out_tensors(s, err);
}

static void synth_free(synth *s)
{
    for (int i = 0; s->buffers && i < s->threads; i++) {
        free(s->buffers[i]);
    }
    free(s->buffers);
    mo_gguf_writer_destroy(s->writer);
    mo_arena_destroy(s->arena);
}

static mo_status plan(synth *s, const mo_shape *shape, const mo_like *like, const mo_synth_options *options,
                      mo_error *err)
{
    *s = (synth){.shape = shape, .like = like, .options = *options, .failing = ATOMIC_FLAG_INIT};
    mo_status status = check_options(s, err);
    if (status != MO_OK) {
        return status;
    }
    s->arena = mo_arena_create(0);
    status = s->arena ? list_tensors(s, err)
                      : mo_fail(err, MO_ENOMEM, "out of memory for the plan of a model file");
    if (status == MO_OK) {
        status = lay_out(s, err);
    }
    if (status != MO_OK) {
        synth_free(s);
    }
    return status;
}

mo_status mo_synth_plan(const mo_shape *shape, const mo_like *like, const mo_synth_options *options,
                        mo_synth_info *out, mo_error *err)
{
    synth s;
    const mo_status status = plan(&s, shape, like, options, err);
    if (status != MO_OK) {
        return status;
    }
    *out = (mo_synth_info){.title = shape->title, .architecture = shape->architecture, .layers = s.layers};
    out->file_bytes = mo_gguf_writer_file(s.writer)->file_bytes;
    for (int64_t i = 0; i < s.count; i++) {
        out->tensors++;
        out->parameters += s.tensors[i].shape.role == MO_SHAPE_SCALE ? 0 : s.tensors[i].at->values;
    }
    synth_free(&s);
    return MO_OK;
}

/* ---- Generating and writing ---- */

typedef struct chunk {
    const tensor *tensor;
    int64_t first_block, blocks;
    int64_t offset; /* in the file */
    int64_t bytes;
} chunk;

static chunk chunk_at(const synth *s, int64_t index)
{
    int64_t low = 0;
    int64_t high = s->count - 1;
    while (low < high) { /* finds the last tensor that begins at or before the chunk */
        const int64_t middle = (low + high + 1) / 2;
        if (s->tensors[middle].first_chunk <= index) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    const tensor *t = &s->tensors[low];
    const int64_t block_bytes = mo_format_of(t->type)->block_bytes;
    chunk c = {.tensor = t, .first_block = (index - t->first_chunk) * t->chunk_blocks};
    c.blocks = t->blocks - c.first_block < t->chunk_blocks ? t->blocks - c.first_block : t->chunk_blocks;
    c.offset = t->at->offset + c.first_block * block_bytes;
    c.bytes = c.blocks * block_bytes;
    return c;
}

/* Is the tensor left as a hole (experts of a sparse file)? */
static bool is_hole(const synth *s, const tensor *t)
{
    return s->options.holes && (t->shape.role == MO_SHAPE_EXPERT || t->shape.role == MO_SHAPE_EXPERT_DOWN);
}

static void make_chunk(const synth *s, const chunk *c, uint8_t *out)
{
    if (is_hole(s, c->tensor)) {
        memset(out, 0, (size_t)c->bytes);
    } else if (c->tensor->fixed) {
        memcpy(out, c->tensor->fixed + (c->offset - c->tensor->at->offset), (size_t)c->bytes);
    } else {
        mo_noise_fill(&c->tensor->noise, c->first_block, c->blocks, out);
    }
}

/* A task for the pool. The first failure is stored; later chunks are skipped. */
static void make_chunks(void *ctx, int64_t begin, int64_t end, int thread)
{
    synth *s = ctx;
    for (int64_t i = begin; i < end && !atomic_load(&s->failed); i++) {
        const chunk c = chunk_at(s, s->wave + i);
        mo_error err;
        if (is_hole(s, c.tensor)) {
            continue;
        }
        make_chunk(s, &c, s->buffers[thread]);
        if (mo_output_write_at(s->output, s->buffers[thread], (size_t)c.bytes, (uint64_t)c.offset, &err) !=
                MO_OK &&
            !atomic_flag_test_and_set(&s->failing)) {
            s->error = err;
            atomic_store(&s->failed, true);
        }
    }
}

static mo_status report(mo_progress_fn progress, void *user, int64_t done, int64_t total, const char *path,
                        mo_error *err)
{
    if (progress && !progress(user, done, total)) {
        return mo_fail(err, MO_ECANCELLED, "%s: creating the file was cancelled; no file was left", path);
    }
    return MO_OK;
}

static mo_status write_waves(synth *s, mo_pool *pool, const char *path, mo_progress_fn progress, void *user,
                             mo_error *err)
{
    const mo_gguf_layout *file = mo_gguf_writer_file(s->writer);
    const int64_t wave = (int64_t)s->threads * CHUNKS_PER_THREAD;
    mo_status status = mo_output_write_at(s->output, file->header, file->header_bytes, 0, err);
    for (s->wave = 0; status == MO_OK && s->wave < s->chunks; s->wave += wave) {
        const int64_t left = s->chunks - s->wave;
        status = report(progress, user, chunk_at(s, s->wave).offset, file->file_bytes, path, err);
        if (status == MO_OK) {
            mo_pool_run(pool, left < wave ? left : wave, 1, make_chunks, s);
            if (atomic_load(&s->failed)) {
                status = mo_fail(err, s->error.status, "%s", s->error.detail);
            }
        }
    }
    if (status == MO_OK && is_hole(s, &s->tensors[s->count - 1])) { /* the hole is part of the file's size */
        status = mo_output_write_at(s->output, "", 1, (uint64_t)file->file_bytes - 1, err);
    }
    return status;
}

/* Writes to a pipe: bytes in order, including padding. */
static mo_status write_stream(synth *s, const char *path, mo_progress_fn progress, void *user, mo_error *err)
{
    static const uint8_t zeros[4096];
    const mo_gguf_layout *file = mo_gguf_writer_file(s->writer);
    int64_t done = (int64_t)file->header_bytes;
    mo_status status = mo_output_append(s->output, file->header, file->header_bytes, err);
    for (int64_t i = 0; status == MO_OK && i <= s->chunks; i++) {
        const chunk c = i < s->chunks ? chunk_at(s, i) : (chunk){.offset = file->file_bytes};
        status = report(progress, user, done, file->file_bytes, path, err);
        while (status == MO_OK && done < c.offset) {
            const int64_t gap = c.offset - done;
            const size_t bytes = gap < (int64_t)sizeof zeros ? (size_t)gap : sizeof zeros;
            status = mo_output_append(s->output, zeros, bytes, err);
            done += (int64_t)bytes;
        }
        if (status == MO_OK && i < s->chunks) {
            make_chunk(s, &c, s->buffers[0]);
            status = mo_output_append(s->output, s->buffers[0], (size_t)c.bytes, err);
            done += c.bytes;
        }
    }
    return status;
}

static mo_status make_buffers(synth *s, int threads, mo_error *err)
{
    s->threads = threads;
    s->buffers = calloc((size_t)threads, sizeof *s->buffers);
    for (int i = 0; s->buffers && i < threads; i++) {
        s->buffers[i] = malloc(CHUNK_BYTES);
        if (!s->buffers[i]) {
            return mo_fail(err, MO_ENOMEM, "out of memory for %d buffers of 4 MiB; use fewer threads",
                           threads);
        }
    }
    return s->buffers ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for %d threads", threads);
}

static mo_status write_file(synth *s, const char *path, mo_progress_fn progress, void *user, mo_error *err)
{
    const int64_t file_bytes = mo_gguf_writer_file(s->writer)->file_bytes;
    mo_pool *pool = NULL;
    mo_status status = mo_pool_create(s->options.threads, &pool, err);
    if (status == MO_OK) {
        status = make_buffers(s, mo_pool_threads(pool), err);
    }
    if (status == MO_OK) {
        status = mo_output_create(path, s->options.holes ? 0 : (uint64_t)file_bytes, &s->output, err);
    }
    if (status == MO_OK) {
        status = mo_output_seekable(s->output) ? write_waves(s, pool, path, progress, user, err)
                                               : write_stream(s, path, progress, user, err);
        if (status == MO_OK) {
            status = mo_output_commit(s->output, err);
        } else {
            mo_output_abort(s->output);
        }
    }
    mo_pool_destroy(pool);
    return status == MO_OK && progress ? (progress(user, file_bytes, file_bytes), MO_OK) : status;
}

mo_status mo_synth_write(const mo_shape *shape, const mo_like *like, const char *path,
                         const mo_synth_options *options, mo_progress_fn progress, void *user, mo_error *err)
{
    struct stat there;
    if (!options->overwrite && stat(path, &there) == 0 && S_ISREG(there.st_mode)) {
        return mo_fail(err, MO_EINVAL, "%s already exists; choose another path, or set `overwrite`", path);
    }
    synth s;
    mo_status status = plan(&s, shape, like, options, err);
    if (status == MO_OK) {
        status = write_file(&s, path, progress, user, err);
        synth_free(&s);
    }
    return status;
}

mo_status mo_synth_write_header(const mo_shape *shape, const mo_synth_options *options, int fd, mo_error *err)
{
    synth s;
    mo_status status = plan(&s, shape, NULL, options, err);
    if (status != MO_OK) {
        return status;
    }
    const mo_gguf_layout *file = mo_gguf_writer_file(s.writer);
    if (pwrite(fd, file->header, file->header_bytes, 0) != (ssize_t)file->header_bytes ||
        ftruncate(fd, (off_t)file->file_bytes) != 0) {
        status = mo_fail(err, MO_EIO, "%s: cannot write a header: %s", shape->name, strerror(errno));
    }
    synth_free(&s);
    return status;
}
