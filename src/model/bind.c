#include "model/bind.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/status.h"

/* Space for the longest name a file may have and our suffixes. */
#define NAME_BYTES (MO_GGUF_NAME + 32)

/* The functions below take a name as printf does. A name that does not fit is in no file. */
#define FORMAT(name, fmt)                                                                                    \
    do {                                                                                                     \
        va_list args;                                                                                        \
        va_start(args, fmt);                                                                                 \
        vsnprintf(name, sizeof(name), fmt, args);                                                            \
        va_end(args);                                                                                        \
    } while (0)

static bool good(const mo_binder *b)
{
    return b->status == MO_OK;
}

static const char *file_of(const mo_binder *b, const mo_gguf_tensor *t)
{
    return mo_gguf_part_path(b->gguf, t ? t->part : 0);
}

void mo_bind_fail(mo_binder *b, mo_status status, const char *fmt, ...)
{
    char text[sizeof b->err->detail];
    va_list args;
    if (!good(b)) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    b->status = mo_fail(b->err, status, "%s", text);
}

void mo_bind_free(mo_binder *b)
{
    free(b->bindings);
    b->bindings = NULL;
    b->count = b->limit = 0;
}

void *mo_bind_alloc(mo_binder *b, size_t count, size_t bytes)
{
    void *memory = good(b) ? mo_arena_array(b->arena, count, bytes) : NULL;
    if (!memory) {
        mo_bind_fail(b, MO_ENOMEM, "%s: out of memory while describing the model; free some and try again",
                     file_of(b, NULL));
    }
    return memory;
}

static void binding(mo_binder *b, mo_binding w)
{
    if (good(b) && !mo_array_reserve(&b->bindings, &b->limit, b->count + 1, sizeof *b->bindings)) {
        mo_bind_fail(b, MO_ENOMEM, "%s: out of memory while describing the model; free some and try again",
                     file_of(b, NULL));
    }
    if (good(b)) {
        b->bindings[b->count++] = w;
    }
}

/* ---- Tensors by name ---- */

static const mo_gguf_tensor *find(const mo_binder *b, const char *name, const char *suffix)
{
    char whole[NAME_BYTES + 32];
    snprintf(whole, sizeof whole, "%s%s", name, suffix);
    return mo_gguf_tensor_find(b->gguf, whole);
}

static void missing(mo_binder *b, const char *name, const char *suffix)
{
    mo_bind_fail(b, MO_ENOENT,
                 "%s: tensor %s%s is missing; the file is incomplete "
                 "or made for another architecture, download it again",
                 file_of(b, NULL), name, suffix);
}

/* "[2048, 768, 128]", without trailing ones. */
static void sizes_text(const int64_t size[4], char *text, size_t bytes)
{
    int dims = 4, used = 0;
    while (dims > 1 && size[dims - 1] == 1) {
        dims--;
    }
    for (int i = 0; i < dims && (size_t)used < bytes; i++) {
        used += snprintf(text + used, bytes - (size_t)used, "%s%lld%s", i ? ", " : "[", (long long)size[i],
                         i == dims - 1 ? "]" : "");
    }
}

/* False, with the failure recorded: the tensor has other sizes. */
static bool has_sizes(mo_binder *b, const mo_gguf_tensor *t, int64_t n0, int64_t n1, int64_t n2)
{
    const int64_t wanted[4] = {n0, n1, n2, 1};
    char found_text[128], wanted_text[128];
    bool same = true;
    for (int i = 0; i < 4; i++) {
        same = same && t->size[i] == wanted[i];
    }
    if (!same) {
        sizes_text(t->size, found_text, sizeof found_text);
        sizes_text(wanted, wanted_text, sizeof wanted_text);
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: tensor %s has the shape %s, but the metadata require %s; the "
                     "file is damaged or made for another architecture, download it again",
                     file_of(b, t), t->name, found_text, wanted_text);
    }
    return good(b);
}

/* The same if its type is not supported. */
static bool fits(mo_binder *b, const mo_gguf_tensor *t, int64_t n0, int64_t n1, int64_t n2)
{
    if (has_sizes(b, t, n0, n1, n2) && t->format->kind == MO_KIND_INTEGER) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: tensor %s has %s values, which are not supported; "
                     "the file was converted incorrectly, download it again",
                     file_of(b, t), t->name, t->format->name);
    }
    return good(b);
}

bool mo_bind_has(mo_binder *b, const char *fmt, ...)
{
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    return find(b, name, ".weight") != NULL;
}

void mo_bind_need(mo_binder *b, const char *fmt, ...)
{
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    if (good(b) && !find(b, name, "")) {
        missing(b, name, "");
    }
}

int64_t mo_bind_rows_of(mo_binder *b, const char *fmt, ...)
{
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    const mo_gguf_tensor *t = find(b, name, ".weight");
    return t ? t->size[1] : 0;
}

/* ---- Vectors ---- */

static void add_vector(mo_binder *b, const mo_gguf_tensor *t, const float **out, int64_t first)
{
    binding(b,
            (mo_binding){.tensor = t, .place = MO_PLACE_VECTOR, .count = 1, .first = first, .vector = out});
}

/* One vector, or `count` of them in a tensor; taps: see mo_binding. */
static void bind_vectors(mo_binder *b, const float **out, int64_t n, int64_t count, int taps, bool optional,
                         const char *name)
{
    const mo_gguf_tensor *t = good(b) ? find(b, name, "") : NULL;
    *out = NULL;
    if (!t && !optional) {
        missing(b, name, "");
    } else if (t && (taps && t->size[1] == 1 ? fits(b, t, n, 1, count) : fits(b, t, n, count, 1))) {
        binding(b,
                (mo_binding){.tensor = t, .place = MO_PLACE_VECTOR, .count = 1, .vector = out, .taps = taps});
    }
}

void mo_bind_vector(mo_binder *b, const float **out, int64_t n, const char *fmt, ...)
{
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    bind_vectors(b, out, n, 1, 0, false, name);
}

void mo_bind_optional(mo_binder *b, const float **out, int64_t n, const char *fmt, ...)
{
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    bind_vectors(b, out, n, 1, 0, true, name);
}

void mo_bind_vectors(mo_binder *b, const float **out, int64_t n, int64_t count, const char *fmt, ...)
{
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    bind_vectors(b, out, n, count, 0, false, name);
}

void mo_bind_taps(mo_binder *b, const float **out, int taps, int64_t n, const char *fmt, ...)
{
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    bind_vectors(b, out, taps, n, taps, false, name);
}

void mo_bind_numbers(mo_binder *b, const float **out, int64_t n, int64_t count, int64_t below,
                     const char *fmt, ...)
{
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    const mo_gguf_tensor *t = good(b) ? find(b, name, "") : NULL;
    *out = NULL;
    if (!t) {
        missing(b, name, "");
    } else if (has_sizes(b, t, n, count, 1) && t->format->type != MO_I32) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: tensor %s has %s values instead of I32; "
                     "the file was converted incorrectly, download it again",
                     file_of(b, t), t->name, t->format->name);
    } else if (good(b)) {
        binding(b, (mo_binding){
                       .tensor = t, .place = MO_PLACE_VECTOR, .count = 1, .vector = out, .below = below});
    }
}

/* ---- Matrices ---- */

static mo_weights view_of(const mo_gguf_tensor *t, int64_t cols, int64_t rows)
{
    return (mo_weights){.type = t->format->type, .rows = rows, .cols = cols};
}

/* A request for one matrix tensor. */
typedef struct request {
    int64_t cols, row, rows, total;
    const int32_t *order;
    bool scaled;
    int64_t parts; /* the tensor is a stack of this many; 0: not a stack */
    bool flat;     /* or it may be one matrix with the rows of all */
} request;

static void bind_bias(mo_binder *b, mo_linear *out, const request *r, const char *name)
{
    const mo_gguf_tensor *t = find(b, name, ".bias");
    if (t && r->parts) {
        mo_bind_fail(b, MO_EUNSUPPORTED,
                     "%s: tensor %s is a bias of per-head matrices, which is "
                     "not supported; download another conversion of the model",
                     file_of(b, t), t->name);
    } else if (t && r->order) {
        mo_bind_fail(b, MO_EUNSUPPORTED,
                     "%s: tensor %s is a bias of the older fused layout, which "
                     "is not supported; download a newer conversion of the model",
                     file_of(b, t), t->name);
    } else if (t && fits(b, t, r->total, 1, 1)) {
        add_vector(b, t, &out->bias, r->row);
    }
}

static void bind_scale(mo_binder *b, mo_linear *out, const char *name)
{
    const mo_gguf_tensor *t = find(b, name, ".scale");
    if (t && fits(b, t, 1, 1, 1)) {
        add_vector(b, t, &out->scale, 0);
    }
}

static void bind_matrix(mo_binder *b, mo_linear *out, const request *r, const char *name)
{
    *out = (mo_linear){0};
    const mo_gguf_tensor *t = good(b) ? find(b, name, ".weight") : NULL;
    if (!t) {
        missing(b, name, ".weight");
        return;
    }
    const int64_t parts = r->parts && !(r->flat && t->size[2] == 1) ? r->parts : 1;
    if (!fits(b, t, r->cols, r->total / parts, parts)) {
        return;
    }
    out->w = view_of(t, r->cols, r->rows);
    binding(b, (mo_binding){.tensor = t,
                            .place = MO_PLACE_CORE,
                            .count = 1,
                            .first = r->row * mo_format_row_bytes(t->format, r->cols),
                            .matrix = &out->w,
                            .rows = r->order,
                            .unit = r->parts ? r->rows / r->parts : 0});
    if (r->scaled) {
        bind_scale(b, out, name);
    }
    bind_bias(b, out, r, name);
}

void mo_bind_factor(mo_binder *b, mo_linear *of, float factor)
{
    bool scaled = false;
    if (!good(b) || factor == 1.0f) {
        return;
    }
    of->factor = factor;
    for (size_t i = 0; i < b->count; i++) {
        mo_binding *w = &b->bindings[i];
        if (w->vector && (w->vector == &of->scale || w->vector == &of->bias)) {
            w->times = factor;
            scaled |= w->vector == &of->scale;
        }
    }
    float *scale = scaled ? NULL : mo_bind_alloc(b, 1, sizeof *scale);
    if (scale) {
        *scale = factor;
        of->scale = scale;
    }
}

void mo_bind_linear(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, const char *fmt, ...)
{
    const request r = {.cols = cols, .rows = rows, .total = rows, .scaled = true};
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    bind_matrix(b, out, &r, name);
}

void mo_bind_unscaled(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, const char *fmt, ...)
{
    const request r = {.cols = cols, .rows = rows, .total = rows};
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    bind_matrix(b, out, &r, name);
}

void mo_bind_rows(mo_binder *b, mo_linear *out, int64_t cols, int64_t row, int64_t rows, int64_t total,
                  const char *fmt, ...)
{
    const request r = {.cols = cols, .row = row, .rows = rows, .total = total, .scaled = true};
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    bind_matrix(b, out, &r, name);
}

void mo_bind_gather(mo_binder *b, mo_linear *out, int64_t cols, const int32_t *order, int64_t rows,
                    int64_t total, const char *fmt, ...)
{
    const request r = {.cols = cols, .rows = rows, .total = total, .order = order, .scaled = true};
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    bind_matrix(b, out, &r, name);
}

void mo_bind_stacked(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, int64_t parts, const char *fmt,
                     ...)
{
    const request r = {
        .cols = cols, .rows = parts * rows, .total = parts * rows, .scaled = true, .parts = parts};
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    bind_matrix(b, out, &r, name);
}

void mo_bind_grouped(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, int64_t parts, const char *fmt,
                     ...)
{
    const request r = {.cols = cols,
                       .rows = parts * rows,
                       .total = parts * rows,
                       .scaled = true,
                       .parts = parts,
                       .flat = true};
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    bind_matrix(b, out, &r, name);
}

void mo_bind_turned(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, int64_t parts, int64_t row,
                    int64_t total, const char *fmt, ...)
{
    char name[NAME_BYTES];
    FORMAT(name, fmt);
    *out = (mo_linear){0};
    const mo_gguf_tensor *t = good(b) ? find(b, name, ".weight") : NULL;
    if (!t) {
        missing(b, name, ".weight");
    } else if (fits(b, t, rows, parts * total, 1)) {
        const int64_t bytes = mo_format_row_bytes(t->format, rows);
        out->w = (mo_weights){.type = MO_F32, .rows = parts * rows, .cols = cols};
        binding(b, (mo_binding){.tensor = t,
                                .place = MO_PLACE_CORE,
                                .count = 1,
                                .first = row * bytes,
                                .stride = total * bytes,
                                .matrix = &out->w,
                                .turns = parts});
        bind_scale(b, out, name);
        bind_bias(b, out, &(request){.parts = parts}, name);
    }
}

void mo_bind_table(mo_binder *b, mo_weights *out, int64_t cols, int64_t rows, const char *name)
{
    const mo_gguf_tensor *t = good(b) ? find(b, name, ".weight") : NULL;
    *out = (mo_weights){0};
    if (!t) {
        missing(b, name, ".weight");
    } else if (fits(b, t, cols, rows, 1)) {
        *out = view_of(t, cols, rows);
        binding(b, (mo_binding){.tensor = t, .place = MO_PLACE_TABLE, .count = 1, .matrix = out});
    }
}

/* ---- Experts ---- */

/* One of an expert's three matrices in a tensor with those of all experts: rows [row, row + rows) of every
 * expert's `total`. */
typedef struct stack {
    mo_moe *moe;
    mo_linear *first; /* of expert 0 */
    int64_t cols, row, rows, total;
    bool scaled;
} stack;

static void bind_stack(mo_binder *b, const stack *s, const char *name)
{
    const mo_gguf_tensor *t = good(b) ? find(b, name, ".weight") : NULL;
    if (!t) {
        missing(b, name, ".weight");
        return;
    }
    if (!fits(b, t, s->cols, s->total, s->moe->experts)) {
        return;
    }
    mo_expert *expert = s->moe->expert;
    const size_t at = (size_t)((uint8_t *)s->first - (uint8_t *)expert);
    for (int e = 0; e < s->moe->experts; e++) {
        ((mo_linear *)((uint8_t *)&expert[e] + at))->w = view_of(t, s->cols, s->rows);
    }
    const int64_t row_bytes = mo_format_row_bytes(t->format, s->cols);
    mo_binding w = {.tensor = t,
                    .place = MO_PLACE_EXPERT,
                    .moe = s->moe,
                    .count = s->moe->experts,
                    .step = sizeof(mo_expert),
                    .first = s->row * row_bytes,
                    .stride = s->total * row_bytes,
                    .matrix = &s->first->w};
    binding(b, w);
    w.place = MO_PLACE_VECTOR;
    w.matrix = NULL;
    w.tensor = s->scaled ? find(b, name, ".scale") : NULL;
    if (w.tensor && fits(b, w.tensor, s->moe->experts, 1, 1)) {
        w.vector = &s->first->scale;
        w.first = 0;
        w.stride = 1;
        binding(b, w);
    }
    w.tensor = find(b, name, ".bias");
    if (w.tensor && fits(b, w.tensor, s->total, s->moe->experts, 1)) {
        w.vector = &s->first->bias;
        w.first = s->row;
        w.stride = s->total;
        binding(b, w);
    }
}

/* The first mixture models' files: every expert has its own tensors. */
static void bind_lone(mo_binder *b, int layer, int64_t width_in, mo_moe *moe)
{
    const size_t before = b->count;
    for (int e = 0; e < moe->experts; e++) {
        mo_expert *expert = &moe->expert[e];
        if (mo_gated(moe->activation)) {
            mo_bind_linear(b, &expert->gate, width_in, moe->width, "blk.%d.ffn_gate.%d", layer, e);
        }
        mo_bind_linear(b, &expert->up, width_in, moe->width, "blk.%d.ffn_up.%d", layer, e);
        mo_bind_linear(b, &expert->down, moe->width, width_in, "blk.%d.ffn_down.%d", layer, e);
    }
    for (size_t i = before; good(b) && i < b->count; i++) {
        mo_binding *w = &b->bindings[i];
        w->moe = moe;
        w->place = w->matrix ? MO_PLACE_EXPERT : MO_PLACE_VECTOR;
    }
}

void mo_bind_experts(mo_binder *b, int layer, int64_t width_in, mo_moe *moe)
{
    moe->io = width_in;
    moe->expert = mo_bind_alloc(b, (size_t)moe->experts, sizeof *moe->expert);
    if (!moe->expert) {
        return;
    }
    if (mo_bind_has(b, "blk.%d.ffn_up.0", layer) && !mo_bind_has(b, "blk.%d.ffn_up_exps", layer)) {
        bind_lone(b, layer, width_in, moe);
        return;
    }
    const int64_t hidden = moe->width;
    char name[NAME_BYTES];
    stack gate = {.moe = moe, .first = &moe->expert[0].gate, .cols = width_in, .rows = hidden};
    stack up = {.moe = moe, .first = &moe->expert[0].up, .cols = width_in, .rows = hidden};
    snprintf(name, sizeof name, "blk.%d.ffn_gate_up_exps", layer);
    if (mo_gated(moe->activation) &&
        find(b, name, ".weight")) { /* gate rows first; the format has no scale for both together */
        gate.total = up.total = 2 * hidden;
        up.row = hidden;
        bind_stack(b, &gate, name);
        bind_stack(b, &up, name);
    } else {
        gate.total = up.total = hidden;
        gate.scaled = up.scaled = true;
        if (mo_gated(moe->activation)) {
            snprintf(name, sizeof name, "blk.%d.ffn_gate_exps", layer);
            bind_stack(b, &gate, name);
        }
        snprintf(name, sizeof name, "blk.%d.ffn_up_exps", layer);
        bind_stack(b, &up, name);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_down_exps", layer);
    const stack down = {.moe = moe,
                        .first = &moe->expert[0].down,
                        .cols = hidden,
                        .rows = width_in,
                        .total = width_in,
                        .scaled = true};
    bind_stack(b, &down, name);
}

/* ---- Ropes ---- */

/* Files mark unrotated pairs with a factor of 1e30; above this limit there is no visible rotation. */
#define FACTOR_STILL 1e9f

static void prepare(mo_binder *b, const mo_rope_setup *setup, const float *factors, mo_rope *rope)
{
    float usable[MO_ROPE_PAIRS_MAX];
    mo_rope_setup s = *setup;
    for (int64_t p = 0; factors && p < s.n_rot / 2; p++) {
        usable[p] = factors[p] > FACTOR_STILL ? 1.0f : factors[p];
    }
    s.factors = factors ? usable : NULL;
    mo_error err = {0};
    const mo_status status = mo_rope_prepare(&s, rope, &err);
    if (status != MO_OK) {
        mo_bind_fail(b, status, "%s: %.700s; the file was converted incorrectly, download it again",
                     file_of(b, NULL), err.detail);
        return;
    }
    for (int64_t p = 0; factors && p < rope->pairs; p++) {
        rope->rate[p] = factors[p] > FACTOR_STILL ? 0.0 : rope->rate[p];
    }
}

/* If layers rotate different numbers of values, the file has factors for the largest number, and the others
 * use the first ones. */
static bool factors_fit(mo_binder *b, const mo_gguf_tensor *t, int64_t pairs)
{
    return fits(b, t, t->size[0] > pairs ? t->size[0] : pairs, 1, 1);
}

static const mo_rope *bind_rope(mo_binder *b, const mo_rope_setup *setup, const mo_gguf_tensor *t)
{
    mo_rope *rope = mo_bind_alloc(b, 1, sizeof *rope);
    if (!rope) {
        return NULL;
    }
    prepare(b, setup, NULL, rope); /* validates the numbers */
    if (t && good(b) && factors_fit(b, t, setup->n_rot / 2)) {
        mo_rope_binding *w = mo_bind_alloc(b, 1, sizeof *w);
        if (w) {
            w->setup = *setup;
            w->rope = rope;
            w->next = b->ropes;
            b->ropes = w;
            add_vector(b, t, &w->factors, 0);
        }
    }
    return good(b) ? rope : NULL;
}

const mo_rope *mo_bind_rope(mo_binder *b, const mo_rope_setup *setup, bool with_factors)
{
    return bind_rope(b, setup, with_factors && good(b) ? find(b, "rope_freqs", ".weight") : NULL);
}

const mo_rope *mo_bind_rope_by(mo_binder *b, const mo_rope_setup *setup, const char *name)
{
    const mo_gguf_tensor *t = good(b) ? find(b, name, ".weight") : NULL;
    if (!t) {
        missing(b, name, ".weight");
    }
    return bind_rope(b, setup, t);
}

void mo_bind_finish(mo_binder *b)
{
    for (const mo_rope_binding *w = b->ropes; w && good(b); w = w->next) {
        if (w->factors) {
            prepare(b, &w->setup, w->factors, w->rope);
        }
    }
}
