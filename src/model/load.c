/* A model's tensors are in one region: matrices first, each aligned to a cache line, then vectors. */
#include "model/load.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/host.h"
#include "base/input.h"
#include "base/log.h"
#include "base/mapped.h"
#include "base/status.h"
#include "model/pieces.h"
#include "model/tokens.h"

#define LINE_BYTES 64

struct mo_checkpoint {
    mo_gguf *gguf;
    mo_arena *arena;
    mo_model_spec spec;
    char *path; /* in the arena */
    uint8_t *region;
    size_t region_bytes;
    mo_mapped **maps; /* by part, in the arena; NULL: the file was read */
    mo_home *homes;
    size_t home_count;
    mo_binding *bindings; /* malloc'ed */
    size_t binding_count;
    mo_checkpoint_bytes bytes;
    uint64_t token_bytes;
};

typedef struct loader {
    mo_checkpoint *model;
    const mo_load_options *options;
    mo_binder binder;
    mo_input **inputs; /* one per part */
    mo_pieces pieces;
} loader;

int64_t mo_load_bytes(int64_t bytes)
{
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static int64_t aligned(int64_t bytes)
{
    return mo_load_bytes(bytes);
}

static int64_t view_bytes(const mo_weights *w)
{
    return w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
}

/* A mapped matrix stays in the file, unless it must be built. */
static bool stays(const loader *l, const mo_binding *w)
{
    return l->options->map && w->matrix && !mo_binding_made(w);
}

/* The layer of a binding; -1: none. Layer descriptions are one array; those of experts belong to the layer's
 * experts. */
static int layer_of(const loader *l, const mo_binding *w)
{
    const mo_model_spec *f = &l->model->spec;
    const void *part = w->moe ? (const void *)w->moe : w->matrix ? (void *)w->matrix : (void *)w->vector;
    const uintptr_t from = (uintptr_t)f->layers, at = (uintptr_t)part;
    const uintptr_t layer = (at - from) / sizeof(mo_layer);
    return at >= from && layer < (uintptr_t)f->layer_count ? (int)layer : -1;
}

/* True if the matrix stays on disk. */
static bool left(const loader *l, const mo_binding *w)
{
    const mo_load_options *o = l->options;
    if (!w->matrix || mo_binding_made(w)) {
        return false;
    }
    switch (w->place) {
    case MO_PLACE_EXPERT: return o->leave_experts || o->describe;
    case MO_PLACE_TABLE: return (o->leave_table || o->describe) && !l->model->spec.tied;
    case MO_PLACE_VECTOR: return false;
    case MO_PLACE_CORE: break;
    }
    const int n = layer_of(l, w);
    return n >= 0 && w->matrix != &l->model->spec.layers[n].moe.router.logits.w &&
           (o->describe || (o->leave_layer && o->leave_layer[n]));
}

static mo_status no_memory(const loader *l, mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "%s: out of memory while loading the model; free some and try again",
                   l->model->path);
}

/* ---- Layout ---- */

/* Sorts bindings of vectors by tensor, so that those of one tensor are adjacent. */
static int by_tensor(const void *left, const void *right)
{
    const mo_binding *a = *(const mo_binding *const *)left, *b = *(const mo_binding *const *)right;
    return a->tensor != b->tensor ? (a->tensor > b->tensor) - (a->tensor < b->tensor)
                                  : (a->taps > b->taps) - (a->taps < b->taps);
}

static void point(const mo_binding *w, const float *values)
{
    for (int64_t i = 0; i < w->count; i++) {
        *mo_binding_vector(w, i) = values + w->first + i * w->stride;
    }
}

/* Rows of an interleaved group in memory; 0: the file's layout. */
static int32_t interleave_of(const loader *l, const mo_binding *w, const mo_weights *view)
{
    const int32_t group = l->options->interleave;
    const bool grouped = w->place != MO_PLACE_TABLE && mo_weights_units(view->type) && group;
    return grouped && w->unit % group == 0 ? group : 0;
}

/* Places matrices that are read; with a region, sets their pointers and cuts them into pieces. Returns the
 * bytes used; -1: out of memory. */
static int64_t place_matrices(loader *l, uint8_t *region)
{
    int64_t used = 0;
    for (size_t n = 0; n < l->binder.count; n++) {
        const mo_binding *w = &l->binder.bindings[n];
        for (int64_t i = 0; w->matrix && !stays(l, w) && !left(l, w) && i < w->count; i++) {
            mo_weights *view = mo_binding_matrix(w, i);
            if (region) {
                view->interleave = l->options->map ? 0 : interleave_of(l, w, view);
                view->data = region + used;
                if (!mo_pieces_add_matrix(&l->pieces, w, i, region + used)) {
                    return -1;
                }
            }
            used += aligned(view_bytes(view));
        }
    }
    return used;
}

/* Completes a description: which rows would be interleaved, and which vectors exist. The vectors' values are
 * not loaded and must not be read. */
static void foretell(loader *l)
{
    static const float absent;
    for (size_t n = 0; n < l->binder.count; n++) {
        const mo_binding *w = &l->binder.bindings[n];
        for (int64_t i = 0; i < w->count; i++) {
            if (w->matrix) {
                mo_weights *view = mo_binding_matrix(w, i);
                view->interleave = interleave_of(l, w, view);
            } else {
                *mo_binding_vector(w, i) = &absent;
            }
        }
    }
}

static int64_t place_vectors(loader *l, const mo_binding *const *order, size_t count, uint8_t *region)
{
    int64_t used = 0, at = 0;
    for (size_t n = 0; n < count; n++) {
        const mo_binding *w = order[n];
        if (n == 0 || by_tensor(&order[n - 1], &order[n]) != 0) {
            at = used;
            used += aligned(w->tensor->values * (int64_t)sizeof(float));
            if (region && !mo_pieces_add_vector(&l->pieces, w, region + at)) {
                return -1;
            }
        }
        if (region) {
            point(w, (const float *)(const void *)(region + at));
        }
    }
    return used;
}

/* Allocates the region; the error says how much it needs. */
static mo_status alloc_region(loader *l, int64_t bytes, mo_error *err)
{
    mo_machine_info machine;
    mo_machine_describe(&machine, sizeof machine);
    const double gib = 1024.0 * 1024.0 * 1024.0;
    if (machine.ram_available_bytes && (uint64_t)bytes > machine.ram_available_bytes) {
        return mo_fail(err, MO_ENOMEM,
                       "%s: its weights take %.1f GiB, but only %.1f GiB of memory are "
                       "available; free some, choose a smaller quantization, or map the file",
                       l->model->path, (double)bytes / gib, (double)machine.ram_available_bytes / gib);
    }
    l->model->region = mo_host_alloc_huge((size_t)bytes);
    l->model->region_bytes = (size_t)bytes;
    return l->model->region
               ? MO_OK
               : mo_fail(err, MO_ENOMEM, "%s: %.1f GiB for its weights are not available; free some memory",
                         l->model->path, (double)bytes / gib);
}

static mo_status lay_out(loader *l, mo_error *err)
{
    const mo_binder *b = &l->binder;
    const mo_binding **vectors = malloc((b->count + 1) * sizeof(mo_binding *));
    size_t count = 0;
    if (!vectors) {
        return no_memory(l, err);
    }
    for (size_t n = 0; n < b->count; n++) {
        if (b->bindings[n].vector) {
            vectors[count++] = &b->bindings[n];
        }
    }
    qsort(vectors, count, sizeof(mo_binding *), by_tensor);
    const int64_t matrices = place_matrices(l, NULL), floats = place_vectors(l, vectors, count, NULL);
    if (l->options->describe) {
        l->model->bytes.vectors = (uint64_t)floats;
        l->model->region_bytes = (size_t)(matrices + floats + LINE_BYTES);
        foretell(l);
        free(vectors);
        return MO_OK;
    }
    mo_status status = alloc_region(l, matrices + floats + LINE_BYTES, err);
    uint8_t *region = l->model->region;
    if (status == MO_OK &&
        (place_matrices(l, region) < 0 || place_vectors(l, vectors, count, region + matrices) < 0)) {
        status = no_memory(l, err);
    }
    free(vectors);
    return status;
}

/* ---- Matrices left on disk ---- */

/* Experts before layers before the embedding; the matrices of an expert in binding order. */
static int by_home(const void *left_home, const void *right_home)
{
    const mo_home *a = left_home, *b = right_home;
    const int rank_a = a->expert >= 0 ? 0 : a->layer >= 0 ? 1 : 2;
    const int rank_b = b->expert >= 0 ? 0 : b->layer >= 0 ? 1 : 2;
    if (rank_a != rank_b) {
        return rank_a - rank_b;
    }
    if (a->layer != b->layer) {
        return a->layer - b->layer;
    }
    if (a->expert != b->expert) {
        return a->expert - b->expert;
    }
    return (a->matrix > b->matrix) - (a->matrix < b->matrix);
}

static mo_status note_homes(loader *l, mo_error *err)
{
    mo_checkpoint *m = l->model;
    size_t count = 0;
    for (size_t n = 0; n < l->binder.count; n++) {
        count += left(l, &l->binder.bindings[n]) ? (size_t)l->binder.bindings[n].count : 0;
    }
    m->homes = mo_arena_array(m->arena, count + 1, sizeof *m->homes);
    if (!m->homes) {
        return no_memory(l, err);
    }
    for (size_t n = 0; n < l->binder.count; n++) {
        const mo_binding *w = &l->binder.bindings[n];
        for (int64_t i = 0; left(l, w) && i < w->count; i++) {
            mo_weights *view = mo_binding_matrix(w, i);
            const mo_layer *layer = w->moe ? &m->spec.layers[layer_of(l, w)] : NULL;
            const int64_t expert =
                layer ? ((uint8_t *)view - (uint8_t *)layer->moe.expert) / (int64_t)sizeof(mo_expert) : -1;
            m->homes[m->home_count++] = (mo_home){.matrix = view,
                                                  .layer = layer_of(l, w),
                                                  .expert = (int32_t)expert,
                                                  .part = w->tensor->part,
                                                  .offset = w->tensor->offset + w->first + i * w->stride,
                                                  .bytes = view_bytes(view)};
        }
    }
    if (m->home_count > 1) {
        qsort(m->homes, m->home_count, sizeof *m->homes, by_home);
    }
    return MO_OK;
}

/* ---- Mapping ---- */

/* Data that every token reads are needed soon; experts are read when they are routed to. */
static void hint(const mo_mapped *m, const mo_gguf_tensor *t)
{
    const int64_t page = sysconf(_SC_PAGESIZE), from = t->offset / page * page;
    madvise(mo_mapped_data(m) + from, (size_t)(t->offset + t->bytes - from), MADV_WILLNEED);
}

static mo_status map_matrices(loader *l, mo_error *err)
{
    const int parts = mo_gguf_parts(l->model->gguf);
    mo_status status = MO_OK;
    l->model->maps = mo_arena_array(l->model->arena, (size_t)parts, sizeof(mo_mapped *));
    if (!l->model->maps) {
        return no_memory(l, err);
    }
    for (int i = 0; i < parts && status == MO_OK; i++) {
        status = mo_mapped_open(l->inputs[i], (size_t)mo_gguf_part_bytes(l->model->gguf, i),
                                &l->model->maps[i], err);
    }
    for (size_t n = 0; n < l->binder.count && status == MO_OK; n++) {
        const mo_binding *w = &l->binder.bindings[n];
        const mo_mapped *m = l->model->maps[w->tensor->part];
        if (!stays(l, w)) {
            continue;
        }
        if (w->place == MO_PLACE_CORE) {
            hint(m, w->tensor);
        }
        for (int64_t i = 0; i < w->count; i++) {
            mo_binding_matrix(w, i)->data = mo_mapped_data(m) + w->tensor->offset + w->first + i * w->stride;
            if (w->tensor->format->type == MO_MXFP4 && !mo_pieces_add_matrix(&l->pieces, w, i, NULL)) {
                return no_memory(l, err);
            }
        }
    }
    return status;
}

/* ---- Counting ---- */

/* Memory of the weights, and the bytes that one token reads. The experts' part is divided once, so that it
 * does not depend on how their tensors are cut. */
typedef struct scale {
    mo_checkpoint *model;
    uint64_t routed; /* bytes of experts times the number that a token uses */
    uint64_t experts;
} scale;

static void count_bytes(scale *s, const mo_binding *w, uint64_t bytes, bool held)
{
    mo_checkpoint *m = s->model;
    switch (w->place) {
    case MO_PLACE_CORE: m->bytes.core += held ? bytes : 0; break;
    case MO_PLACE_EXPERT: m->bytes.experts += held ? bytes : 0; break;
    case MO_PLACE_VECTOR: m->bytes.vectors += bytes; break;
    case MO_PLACE_TABLE: m->bytes.table += held ? bytes : 0; return; /* a token reads one row */
    }
    if (w->moe) {
        s->routed += bytes * (uint64_t)w->moe->used;
        s->experts = (uint64_t)w->moe->experts; /* the same in every layer: it comes from one key */
    } else {
        m->token_bytes += bytes;
    }
}

/* Several bindings may share a vector, which is one piece. */
static void weigh(const loader *l)
{
    mo_checkpoint *m = l->model;
    scale s = {.model = m, .experts = 1};
    const mo_weights *embed = &m->spec.embed;
    for (size_t n = 0; n < l->binder.count; n++) {
        const mo_binding *w = &l->binder.bindings[n];
        for (int64_t i = 0; w->matrix && i < w->count; i++) {
            count_bytes(&s, w, (uint64_t)view_bytes(mo_binding_matrix(w, i)), !left(l, w));
        }
    }
    for (size_t n = 0; n < l->pieces.count; n++) {
        const mo_binding *w = l->pieces.list[n].binding;
        if (w->vector) {
            count_bytes(&s, w, (uint64_t)w->tensor->values * sizeof(float), true);
        }
    }
    m->token_bytes += s.routed / s.experts;
    m->token_bytes += (uint64_t)mo_format_row_bytes(mo_format_of(embed->type), embed->cols);
    m->token_bytes += m->spec.tied ? m->bytes.table : 0;
}

/* ---- Models ---- */

static mo_status open_inputs(loader *l, mo_error *err)
{
    const int parts = mo_gguf_parts(l->model->gguf);
    mo_status status = MO_OK;
    l->inputs = calloc((size_t)parts, sizeof(mo_input *));
    if (!l->inputs) {
        return no_memory(l, err);
    }
    for (int i = 0; i < parts && status == MO_OK; i++) {
        status = mo_input_open(mo_gguf_part_path(l->model->gguf, i), &l->inputs[i], err);
    }
    return status;
}

static void loader_free(loader *l)
{
    for (int i = 0; l->inputs && i < mo_gguf_parts(l->model->gguf); i++) {
        mo_input_close(l->inputs[i]);
    }
    free(l->inputs);
    mo_pieces_free(&l->pieces);
    mo_bind_free(&l->binder);
}

static mo_status describe(loader *l, const char *path, mo_error *err)
{
    mo_checkpoint *m = l->model;
    m->arena = mo_arena_create((size_t)1 << 20);
    m->path = m->arena ? mo_arena_text(m->arena, path, strlen(path)) : NULL;
    if (!m->path) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while opening the model; free some and try again",
                       path);
    }
    const mo_status status = mo_gguf_open(path, &m->gguf, err);
    if (status != MO_OK) {
        return status;
    }
    l->binder = (mo_binder){.gguf = m->gguf, .arena = m->arena, .err = err, .context = l->options->context};
    if (l->options->head) {
        mo_family_describe_head(&l->binder, &m->spec);
    } else {
        mo_family_describe(&l->binder, &m->spec);
    }
    return l->binder.status;
}

/* True if the binding is before or after the layers. */
static bool at_an_end(const loader *l, const mo_binding *w)
{
    const mo_model_spec *f = &l->model->spec;
    const uintptr_t at = (uintptr_t)(w->matrix ? (void *)w->matrix : (void *)w->vector);
    return !w->moe && at >= (uintptr_t)f && at < (uintptr_t)(f + 1);
}

/* Keeps the local experts in a binding of their matrices, and nothing of other matrices if experts are alone.
 * Vectors of experts stay. False: nothing is left. */
static bool cut_experts(mo_binding *w, const mo_expert_range *r)
{
    if (!r->divided || !w->moe) {
        return !r->divided || !r->alone;
    }
    if (w->vector) {
        return true;
    }
    const int64_t at = ((uint8_t *)w->matrix - (uint8_t *)w->moe->expert) / (int64_t)sizeof(mo_expert);
    const int64_t before = r->first > at ? r->first - at : 0;
    const int64_t end = r->end - at < w->count ? r->end - at : w->count;
    if (end <= before) {
        return false;
    }
    w->matrix = mo_binding_matrix(w, before);
    w->first += before * w->stride;
    w->count = end - before;
    return true;
}

/* Keeps only bindings of local layers and experts. */
static mo_status cut(loader *l, mo_error *err)
{
    mo_model_spec *f = &l->model->spec;
    const mo_layer_range r = l->options->range;
    const int count = r.count ? r.count : f->layer_count - r.first;
    f->all_layers = f->layers;
    f->all_count = f->layer_count;
    f->experts = l->options->experts;
    if (r.first < 0 || count < 1 || count > f->layer_count - r.first) {
        return mo_fail(err, MO_EINVAL, "%s: layers %d to %d do not all exist: it has %d", l->model->path,
                       r.first, r.first + count - 1, f->layer_count);
    }
    size_t kept = 0;
    for (size_t n = 0; n < l->binder.count; n++) {
        mo_binding *w = &l->binder.bindings[n];
        const int layer = layer_of(l, w);
        if ((layer >= 0 ? layer >= r.first && layer < r.first + count : r.first == 0 || !at_an_end(l, w)) &&
            cut_experts(w, &f->experts)) {
            l->binder.bindings[kept++] = *w;
        }
    }
    l->binder.count = kept;
    if (r.first > 0 || f->experts.alone) {
        f->tied = false;
        f->embed.rows = f->output.w.rows = 0;
    }
    f->first_layer = r.first;
    f->layers += r.first;
    f->layer_count = count;
    return MO_OK;
}

static mo_status load(loader *l, const char *path, mo_error *err)
{
    mo_checkpoint *m = l->model;
    mo_status status = describe(l, path, err);
    if (status == MO_OK) {
        status = cut(l, err);
    }
    if (status == MO_OK) {
        status = note_homes(l, err);
    }
    if (status == MO_OK && !l->options->describe) {
        status = open_inputs(l, err);
        if (status == MO_OK && l->options->map) {
            status = map_matrices(l, err);
        }
    }
    if (status == MO_OK) {
        status = lay_out(l, err);
    }
    if (status == MO_OK && !l->options->describe) {
        const mo_pieces_source source = {.path = m->path,
                                         .inputs = l->inputs,
                                         .parts = mo_gguf_parts(m->gguf),
                                         .pool = l->options->pool,
                                         .progress = l->options->progress,
                                         .user = l->options->user};
        status = mo_pieces_read(&l->pieces, &source, err);
    }
    if (status != MO_OK) {
        return status;
    }
    if (m->spec.tied) {
        m->spec.output.w = m->spec.embed;
    }
    weigh(l);
    if (l->options->describe) {
        return MO_OK;
    }
    mo_bind_finish(&l->binder);
    if (m->spec.mtp_layers && !l->options->head_used) {
        mo_log(MO_LOG_INFO, "model", "%s: the %d layer%s for multi-token prediction %s not used", path,
               m->spec.mtp_layers, m->spec.mtp_layers > 1 ? "s" : "", m->spec.mtp_layers > 1 ? "are" : "is");
    }
    mo_log(MO_LOG_DEBUG, "model", "%s: %zu pieces, %llu bytes read", path, l->pieces.count,
           (unsigned long long)l->pieces.total);
    return l->binder.status;
}

mo_status mo_checkpoint_load(const char *path, const mo_load_options *options, mo_checkpoint **out,
                             mo_error *err)
{
    mo_checkpoint *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while opening the model; free some and try again",
                       path);
    }
    loader l = {.model = m, .options = options};
    const mo_status status = load(&l, path, err);
    m->bindings = l.binder.bindings; /* for adapters */
    m->binding_count = l.binder.count;
    l.binder.bindings = NULL;
    loader_free(&l);
    if (status != MO_OK) {
        mo_checkpoint_free(m);
        return status;
    }
    *out = m;
    return MO_OK;
}

void mo_checkpoint_free(mo_checkpoint *model)
{
    if (!model) {
        return;
    }
    for (int i = 0; model->maps && i < mo_gguf_parts(model->gguf); i++) {
        mo_mapped_close(model->maps[i]);
    }
    if (model->region) {
        mo_host_free_huge(model->region, model->region_bytes);
    }
    mo_gguf_close(model->gguf);
    mo_arena_destroy(model->arena);
    free(model->bindings);
    free(model);
}

bool mo_checkpoint_mapped(const mo_checkpoint *model)
{
    return model->maps != NULL;
}

mo_status mo_checkpoint_check(const mo_checkpoint *model, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; model->maps && i < mo_gguf_parts(model->gguf) && status == MO_OK; i++) {
        status = mo_mapped_check(model->maps[i], err);
    }
    return status;
}

/* A draft model only needs the model's vocabulary, and a state that can be trimmed. */
static mo_status check_draft_model(const mo_checkpoint *draft, const mo_checkpoint *model, mo_error *err)
{
    const mo_model_spec *spec = &draft->spec;
    for (int i = 0; i < spec->layer_count; i++) {
        if (mo_layer_recurrent(&spec->layers[i])) {
            return mo_fail(err, MO_EUNSUPPORTED,
                           "%s cannot guess for a model: its layer %d is recurrent, and cannot take tokens "
                           "back; name a draft model whose layers all attend",
                           draft->path, i);
        }
    }
    if (spec->vocab != model->spec.vocab) {
        return mo_fail(
            err, MO_EINVAL,
            "%s cannot guess for the model: it has %lld tokens, the model %lld; name a draft model "
            "with the same tokens",
            draft->path, (long long)spec->vocab, (long long)model->spec.vocab);
    }
    return mo_tokens_same(draft->gguf, model->gguf, err);
}

mo_status mo_checkpoint_borrow(mo_checkpoint *head, const mo_checkpoint *model, mo_error *err)
{
    return mo_linear_present(&head->spec.head.join) ? mo_head_borrow(&head->spec, &model->spec, err)
                                                    : check_draft_model(head, model, err);
}

const mo_gguf *mo_checkpoint_gguf(const mo_checkpoint *model)
{
    return model->gguf;
}

const mo_binding *mo_checkpoint_bindings(const mo_checkpoint *model, size_t *count)
{
    *count = model->binding_count;
    return model->bindings;
}

const mo_model_spec *mo_checkpoint_spec(const mo_checkpoint *model)
{
    return &model->spec;
}

const mo_home *mo_checkpoint_homes(const mo_checkpoint *model, size_t *count)
{
    *count = model->home_count;
    return model->homes;
}

const char *mo_checkpoint_path(const mo_checkpoint *model)
{
    return model->path;
}

mo_checkpoint_bytes mo_checkpoint_resident(const mo_checkpoint *model)
{
    return model->bytes;
}

uint64_t mo_checkpoint_bytes_per_token(const mo_checkpoint *model)
{
    return model->token_bytes;
}

uint8_t *mo_checkpoint_region(const mo_checkpoint *model, size_t *bytes)
{
    *bytes = model->region_bytes;
    return model->region;
}
