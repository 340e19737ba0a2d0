/* The work is a list of pieces of one tensor, some hundred thousand values each. The pool's threads read and
   encode a wave of pieces, each into its own buffer; then the calling thread appends them in order, reports
   progress and may cancel. Blocks do not cross rows and pieces do not cut blocks, so rows do not matter to
   pieces. */
#include "synth/requantize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/input.h"
#include "base/log.h"
#include "base/output.h"
#include "base/pool.h"
#include "base/status.h"
#include "gguf/summary.h"
#include "gguf/write.h"
#include "numeric/block.h"
#include "numeric/quantize/quantize.h"
#include "synth/shapes.h"

enum {
    PIECE_VALUES = 1 << 17, /* a multiple of every block size */
    PIECE_BYTES = 8 * PIECE_VALUES,
    PIECES_PER_THREAD = 4,
};
_Static_assert(PIECE_VALUES % 256 == 0, "the largest block is 256 values");

typedef struct target {
    const mo_gguf_tensor *from; /* owned by the source */
    const mo_gguf_tensor *to;   /* owned by the writer */
    mo_tensor_class class;
} target;

typedef struct piece {
    const target *target;
    int64_t first, values; /* of the tensor */
    uint8_t *bytes;        /* PIECE_BYTES */
    int64_t size;          /* bytes to write */
    double error, power;   /* sums of squares of the errors and of the values */
    mo_error failure;      /* status MO_OK: none */
} piece;

typedef struct scratch {
    uint8_t source[4 * PIECE_VALUES]; /* large enough for every convertible format */
    float before[PIECE_VALUES], after[PIECE_VALUES];
} scratch;

typedef struct requantize {
    const mo_gguf *g;
    const mo_format *formats[MO_TENSOR_CLASSES]; /* NULL: unchanged */
    mo_gguf_writer *writer;
    target *targets;
    int64_t count;

    mo_pool *pool;
    int threads;
    scratch **scratch; /* one for each thread */
    piece *pieces;     /* of the current wave */
    int piece_capacity, piece_count;
    mo_input **inputs; /* one for each part */
    mo_output *output;
    float output_factor; /* applied to the output matrix, because the new file cannot have its scale tensor */
    int64_t written;
    double error[MO_TENSOR_CLASSES], power[MO_TENSOR_CLASSES];

    /* Start of the next wave. */
    int64_t tensor, value;
} requantize;

/* ---- Choosing formats ---- */

static bool ends(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

mo_tensor_class mo_requantize_class(const mo_gguf_tensor *t)
{
    int layer;
    const bool matrix = t->dims >= 2 && t->values > t->size[0] && t->format->kind != MO_KIND_INTEGER;
    if (!matrix || !ends(t->name, ".weight") || strstr(t->name, "ffn_gate_inp") ||
        strstr(t->name, "ssm_conv1d")) {
        return MO_CLASS_KEPT;
    }
    switch (mo_tensor_role_of(t->name, 0, &layer)) {
    case MO_ROLE_EXPERTS:
    case MO_ROLE_EXPERT: return MO_CLASS_EXPERTS;
    case MO_ROLE_OUTPUT: return MO_CLASS_OUTPUT;
    case MO_ROLE_EMBEDDING: return MO_CLASS_EMBEDDING;
    default: return MO_CLASS_REST;
    }
}

static const char *all_formats(char *text, size_t size)
{
    text[0] = '\0';
    for (uint32_t type = 0; type < MO_TYPE_LIMIT; type++) {
        const mo_format *f = mo_format_of(type);
        const size_t used = strlen(text);
        if (f && f->kind != MO_KIND_INTEGER && mo_format_is_written(f->type)) {
            snprintf(text + used, size - used, "%s%s", used ? ", " : "", f->name);
        }
    }
    return text;
}

static mo_status format_named(const char *member, const char *name, const mo_format **out, mo_error *err)
{
    char names[256];
    *out = name ? mo_format_named(name) : NULL;
    if (name && (!*out || (*out)->kind == MO_KIND_INTEGER)) {
        return mo_fail(err, MO_EINVAL, "%s \"%.40s\" is not a weight format; choose one of %s", member, name,
                       all_formats(names, sizeof names));
    }
    if (name && !mo_format_is_written((*out)->type)) {
        return mo_fail(err, MO_EINVAL, "%s can be read but not written; choose one of %s", (*out)->name,
                       all_formats(names, sizeof names));
    }
    return MO_OK;
}

static mo_status choose_formats(requantize *r, const mo_quantize_options *o, mo_error *err)
{
    const char *const names[] = {[MO_CLASS_EXPERTS] = o->experts,
                                 [MO_CLASS_REST] = o->rest,
                                 [MO_CLASS_OUTPUT] = o->output ? o->output : o->rest,
                                 [MO_CLASS_EMBEDDING] = o->embedding ? o->embedding : o->rest};
    static const char *const members[] = {[MO_CLASS_EXPERTS] = "`experts`",
                                          [MO_CLASS_REST] = "`rest`",
                                          [MO_CLASS_OUTPUT] = "`output`",
                                          [MO_CLASS_EMBEDDING] = "`embedding`"};
    bool any = false;
    if (o->threads < 0) {
        return mo_fail(err, MO_EINVAL, "`threads` must be 1 or more (or 0 for one per core), not %d",
                       o->threads);
    }
    for (int c = 0; c < MO_CLASS_KEPT; c++) {
        const mo_status status = format_named(members[c], names[c], &r->formats[c], err);
        if (status != MO_OK) {
            return status;
        }
        any |= r->formats[c] != NULL;
    }
    return any ? MO_OK : mo_fail(err, MO_EINVAL, "no format was given; there is nothing to convert");
}

/* A format given by name must apply to some tensor. */
static mo_status check_use(const requantize *r, const mo_quantize_options *o, mo_error *err)
{
    bool there[MO_TENSOR_CLASSES] = {false};
    for (int64_t i = 0; i < mo_gguf_tensor_count(r->g); i++) {
        there[mo_requantize_class(mo_gguf_tensor_at(r->g, i))] = true;
    }
    if (o->experts && !there[MO_CLASS_EXPERTS]) {
        return mo_fail(err, MO_EINVAL, "%s has no routed experts to convert", mo_gguf_part_path(r->g, 0));
    }
    if (o->output && !there[MO_CLASS_OUTPUT]) {
        return mo_fail(err, MO_EINVAL,
                       "%s has no output matrix of its own: it shares the "
                       "embedding, so choose the format of the embedding",
                       mo_gguf_part_path(r->g, 0));
    }
    return MO_OK;
}

/* The format requested for the class, or the one that quantizers use if rows do not fit its blocks. */
static const mo_format *format_for(const requantize *r, const mo_gguf_tensor *t)
{
    const mo_format *f = r->formats[mo_requantize_class(t)];
    return f ? mo_format_of(mo_shape_fallback(f->type, t->size[0])) : t->format;
}

/* Logs a line for each format that did not fit: how many tensors got which one, and the first tensor. */
static void tell_fallbacks(const requantize *r)
{
    for (uint32_t a = 0; a < MO_TYPE_LIMIT; a++) {
        int64_t counts[MO_TYPE_LIMIT] = {0};
        const char *first[MO_TYPE_LIMIT] = {NULL};
        for (int64_t i = 0; i < r->count; i++) {
            const mo_gguf_tensor *t = r->targets[i].from;
            const mo_format *asked = r->formats[r->targets[i].class], *got = format_for(r, t);
            if (asked && asked->type == a && got != asked && counts[got->type]++ == 0) {
                first[got->type] = t->name;
            }
        }
        for (uint32_t b = 0; b < MO_TYPE_LIMIT; b++) {
            if (counts[b]) {
                mo_log(
                    MO_LOG_WARN, "quantize",
                    "%lld tensor%s (%s%s) got %s: the rows are not a multiple of the %d values of a %s block",
                    (long long)counts[b], counts[b] == 1 ? "" : "s", first[b],
                    counts[b] == 1 ? "" : " and others", mo_format_of(b)->name, mo_format_of(a)->block_values,
                    mo_format_of(a)->name);
            }
        }
    }
}

/* ---- The new header ---- */

/* GGUF's number for "mostly this format", for display. */
static uint32_t file_type_of(mo_type type)
{
    static const uint8_t numbers[MO_TYPE_LIMIT] = {
        [MO_F32] = 0,    [MO_F16] = 1,    [MO_Q4_0] = 2,     [MO_Q4_1] = 3,    [MO_Q8_0] = 7,
        [MO_Q5_0] = 8,   [MO_Q5_1] = 9,   [MO_Q2_K] = 10,    [MO_Q3_K] = 12,   [MO_Q4_K] = 15,
        [MO_Q5_K] = 17,  [MO_Q6_K] = 18,  [MO_IQ4_NL] = 25,  [MO_IQ4_XS] = 30, [MO_BF16] = 32,
        [MO_MXFP4] = 38, [MO_NVFP4] = 39, [MO_IQ2_XXS] = 19, [MO_IQ2_XS] = 20, [MO_IQ3_XXS] = 23,
        [MO_IQ1_S] = 24, [MO_IQ3_S] = 26, [MO_IQ2_S] = 29,   [MO_IQ1_M] = 31,  [MO_TQ1_0] = 36,
        [MO_TQ2_0] = 37, [MO_Q1_0] = 40,  [MO_Q2_0] = 41,
    };
    return numbers[type];
}

static uint32_t main_file_type(const requantize *r)
{
    int64_t values[MO_TYPE_LIMIT] = {0};
    mo_type most = MO_F32;
    for (int64_t i = 0; i < r->count; i++) {
        const mo_format *own = r->targets[i].from->format;
        const mo_format *f = r->formats[r->targets[i].class];
        values[(f ? f : own)->type] += r->targets[i].from->values;
    }
    for (uint32_t type = 0; type < MO_TYPE_LIMIT; type++) {
        most = values[type] > values[most] ? (mo_type)type : most;
    }
    return file_type_of(most);
}

/* Keys that describe the file, not the model: the writer sets them. */
static bool is_container_key(const char *key)
{
    return strncmp(key, "split.", 6) == 0 || strcmp(key, "general.alignment") == 0;
}

static void put_metadata(requantize *r)
{
    const char *const type_key = "general.file_type", *const version_key = "general.quantization_version";
    mo_metadata_info info;
    for (int64_t i = 0; i < mo_gguf_entry_count(r->g); i++) {
        const mo_gguf_entry *entry = mo_gguf_entry_at(r->g, i);
        mo_gguf_entry_info(entry, &info);
        if (strcmp(info.key, type_key) == 0) {
            mo_gguf_put_u32(r->writer, type_key, main_file_type(r));
        } else if (!is_container_key(info.key)) {
            mo_gguf_put_entry(r->writer, r->g, entry);
        }
    }
    if (!mo_gguf_find(r->g, type_key)) {
        mo_gguf_put_u32(r->writer, type_key, main_file_type(r));
    }
    if (!mo_gguf_find(r->g, version_key)) {
        mo_gguf_put_u32(r->writer, version_key, 2); /* the block layouts in use today */
    }
}

/* The scale tensor of an output matrix that gets another format. NULL: none. Only NVFP4 uses it
   (model/family.c), so the new file omits it. */
static const mo_gguf_tensor *lost_scale(const requantize *r)
{
    const mo_gguf_tensor *output = mo_gguf_tensor_find(r->g, "output.weight");
    const mo_gguf_tensor *scale = mo_gguf_tensor_find(r->g, "output.scale");
    return output && scale && scale->values == 1 && scale->format->type == MO_F32 &&
                   format_for(r, output) != output->format
               ? scale
               : NULL;
}

static mo_status list_targets(requantize *r, mo_error *err)
{
    const int64_t all = mo_gguf_tensor_count(r->g);
    const mo_gguf_tensor *lost = lost_scale(r);
    r->targets = calloc((size_t)(all ? all : 1), sizeof *r->targets);
    if (!r->targets) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the plan of a model file");
    }
    for (int64_t i = 0; i < all; i++) {
        target *t = &r->targets[r->count];
        t->from = mo_gguf_tensor_at(r->g, i);
        if (t->from == lost) {
            continue;
        }
        r->count++;
        t->class = mo_requantize_class(t->from);
        const mo_format *format = format_for(r, t->from);
        mo_gguf_put_tensor(r->writer, t->from->name, format->type, t->from->dims, t->from->size);
    }
    return MO_OK;
}

static mo_status plan(requantize *r, const mo_quantize_options *options, mo_error *err)
{
    uint32_t alignment = 0;
    mo_status status = choose_formats(r, options, err);
    if (status == MO_OK) {
        status = check_use(r, options, err);
    }
    if (status == MO_OK) {
        status = mo_gguf_u32_or(r->g, "general.alignment", 0, &alignment, err);
    }
    if (status == MO_OK) {
        r->writer = mo_gguf_writer_create(alignment);
        status = list_targets(r, err);
    }
    if (status != MO_OK) {
        return status;
    }
    tell_fallbacks(r);
    put_metadata(r);
    status = mo_gguf_writer_layout(r->writer, err);
    for (int64_t i = 0; i < r->count && status == MO_OK; i++) {
        r->targets[i].to = mo_gguf_writer_tensor(r->writer, i);
    }
    return status;
}

/* ---- One piece ---- */

static bool is_copied(const target *t)
{
    return t->from->format == t->to->format;
}

static mo_status fail_value(const requantize *r, const piece *p, const float *x, mo_error *err)
{
    const mo_gguf_tensor *t = p->target->from;
    int64_t i = 0;
    while (i < p->values - 1 && isfinite(x[i])) {
        i++;
    }
    return mo_fail(err, MO_EFORMAT,
                   "%s: tensor %s has the value %g in row %lld, column %lld, which "
                   "no format can hold; the model is damaged, download or recreate it",
                   mo_gguf_part_path(r->g, t->part), t->name, (double)x[i],
                   (long long)((p->first + i) / t->size[0]), (long long)((p->first + i) % t->size[0]));
}

static mo_status make_piece(const requantize *r, piece *p, scratch *s, mo_error *err)
{
    const mo_gguf_tensor *from = p->target->from, *to = p->target->to;
    const int64_t offset = from->offset + mo_format_row_bytes(from->format, p->first);
    const size_t bytes = (size_t)mo_format_row_bytes(from->format, p->values);
    const bool copied = is_copied(p->target);
    p->size = mo_format_row_bytes(to->format, p->values);
    p->error = p->power = 0.0;
    mo_status status =
        mo_input_read_at(r->inputs[from->part], copied ? p->bytes : s->source, bytes, (uint64_t)offset, err);
    if (status != MO_OK || copied) {
        return status;
    }
    mo_row_dequantize(from->format->type, s->source, p->values, s->before);
    for (int64_t i = 0; p->target->class == MO_CLASS_OUTPUT && i < p->values; i++) {
        s->before[i] *= r->output_factor;
    }
    if (mo_row_quantize(to->format->type, s->before, p->values, p->bytes, err) != MO_OK) {
        return fail_value(r, p, s->before, err);
    }
    mo_row_dequantize(to->format->type, p->bytes, p->values, s->after);
    for (int64_t i = 0; i < p->values; i++) {
        const double difference = (double)s->before[i] - (double)s->after[i];
        p->error += difference * difference;
        p->power += (double)s->before[i] * (double)s->before[i];
    }
    return MO_OK;
}

/* A task for the pool. */
static void make_pieces(void *ctx, int64_t begin, int64_t end, int thread)
{
    requantize *r = ctx;
    for (int64_t i = begin; i < end; i++) {
        piece *p = &r->pieces[i];
        p->failure.status = MO_OK;
        make_piece(r, p, r->scratch[thread], &p->failure);
    }
}

/* ---- Writing ---- */

static void next_wave(requantize *r)
{
    r->piece_count = 0;
    while (r->piece_count < r->piece_capacity && r->tensor < r->count) {
        const target *t = &r->targets[r->tensor];
        const int64_t left = t->from->values - r->value;
        piece *p = &r->pieces[r->piece_count++];
        p->target = t;
        p->first = r->value;
        p->values = left < PIECE_VALUES ? left : PIECE_VALUES;
        r->value += p->values;
        if (p->values == left) {
            r->tensor++;
            r->value = 0;
        }
    }
}

static mo_status pad_to(requantize *r, int64_t offset, mo_error *err)
{
    static const uint8_t zeros[4096];
    mo_status status = MO_OK;
    while (status == MO_OK && r->written < offset) {
        const int64_t gap = offset - r->written;
        const size_t bytes = gap < (int64_t)sizeof zeros ? (size_t)gap : sizeof zeros;
        status = mo_output_append(r->output, zeros, bytes, err);
        r->written += (int64_t)bytes;
    }
    return status;
}

/* In order, so that the reported failure and the sums do not depend on threads. */
static mo_status append_wave(requantize *r, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < r->piece_count && status == MO_OK; i++) {
        const piece *p = &r->pieces[i];
        const mo_gguf_tensor *to = p->target->to;
        if (p->failure.status != MO_OK) {
            return mo_fail(err, p->failure.status, "%s", p->failure.detail);
        }
        status = pad_to(r, to->offset + mo_format_row_bytes(to->format, p->first), err);
        if (status == MO_OK) {
            status = mo_output_append(r->output, p->bytes, (size_t)p->size, err);
            r->written += p->size;
            r->error[p->target->class] += p->error;
            r->power[p->target->class] += p->power;
        }
    }
    return status;
}

static mo_status write_all(requantize *r, const char *path, mo_progress_fn progress, void *user,
                           mo_error *err)
{
    const mo_gguf_layout *file = mo_gguf_writer_file(r->writer);
    mo_status status = mo_output_append(r->output, file->header, file->header_bytes, err);
    r->written = (int64_t)file->header_bytes;
    for (next_wave(r); status == MO_OK && r->piece_count; next_wave(r)) {
        if (progress && !progress(user, r->written, file->file_bytes)) {
            return mo_fail(err, MO_ECANCELLED, "%s: conversion was cancelled; no file was left", path);
        }
        mo_pool_run(r->pool, r->piece_count, 1, make_pieces, r);
        status = append_wave(r, err);
    }
    if (status == MO_OK) {
        status = pad_to(r, file->file_bytes, err);
    }
    if (status == MO_OK && progress) {
        progress(user, file->file_bytes, file->file_bytes);
    }
    return status;
}

static mo_status make_buffers(requantize *r, mo_error *err)
{
    bool fine;
    r->threads = mo_pool_threads(r->pool);
    r->piece_capacity = r->threads * PIECES_PER_THREAD;
    r->scratch = calloc((size_t)r->threads, sizeof(*r->scratch)); /* NOLINT(bugprone-sizeof-expression) */
    r->pieces = calloc((size_t)r->piece_capacity, sizeof *r->pieces);
    fine = r->scratch && r->pieces;
    for (int i = 0; fine && i < r->threads; i++) {
        r->scratch[i] = malloc(sizeof *r->scratch[i]);
        fine = r->scratch[i] != NULL;
    }
    for (int i = 0; fine && i < r->piece_capacity; i++) {
        r->pieces[i].bytes = malloc(PIECE_BYTES);
        fine = r->pieces[i].bytes != NULL;
    }
    return fine ? MO_OK
                : mo_fail(err, MO_ENOMEM, "out of memory for the buffers of %d threads; use fewer",
                          r->threads);
}

static mo_status open_inputs(requantize *r, mo_error *err)
{
    const int parts = mo_gguf_parts(r->g);
    mo_status status = MO_OK;
    r->inputs = calloc((size_t)parts, sizeof(mo_input *));
    if (!r->inputs) {
        return mo_fail(err, MO_ENOMEM, "out of memory while opening %d files", parts);
    }
    for (int p = 0; p < parts && status == MO_OK; p++) {
        status = mo_input_open(mo_gguf_part_path(r->g, p), &r->inputs[p], err);
    }
    return status;
}

/* If an output matrix in NVFP4 is converted, its scale is multiplied into the values. */
static mo_status read_output_factor(requantize *r, mo_error *err)
{
    const mo_gguf_tensor *scale = lost_scale(r);
    r->output_factor = 1.0f;
    if (!scale || mo_gguf_tensor_find(r->g, "output.weight")->format->type != MO_NVFP4) {
        return MO_OK;
    }
    return mo_input_read_at(r->inputs[scale->part], &r->output_factor, sizeof r->output_factor,
                            (uint64_t)scale->offset, err);
}

/* Refuses to overwrite an existing file unless requested, and always the source. */
static mo_status check_path(const requantize *r, const char *path, bool overwrite, mo_error *err)
{
    struct stat there, part;
    if (stat(path, &there) != 0 || !S_ISREG(there.st_mode)) {
        return MO_OK;
    }
    for (int p = 0; p < mo_gguf_parts(r->g); p++) {
        if (stat(mo_gguf_part_path(r->g, p), &part) == 0 && part.st_dev == there.st_dev &&
            part.st_ino == there.st_ino) {
            return mo_fail(err, MO_EINVAL, "%s is the input model; choose another path", path);
        }
    }
    return overwrite
               ? MO_OK
               : mo_fail(err, MO_EINVAL, "%s already exists; choose another path, or set `overwrite`", path);
}

static mo_status convert(requantize *r, const char *path, int threads, mo_progress_fn progress, void *user,
                         mo_error *err)
{
    mo_status status = mo_pool_create(threads, &r->pool, err);
    if (status == MO_OK) {
        status = make_buffers(r, err);
    }
    if (status == MO_OK) {
        status = open_inputs(r, err);
    }
    if (status == MO_OK) {
        status = read_output_factor(r, err);
    }
    if (status == MO_OK) {
        const int64_t bytes = mo_gguf_writer_file(r->writer)->file_bytes;
        status = mo_output_create(path, (uint64_t)bytes, &r->output, err);
    }
    if (status != MO_OK) {
        return status;
    }
    status = write_all(r, path, progress, user, err);
    if (status == MO_OK) {
        return mo_output_commit(r->output, err);
    }
    mo_output_abort(r->output);
    return status;
}

static void fill_report(const requantize *r, mo_quantize_report *out)
{
    *out = (mo_quantize_report){.file_bytes_after = mo_gguf_writer_file(r->writer)->file_bytes};
    for (int p = 0; p < mo_gguf_parts(r->g); p++) {
        out->file_bytes_before += mo_gguf_part_bytes(r->g, p);
    }
    for (int64_t i = 0; i < r->count; i++) {
        const target *t = &r->targets[i];
        mo_quantize_class *c = &out->classes[t->class];
        c->tensors++;
        c->values += t->from->values;
        c->bytes_before += t->from->bytes;
        c->bytes_after += t->to->bytes;
        c->converted += !is_copied(t);
    }
    for (int c = 0; c < MO_TENSOR_CLASSES; c++) {
        out->classes[c].error = r->power[c] > 0.0 ? sqrt(r->error[c] / r->power[c]) : 0.0;
    }
}

static void requantize_free(requantize *r)
{
    for (int i = 0; r->scratch && i < r->threads; i++) {
        free(r->scratch[i]);
    }
    for (int i = 0; r->pieces && i < r->piece_capacity; i++) {
        free(r->pieces[i].bytes);
    }
    for (int p = 0; r->inputs && p < mo_gguf_parts(r->g); p++) {
        mo_input_close(r->inputs[p]);
    }
    free(r->scratch);
    free(r->pieces);
    free((void *)r->inputs);
    free(r->targets);
    mo_pool_destroy(r->pool);
    mo_gguf_writer_destroy(r->writer);
}

mo_status mo_requantize(const mo_gguf *g, const char *path, const mo_quantize_options *options,
                        mo_progress_fn progress, void *user, mo_quantize_report *report, mo_error *err)
{
    requantize r = {.g = g};
    mo_status status = plan(&r, options, err);
    if (status == MO_OK) {
        status = check_path(&r, path, options->overwrite, err);
    }
    if (status == MO_OK) {
        status = convert(&r, path, options->threads, progress, user, err);
    }
    if (status == MO_OK) {
        fill_report(&r, report);
    }
    requantize_free(&r);
    return status;
}
