#include "model/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/host.h"
#include "base/input.h"
#include "base/log.h"
#include "base/status.h"
#include "numeric/block.h"

#define SUFFIX_A   ".lora_a"
#define SUFFIX_B   ".lora_b"
#define LINE_BYTES 64

/* ---- Queries ----------------------------------------------------------------------------------- */

static int64_t slot_of(const mo_lora *l, const mo_linear *linear)
{
    const uint64_t mixed = (uint64_t)(uintptr_t)linear * 0x9e3779b97f4a7c15u;
    return (int64_t)((mixed >> 32) & (uint64_t)(l->table_size - 1));
}

const mo_lora_pair *mo_lora_find(const mo_lora *lora, const mo_linear *linear)
{
    for (int64_t at = slot_of(lora, linear); lora->table[at] >= 0; at = (at + 1) & (lora->table_size - 1)) {
        if (lora->pairs[lora->table[at]].linear == linear) {
            return &lora->pairs[lora->table[at]];
        }
    }
    return NULL;
}

float mo_lora_factor(const mo_lora *lora, const mo_lora_pair *pair, float scale)
{
    const float f = lora->alpha != 0.0f ? scale * lora->alpha / (float)pair->a.w.rows : scale;
    return pair->linear->factor != 0.0f ? f * pair->linear->factor : f;
}

/* ---- Reading ----------------------------------------------------------------------------------- */

typedef struct reader {
    const mo_checkpoint *model;
    const char *path;
    mo_gguf *gguf;
    mo_input *input;
    mo_lora *lora;
    int64_t pairs; /* allocated pairs */
    float *row;    /* one row of any tensor; NULL: not reading */
} reader;

/* A pair of tensors in the file, and the model tensor they change. */
typedef struct tensors {
    const mo_gguf_tensor *a, *b, *of;
} tensors;

static mo_status no_memory(const reader *r, mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "%s: out of memory for the adapter; free some and try again", r->path);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static mo_status check_file(const reader *r, mo_error *err)
{
    const char *kind, *type, *own, *models;
    mo_status status = mo_gguf_string_or(r->gguf, "general.type", "", &kind, err);
    if (status == MO_OK) {
        status = mo_gguf_string_or(r->gguf, "adapter.type", "", &type, err);
    }
    if (status == MO_OK) {
        status = mo_gguf_string_or(r->gguf, "general.architecture", "", &own, err);
    }
    if (status == MO_OK) {
        status = mo_gguf_string_or(mo_checkpoint_gguf(r->model), "general.architecture", "", &models, err);
    }
    if (status != MO_OK) {
        return status;
    }
    if (strcmp(kind, "adapter") != 0 || strcmp(type, "lora") != 0) {
        return mo_fail(err, MO_EINVAL,
                       "%s is not a LoRA adapter: its general.type is \"%.40s\" and its adapter.type "
                       "\"%.40s\"; convert the adapter to GGUF, or use the file as a model",
                       r->path, kind, type);
    }
    if (!own[0]) {
        return mo_fail(err, MO_EFORMAT,
                       "%s does not specify its architecture (general.architecture); recreate it", r->path);
    }
    if (strcmp(own, models) != 0) {
        return mo_fail(err, MO_EINVAL, "%s is an adapter for the architecture %.60s, but this model is %.60s",
                       r->path, own, models);
    }
    if (mo_gguf_find(r->gguf, "adapter.alora.invocation_tokens")) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "%s is an activated adapter (aLoRA), which starts in "
                       "the middle of a text; only plain LoRA is supported",
                       r->path);
    }
    return MO_OK;
}

static mo_status check_tensor_name(const reader *r, const mo_gguf_tensor *t, mo_error *err)
{
    if (ends_with(t->name, SUFFIX_A) || ends_with(t->name, SUFFIX_B)) {
        return MO_OK;
    }
    if (ends_with(t->name, "_norm.weight")) {
        if (r->row) { /* once */
            return MO_OK;
        }
        mo_log(MO_LOG_WARN, "adapter", "%s: tensor %s changes a norm, which is ignored", r->path, t->name);
        return MO_OK;
    }
    return mo_fail(err, MO_EUNSUPPORTED, "%s: tensor %s is not part of a LoRA pair (%s, %s)", r->path,
                   t->name, SUFFIX_A, SUFFIX_B);
}

/* Finds the partner of "blk.0.attn_q.weight.lora_a", and the tensor they change. */
static mo_status find_tensors(const reader *r, const mo_gguf_tensor *a, tensors *out, mo_error *err)
{
    char name[MO_GGUF_NAME + 8], of[MO_GGUF_NAME];
    snprintf(of, sizeof of, "%.*s", (int)(strlen(a->name) - strlen(SUFFIX_A)), a->name);
    snprintf(name, sizeof name, "%s%s", of, SUFFIX_B);
    *out = (tensors){.a = a,
                     .b = mo_gguf_tensor_find(r->gguf, name),
                     .of = mo_gguf_tensor_find(mo_checkpoint_gguf(r->model), of)};
    if (!out->b) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: tensor %s has no counterpart %s; the file is incomplete, recreate it", r->path,
                       a->name, name);
    }
    if (!out->of) {
        return mo_fail(err, MO_EINVAL,
                       "%s changes tensor %s, which the model does "
                       "not have; the adapter belongs to another model",
                       r->path, of);
    }
    return MO_OK;
}

static mo_status check_shapes(const reader *r, const tensors *t, mo_error *err)
{
    const int64_t *m = t->of->size, *a = t->a->size, *b = t->b->size;
    const int64_t rank = a[1];
    if (m[3] != 1 || a[3] != 1 || b[3] != 1) {
        return mo_fail(err, MO_EFORMAT, "%s: the pair for %s has four dimensions; recreate the file", r->path,
                       t->of->name);
    }
    if (a[0] != m[0] || b[1] != m[1]) {
        return mo_fail(err, MO_EINVAL,
                       "%s: the pair for %s is for a matrix of %lld x %lld values, but "
                       "the model's has %lld x %lld; the adapter belongs to another model",
                       r->path, t->of->name, (long long)a[0], (long long)b[1], (long long)m[0],
                       (long long)m[1]);
    }
    if (a[2] != m[2] || b[2] != m[2]) {
        return mo_fail(err, MO_EINVAL,
                       "%s: the pair for %s is for %lld and %lld experts, but "
                       "the model has %lld; the adapter belongs to another model",
                       r->path, t->of->name, (long long)a[2], (long long)b[2], (long long)m[2]);
    }
    if (b[0] != rank || rank < 1 || rank > MO_LORA_RANK_MAX) {
        return mo_fail(
            err, MO_EFORMAT,
            "%s: %s and its counterpart have ranks %lld and %lld; they must have the same rank, 1 to %d",
            r->path, t->a->name, (long long)rank, (long long)b[0], (int)MO_LORA_RANK_MAX);
    }
    if (t->a->format->kind == MO_KIND_INTEGER || t->b->format->kind == MO_KIND_INTEGER) {
        return mo_fail(err, MO_EFORMAT, "%s: %s holds integers, which are not supported", r->path,
                       t->a->name);
    }
    return MO_OK;
}

static bool is_float(mo_type type)
{
    return type == MO_F32 || type == MO_F16 || type == MO_BF16;
}

/* ---- Memory ------------------------------------------------------------------------------------ */

/* A keeps its format if products read it as floats; everything else becomes F32, which changes no value. */
static mo_type type_of(const mo_gguf_tensor *a)
{
    return is_float(a->format->type) ? a->format->type : MO_F32;
}

/* The next piece of the region; NULL: none, for a description or if nothing is kept. */
static uint8_t *take(reader *r, int64_t *used, int64_t bytes)
{
    uint8_t *at = r->lora->region ? r->lora->region + *used : NULL;
    *used += (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    return at;
}

/* Reads row `index` of an adapter tensor into r->row, and (raw) unconverted. */
static mo_status read_row(reader *r, const mo_gguf_tensor *t, int64_t index, uint8_t *raw, mo_error *err)
{
    const int64_t bytes = mo_format_row_bytes(t->format, t->size[0]);
    const mo_status status =
        mo_input_read_at(r->input, raw, (size_t)bytes, (uint64_t)(t->offset + index * bytes), err);
    if (status != MO_OK) {
        return status;
    }
    mo_row_dequantize(t->format->type, raw, t->size[0], r->row);
    for (int64_t i = 0; i < t->size[0]; i++) {
        if (!isfinite(r->row[i])) {
            return mo_fail(
                err, MO_EFORMAT,
                "%s: tensor %s holds numbers that are not finite; the file is damaged, download it again",
                r->path, t->name);
        }
    }
    r->lora->identity = mo_hash(r->lora->identity, r->row, sizeof(float) * (size_t)t->size[0]);
    return MO_OK;
}

/* The local experts of a tensor: `count` from `first` on. */
typedef struct part {
    int64_t first, count;
} part;

/* Reads their A consecutively. to NULL: reads and discards. */
static mo_status read_a(reader *r, const mo_gguf_tensor *t, part p, uint8_t *to, uint8_t *raw, mo_error *err)
{
    const int64_t rows = t->size[1] * p.count;
    const bool as_is = is_float(t->format->type);
    const int64_t bytes = as_is ? mo_format_row_bytes(t->format, t->size[0]) : 4 * t->size[0];
    mo_status status = MO_OK;
    for (int64_t i = 0; i < rows && status == MO_OK; i++) {
        status = read_row(r, t, p.first * t->size[1] + i, raw, err);
        if (to) {
            memcpy(to + i * bytes, as_is ? raw : (const uint8_t *)r->row, (size_t)bytes);
        }
    }
    return status;
}

/* Reads the rows of B for a binding, as consecutive columns; likewise. */
static mo_status read_b(reader *r, const mo_gguf_tensor *t, part p, const mo_binding *w, int64_t first,
                        float *to, uint8_t *raw, mo_error *err)
{
    const int64_t rank = t->size[0], rows = w->matrix->rows;
    mo_status status = MO_OK;
    for (int64_t e = 0; e < p.count; e++) {
        for (int64_t i = 0; i < rows && status == MO_OK; i++) {
            const int64_t row = w->rows ? w->rows[i] : first + i;
            status = read_row(r, t, (p.first + e) * t->size[1] + row, raw, err);
            for (int64_t j = 0; to && j < rank && status == MO_OK; j++) {
                to[(e * rank + j) * rows + i] = r->row[j];
            }
        }
    }
    return status;
}

/* ---- Pairs ------------------------------------------------------------------------------------- */

/* The reason why a binding's matrix cannot be changed; NULL: it can. */
static const char *cannot_change(const mo_binding *w)
{
    if (w->place == MO_PLACE_TABLE) {
        return "the token embedding";
    }
    const bool stack = !w->moe && w->tensor->size[2] > 1; /* groups of heads may share one matrix */
    return w->turns || stack ? "a matrix that attention splits by heads" : NULL;
}

static int32_t layer_of(const reader *r, const mo_binding *w)
{
    const mo_model_spec *f = mo_checkpoint_spec(r->model);
    const uintptr_t from = (uintptr_t)f->layers, at = (uintptr_t)(w->moe ? (const void *)w->moe : w->matrix);
    const uintptr_t layer = (at - from) / sizeof(mo_layer);
    return at >= from && layer < (uintptr_t)f->layer_count ? (int32_t)layer : -1;
}

/* The expert's index, if every expert has its own tensors. */
static int32_t expert_of(const mo_binding *w, int64_t i)
{
    return w->moe ? (int32_t)(((const uint8_t *)mo_binding_matrix(w, i) - (const uint8_t *)w->moe->expert) /
                              (int64_t)sizeof(mo_expert))
                  : -1;
}

static mo_status add_pairs(reader *r, const tensors *t, const mo_binding *w, int64_t *used, mo_error *err)
{
    const int64_t rank = t->a->size[1], cols = t->a->size[0], rows = w->matrix->rows, before = *used;
    const mo_type type = type_of(t->a);
    const int64_t a_bytes = rank * mo_format_row_bytes(mo_format_of(type), cols);
    /* The binding has a part of a rank's experts: it begins inside the tensor. */
    const part p = w->moe && t->a->size[2] > 1 ? (part){expert_of(w, 0), w->count} : (part){0, t->a->size[2]};
    uint8_t *a = take(r, used, p.count * a_bytes);
    float *b = (float *)take(r, used, p.count * rank * rows * (int64_t)sizeof(float));
    const int32_t layer = layer_of(r, w);
    mo_lora *l = r->lora;
    l->experts |= w->moe != NULL;
    if (!r->row) { /* a description */
        r->pairs += w->count;
        if (layer >= 0) {
            l->layers[layer].bytes += *used - before;
            l->layers[layer].expert_bytes += w->moe ? *used - before : 0;
        }
        return MO_OK;
    }
    const int64_t a_row = mo_format_row_bytes(t->a->format, cols),
                  b_row = mo_format_row_bytes(t->b->format, rank);
    uint8_t *raw = malloc((size_t)(a_row > b_row ? a_row : b_row));
    if (!raw) {
        return no_memory(r, err);
    }
    const int64_t first = w->first / mo_format_row_bytes(t->of->format, cols) % t->of->size[1];
    mo_status status = read_a(r, t->a, p, a, raw, err);
    if (status == MO_OK) {
        status = read_b(r, t->b, p, w, first, b, raw, err);
    }
    free(raw);
    for (int64_t i = 0; a && b && i < w->count && status == MO_OK; i++) {
        l->pairs[l->count++] =
            (mo_lora_pair){.linear = (const mo_linear *)mo_binding_matrix(w, i),
                           .a = {.w = {.data = a + i * a_bytes, .type = type, .rows = rank, .cols = cols}},
                           .b = b + i * rank * rows,
                           .layer = layer,
                           .expert = expert_of(w, i),
                           .alone = w->moe && t->of->size[2] == 1};
    }
    return status;
}

/* True if other ranks have layers or experts of the model. For a part, the whole adapter was checked
 * before. */
static bool is_part(const reader *r)
{
    const mo_model_spec *f = mo_checkpoint_spec(r->model);
    return mo_spec_layers(f) > f->layer_count || f->experts.divided;
}

/* Adds pairs for all parts of the model built from the tensor: several if it is fused. */
static mo_status add_tensor(reader *r, const tensors *t, int64_t *used, mo_error *err)
{
    size_t count = 0;
    const mo_binding *bindings = mo_checkpoint_bindings(r->model, &count);
    mo_lora *l = r->lora;
    bool found = false;
    mo_status status = check_shapes(r, t, err);
    l->rank = l->rank > t->a->size[1] ? l->rank : t->a->size[1];
    l->tensors++;
    l->identity = mo_hash(l->identity, t->of->name, strlen(t->of->name) + 1);
    for (size_t i = 0; i < count && status == MO_OK; i++) {
        const mo_binding *w = &bindings[i];
        if (!w->matrix || strcmp(w->tensor->name, t->of->name) != 0) {
            continue;
        }
        const char *what = cannot_change(w);
        found = true;
        status = what ? mo_fail(err, MO_EUNSUPPORTED,
                                "%s changes %s (%s), which is not supported; use an adapter without it",
                                r->path, what, t->of->name)
                      : add_pairs(r, t, w, used, err);
    }
    return status != MO_OK || found || is_part(r)
               ? status
               : mo_fail(err, MO_EUNSUPPORTED,
                         "%s changes tensor %s, which is not a matrix this model multiplies with", r->path,
                         t->of->name);
}

/* Processes the file; *used: bytes of all pairs. */
static mo_status each_tensor(reader *r, int64_t *used, mo_error *err)
{
    const int64_t count = mo_gguf_tensor_count(r->gguf);
    mo_status status = MO_OK;
    int64_t halves = 0;
    *used = r->lora->tensors = 0;
    for (int64_t i = 0; i < count && status == MO_OK; i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(r->gguf, i);
        tensors found;
        halves += ends_with(t->name, SUFFIX_A) - ends_with(t->name, SUFFIX_B);
        if (!ends_with(t->name, SUFFIX_A)) {
            status = check_tensor_name(r, t, err);
            continue;
        }
        status = find_tensors(r, t, &found, err);
        if (found.b && found.of) {
            status = add_tensor(r, &found, used, err);
        }
    }
    if (status == MO_OK && (halves != 0 || r->lora->tensors == 0)) {
        return mo_fail(err, MO_EFORMAT, "%s has %s; the file is incomplete, recreate it", r->path,
                       halves ? "tensors without a counterpart" : "no pair of tensors");
    }
    return status;
}

static mo_status read_numbers(reader *r, int64_t bytes, mo_error *err)
{
    mo_lora *l = r->lora;
    const int64_t table = sizeof *l->table * (size_t)l->table_size;
    l->pairs = calloc((size_t)r->pairs + 1, sizeof *l->pairs); /* a part may have no pairs */
    l->table = malloc((size_t)table);
    l->region_bytes = (size_t)(bytes > 0 ? bytes : LINE_BYTES);
    l->region = mo_host_alloc_huge(l->region_bytes);
    l->region_bytes = l->region ? l->region_bytes : 0;
    if (!l->pairs || !l->table || !l->region) {
        return no_memory(r, err);
    }
    memset(l->table, 0xff, (size_t)table);
    int64_t used;
    const mo_status status = each_tensor(r, &used, err);
    for (int64_t i = 0; i < l->count && status == MO_OK; i++) {
        int64_t at = slot_of(l, l->pairs[i].linear);
        while (l->table[at] >= 0) {
            at = (at + 1) & (l->table_size - 1);
        }
        l->table[at] = (int32_t)i;
    }
    return status;
}

/* ---- Adapters ---------------------------------------------------------------------------------- */

static mo_status read_names(reader *r, mo_error *err)
{
    static const char *const keys[] = {"general.name", "adapter.lora.task_name",
                                       "adapter.lora.prompt_prefix"};
    mo_lora *l = r->lora;
    char **const to[] = {&l->name, &l->task, &l->prefix};
    for (int i = 0; i < 3; i++) {
        const char *text = "";
        const mo_status status = mo_gguf_string_or(r->gguf, keys[i], "", &text, err);
        *to[i] = status == MO_OK ? strdup(text) : NULL;
        if (!*to[i]) {
            return status == MO_OK ? no_memory(r, err) : status;
        }
    }
    l->path = strdup(r->path);
    return l->path ? MO_OK : no_memory(r, err);
}

static mo_status read_alpha(reader *r, mo_error *err)
{
    mo_lora *l = r->lora;
    if (mo_gguf_find(r->gguf, "adapter.lora.alpha")) {
        const mo_status status = mo_gguf_f32(r->gguf, "adapter.lora.alpha", &l->alpha, err);
        if (status != MO_OK || !isfinite(l->alpha)) {
            return status != MO_OK
                       ? status
                       : mo_fail(err, MO_EFORMAT, "%s: adapter.lora.alpha is not a number", r->path);
        }
    }
    l->identity = mo_hash(MO_HASH_SEED, &l->alpha, sizeof l->alpha);
    return MO_OK;
}

/* How a file's numbers are used. */
typedef enum purpose { DESCRIBE, IDENTIFY, LOAD } purpose;

static mo_status load(reader *r, purpose why, mo_error *err)
{
    mo_lora *l = r->lora;
    int64_t used = 0;
    l->layers = calloc((size_t)mo_checkpoint_spec(r->model)->layer_count + 1, sizeof *l->layers);
    mo_status status = l->layers ? mo_gguf_open(r->path, &r->gguf, err) : no_memory(r, err);
    if (status == MO_OK) {
        status = check_file(r, err);
    }
    if (status == MO_OK) {
        status = read_names(r, err);
    }
    if (status == MO_OK) {
        status = read_alpha(r, err);
    }
    if (status == MO_OK) {
        status = each_tensor(r, &used, err);
    }
    if (status != MO_OK) {
        return status;
    }
    for (l->table_size = 16; l->table_size < 2 * r->pairs;) {
        l->table_size *= 2;
    }
    l->bytes = used + r->pairs * (int64_t)sizeof(mo_lora_pair) + l->table_size * (int64_t)sizeof(int32_t);
    if (why == DESCRIBE) {
        return MO_OK;
    }
    int64_t longest = l->rank;
    for (int64_t i = 0; i < mo_gguf_tensor_count(r->gguf); i++) {
        const int64_t n = mo_gguf_tensor_at(r->gguf, i)->size[0];
        longest = longest > n ? longest : n;
    }
    r->row = malloc(sizeof(float) * (size_t)longest);
    status = r->row ? mo_input_open(mo_gguf_part_path(r->gguf, 0), &r->input, err) : no_memory(r, err);
    if (status == MO_OK && mo_gguf_parts(r->gguf) > 1) {
        status = mo_fail(err, MO_EUNSUPPORTED, "%s: an adapter in several files is not supported", r->path);
    }
    if (status == MO_OK) {
        status = why == IDENTIFY ? each_tensor(r, &used, err) : read_numbers(r, used, err);
    }
    return status;
}

static mo_status read_file(const mo_checkpoint *model, const char *path, purpose why, mo_lora *out,
                           mo_error *err)
{
    *out = (mo_lora){0};
    reader r = {.model = model, .path = path, .lora = out};
    const mo_status status = load(&r, why, err);
    out->identity = out->identity ? out->identity : 1;
    free(r.row);
    mo_input_close(r.input);
    mo_gguf_close(r.gguf);
    if (status != MO_OK) {
        mo_lora_drop(out);
    }
    return status;
}

mo_status mo_lora_load(const mo_checkpoint *model, const char *path, bool describe, mo_lora *out,
                       mo_error *err)
{
    return read_file(model, path, describe ? DESCRIBE : LOAD, out, err);
}

mo_status mo_lora_identify(const mo_checkpoint *whole, const char *path, uint64_t *identity, bool *experts,
                           mo_error *err)
{
    mo_lora lora;
    const mo_status status = read_file(whole, path, IDENTIFY, &lora, err);
    if (status == MO_OK) {
        *identity = lora.identity;
        *experts = lora.experts;
        mo_lora_drop(&lora);
    }
    return status;
}

void mo_lora_drop(mo_lora *l)
{
    free(l->layers);
    free(l->path);
    free(l->name);
    free(l->task);
    free(l->prefix);
    free(l->pairs);
    free(l->table);
    if (l->region) {
        mo_host_free_huge(l->region, l->region_bytes);
    }
    *l = (mo_lora){0};
}
