#include "gguf/summary.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"

#define LAYER_LIMIT 65536 /* higher numbers of layers and experts are treated as damage */

typedef struct layer_experts {
    int64_t bytes;    /* of all experts of the layer */
    int64_t min, max; /* of one expert */
} layer_experts;

/* One matrix of one expert in the older layout, where the three matrices of an expert may be apart. */
typedef struct lone_matrix {
    int layer, expert;
    int64_t bytes;
} lone_matrix;

typedef struct sums {
    const mo_gguf *g;
    mo_file_info *out;
    mo_error *err;
    layer_experts *layers; /* grows to the highest layer in the file */
    int layer_count;
    lone_matrix *lone; /* grows with the tensors read, so the file's size bounds it */
    int64_t lone_count;
    size_t lone_capacity;
    int64_t format_tensors[MO_TYPE_LIMIT], format_values[MO_TYPE_LIMIT], format_bytes[MO_TYPE_LIMIT];
    int64_t embedding_bytes; /* the whole matrix; also the output matrix if they are tied */
} sums;

/* ---- Names ---- */

/* Reads digits at *p and advances it. -1: none, or too many. */
static int read_number(const char **p)
{
    int n = 0, digits = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++, digits++) {
        if (n >= LAYER_LIMIT) {
            return -1;
        }
        n = n * 10 + (**p - '0');
    }
    return digits && n < LAYER_LIMIT ? n : -1;
}

static bool starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool ends(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* The role of the name after "blk.N.": ffn_{gate,up,down,gate_up}_exps.*, ffn_{gate,up,down}.E.weight,
   other. */
static mo_tensor_role layer_role(const char *name)
{
    static const char *const merged[] = {"ffn_gate_exps.", "ffn_up_exps.", "ffn_down_exps.",
                                         "ffn_gate_up_exps."};
    static const char *const single[] = {"ffn_gate.", "ffn_up.", "ffn_down."};
    if (starts(name, "nextn.")) {
        return MO_ROLE_UNUSED;
    }
    for (size_t i = 0; i < sizeof merged / sizeof *merged; i++) {
        if (starts(name, merged[i])) {
            return MO_ROLE_EXPERTS;
        }
    }
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        if (starts(name, single[i])) {
            const char *p = name + strlen(single[i]);
            return read_number(&p) >= 0 && *p == '.' ? MO_ROLE_EXPERT : MO_ROLE_OTHER;
        }
    }
    return MO_ROLE_OTHER;
}

mo_tensor_role mo_tensor_role_of(const char *name, int layers, int *layer)
{
    const char *p = name;
    *layer = -1;
    if (ends(name, ".input_scale")) { /* quantization scales for other engines; not used */
        return MO_ROLE_UNUSED;
    }
    if (starts(name, "blk.")) {
        p += strlen("blk.");
        int n = read_number(&p);
        if (n >= 0 && *p == '.') {
            *layer = n;
            return layers > 0 && n >= layers ? MO_ROLE_UNUSED : layer_role(p + 1);
        }
    }
    if (strcmp(name, "token_embd.weight") == 0 || strcmp(name, "per_layer_token_embd.weight") == 0) {
        return MO_ROLE_EMBEDDING;
    }
    if (starts(name, "nextn.")) {
        return MO_ROLE_UNUSED;
    }
    return strcmp(name, "output.weight") == 0 ? MO_ROLE_OUTPUT : MO_ROLE_OTHER;
}

/* ---- Metadata ---- */

/* A count from the metadata of the architecture. 0: missing; the largest if there is one for each layer. */
static mo_status count_of(sums *s, const char *suffix, int64_t limit, int64_t *out)
{
    char key[256];
    *out = 0;
    if (s->out->architecture[0] == 0) {
        return MO_OK;
    }
    mo_status status = mo_gguf_arch_key(s->g, suffix, key, sizeof key, s->err);
    if (status != MO_OK) {
        return status;
    }
    const mo_gguf_entry *e = mo_gguf_find(s->g, key);
    mo_metadata_info info = {0};
    if (e) {
        mo_gguf_entry_info(e, &info);
    }
    for (uint64_t i = 0; i < info.count; i++) {
        int64_t n;
        status = mo_gguf_i64_of(s->g, key, i, &n, s->err);
        if (status == MO_OK && (n < 0 || n > limit)) {
            status = mo_fail(s->err, MO_EFORMAT,
                             "%s: key %s is %lld, outside 0 to %lld; the file is damaged, download it again",
                             mo_gguf_part_path(s->g, 0), key, (long long)n, (long long)limit);
        }
        if (status != MO_OK) {
            return status;
        }
        *out = n > *out ? n : *out;
    }
    return MO_OK;
}

static mo_status read_metadata(sums *s)
{
    mo_file_info *out = s->out;
    int64_t blocks = 0, nextn = 0, experts = 0, used = 0;
    mo_status status = mo_gguf_string_or(s->g, "general.architecture", "", &out->architecture, s->err);
    if (mo_gguf_string_or(s->g, "general.name", "", &out->name, NULL) != MO_OK) {
        out->name = ""; /* not used */
    }
    if (status == MO_OK) {
        status = count_of(s, "block_count", LAYER_LIMIT, &blocks);
    }
    if (status == MO_OK) {
        status = count_of(s, "nextn_predict_layers", LAYER_LIMIT, &nextn);
    }
    if (status == MO_OK) {
        status = count_of(s, "expert_count", LAYER_LIMIT, &experts);
    }
    if (status == MO_OK) {
        status = count_of(s, "expert_used_count", LAYER_LIMIT, &used);
    }
    if (status == MO_OK) {
        status = count_of(s, "context_length", INT64_MAX, &out->context_length);
    }
    if (status != MO_OK) {
        return status;
    }
    if (nextn > blocks || used > experts) {
        return mo_fail(s->err, MO_EFORMAT,
                       "%s: the metadata specify %lld of %lld experts and %lld of %lld layers "
                       "for multi-token prediction; the file is damaged, download it again",
                       mo_gguf_part_path(s->g, 0), (long long)used, (long long)experts, (long long)nextn,
                       (long long)blocks);
    }
    out->layers = (int)(blocks - nextn);
    out->mtp_layers = (int)nextn;
    out->experts = (int)experts;
    out->experts_used = (int)used;
    return MO_OK;
}

/* ---- Tensors ---- */

static mo_status no_memory(sums *s)
{
    return mo_fail(s->err, MO_ENOMEM, "out of memory while summarizing a model; free some and try again");
}

static layer_experts *layer_at(sums *s, int layer)
{
    assert(layer >= 0 && layer < LAYER_LIMIT);
    if (layer >= s->layer_count) {
        int count = s->layer_count * 2;
        count = count > layer ? count : layer + 1;
        layer_experts *grown = realloc(s->layers, (size_t)count * sizeof *grown);
        if (!grown) {
            no_memory(s);
            return NULL;
        }
        memset(grown + s->layer_count, 0, (size_t)(count - s->layer_count) * sizeof *grown);
        s->layers = grown;
        s->layer_count = count;
    }
    return &s->layers[layer];
}

/* Adds a tensor that contains a slice for each expert of its layer. */
static mo_status add_experts(sums *s, const mo_gguf_tensor *t, int layer)
{
    const int64_t in_tensor = t->dims ? t->size[t->dims - 1] : 1;
    layer_experts *l = layer_at(s, layer);
    if (!l) {
        return MO_ENOMEM;
    }
    if (in_tensor < 1 || in_tensor != s->out->experts) {
        return mo_fail(s->err, MO_EFORMAT,
                       "%s: tensor %s has slices for %lld experts, but the metadata specify "
                       "%d; the file is damaged or malformed, download or convert it again",
                       mo_gguf_part_path(s->g, t->part), t->name, (long long)in_tensor, s->out->experts);
    }
    l->bytes += t->bytes;
    l->min += t->bytes / in_tensor;
    l->max += t->bytes / in_tensor;
    return MO_OK;
}

static mo_status add_expert(sums *s, const mo_gguf_tensor *t, int layer)
{
    const char *p = strstr(t->name, "ffn_") + strlen("ffn_");
    p = strchr(p, '.') + 1;
    const int expert = read_number(&p);
    if (expert >= s->out->experts) {
        return mo_fail(s->err, MO_EFORMAT,
                       "%s: tensor %s belongs to an expert beyond the %d of the metadata; "
                       "the file is damaged or malformed, download or convert it again",
                       mo_gguf_part_path(s->g, t->part), t->name, s->out->experts);
    }
    if (!mo_array_reserve(&s->lone, &s->lone_capacity, (size_t)s->lone_count + 1, sizeof *s->lone)) {
        return no_memory(s);
    }
    s->lone[s->lone_count++] = (lone_matrix){layer, expert, t->bytes};
    return MO_OK;
}

static int by_expert(const void *a, const void *b)
{
    const lone_matrix *x = a, *y = b;
    if (x->layer != y->layer) {
        return x->layer < y->layer ? -1 : 1;
    }
    return (x->expert > y->expert) - (x->expert < y->expert);
}

/* Adds the experts of the older layout to their layers. */
static mo_status gather_lone(sums *s)
{
    if (s->lone_count) {
        qsort(s->lone, (size_t)s->lone_count, sizeof *s->lone, by_expert);
    }
    for (int64_t i = 0; i < s->lone_count;) {
        const int layer = s->lone[i].layer;
        int64_t min = INT64_MAX, max = 0, all = 0, count = 0;
        while (i < s->lone_count && s->lone[i].layer == layer) {
            const int expert = s->lone[i].expert;
            int64_t bytes = 0;
            for (; i < s->lone_count && s->lone[i].layer == layer && s->lone[i].expert == expert; i++) {
                bytes += s->lone[i].bytes;
            }
            min = bytes < min ? bytes : min;
            max = bytes > max ? bytes : max;
            all += bytes;
            count++;
        }
        if (count != s->out->experts) {
            return mo_fail(s->err, MO_EFORMAT,
                           "%s: layer %d has %lld experts, but the metadata specify %d; "
                           "the file is damaged or malformed, download or convert it again",
                           mo_gguf_part_path(s->g, 0), layer, (long long)count, s->out->experts);
        }
        layer_experts *l = layer_at(s, layer);
        if (!l) {
            return MO_ENOMEM;
        }
        l->bytes += all;
        l->min += min;
        l->max += max;
    }
    return MO_OK;
}

static mo_status add_tensor(sums *s, const mo_gguf_tensor *t)
{
    mo_file_info *out = s->out;
    int layer;
    out->parameters += t->values;
    out->tensor_bytes += t->bytes;
    s->format_tensors[t->format->type]++;
    s->format_values[t->format->type] += t->values;
    s->format_bytes[t->format->type] += t->bytes;
    mo_tensor_role role = mo_tensor_role_of(t->name, out->layers, &layer);
    if ((role == MO_ROLE_EXPERTS || role == MO_ROLE_EXPERT) && out->experts == 0) {
        /* a file of an unknown family may use other keys for its experts; it can still be
           inspected */
        role = MO_ROLE_OTHER;
    }
    switch (role) {
    case MO_ROLE_EXPERTS: return add_experts(s, t, layer);
    case MO_ROLE_EXPERT: return add_expert(s, t, layer);
    case MO_ROLE_OUTPUT: out->token_output_bytes += t->bytes; break;
    case MO_ROLE_EMBEDDING:
        out->token_embedding_bytes += mo_format_row_bytes(t->format, t->size[0]);
        if (strcmp(t->name, "token_embd.weight") == 0) {
            s->embedding_bytes = t->bytes;
        }
        break;
    case MO_ROLE_OTHER: out->token_other_bytes += t->bytes; break;
    case MO_ROLE_UNUSED: break;
    }
    return MO_OK;
}

/* ---- The whole summary ---- */

static void finish_experts(sums *s)
{
    mo_file_info *out = s->out;
    for (int i = 0; i < s->layer_count; i++) {
        const layer_experts *l = &s->layers[i];
        if (l->bytes == 0) {
            continue;
        }
        if (out->expert_layers == 0 || l->min < out->expert_bytes_min) {
            out->expert_bytes_min = l->min;
        }
        out->expert_bytes_max = l->max > out->expert_bytes_max ? l->max : out->expert_bytes_max;
        out->expert_layers++;
        out->expert_bytes_total += l->bytes;
        out->token_expert_bytes += l->bytes / out->experts * out->experts_used;
    }
}

static int by_bytes(const void *a, const void *b)
{
    const mo_file_format *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? 1 : -1;
    }
    return strcmp(x->type, y->type);
}

static void finish_formats(sums *s, mo_file_format *formats)
{
    mo_file_info *out = s->out;
    out->format = formats;
    for (uint32_t type = 0; type < MO_TYPE_LIMIT; type++) {
        if (s->format_tensors[type]) {
            formats[out->formats++] = (mo_file_format){mo_format_of(type)->name, s->format_tensors[type],
                                                       s->format_values[type], s->format_bytes[type]};
        }
    }
    qsort(formats, (size_t)out->formats, sizeof *formats, by_bytes);
}

mo_status mo_gguf_summarize(const mo_gguf *g, mo_file_info *out, mo_file_format *formats, mo_error *err)
{
    mo_file_info result = {0};
    sums s = {.g = g, .out = &result, .err = err};
    mo_status status = read_metadata(&s);
    result.version = (int)mo_gguf_version(g);
    result.parts = mo_gguf_parts(g);
    result.tensors = mo_gguf_tensor_count(g);
    for (int p = 0; p < result.parts; p++) {
        result.file_bytes += mo_gguf_part_bytes(g, p);
    }
    for (int64_t i = 0; i < result.tensors && status == MO_OK; i++) {
        status = add_tensor(&s, mo_gguf_tensor_at(g, i));
    }
    if (status == MO_OK) {
        status = gather_lone(&s);
    }
    if (status == MO_OK) {
        finish_experts(&s);
        finish_formats(&s, formats);
        if (result.token_output_bytes == 0 && s.embedding_bytes) {
            result.output_tied = true;
            result.token_output_bytes = s.embedding_bytes;
        }
        result.token_bytes = result.token_expert_bytes + result.token_other_bytes +
                             result.token_output_bytes + result.token_embedding_bytes;
        *out = result;
    }
    free(s.layers);
    free(s.lone);
    return status;
}
