#include "synth/like.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* ---- Shape ---- */

static int64_t number_of(const mo_gguf *g, const char *suffix)
{
    char key[256];
    int64_t value = 0;
    mo_error ignored;
    if (mo_gguf_arch_key(g, suffix, key, sizeof key, &ignored) != MO_OK ||
        mo_gguf_i64_or(g, key, 0, &value, &ignored) != MO_OK) {
        return 0;
    }
    return value < 0 || value > INT32_MAX ? 0 : value;
}

mo_status mo_like_read(const mo_gguf *g, const char *name, mo_like *out, mo_error *err)
{
    const char *architecture;
    mo_status status = mo_gguf_string(g, "general.architecture", &architecture, err);
    if (status != MO_OK) {
        return status;
    }
    const char *slash = strrchr(name, '/');
    *out = (mo_like){.g = g,
                     .shape = {.name = name,
                               .title = slash && (*name == '/' || *name == '.') ? slash + 1 : name,
                               .architecture = architecture,
                               .layers = (int32_t)number_of(g, "block_count"),
                               .width = (int32_t)number_of(g, "embedding_length"),
                               .experts = (int32_t)number_of(g, "expert_count"),
                               .tied = !mo_gguf_tensor_find(g, "output.weight")}};
    if (out->shape.layers == 0) {
        return mo_fail(err, MO_EFORMAT, "%s: the header does not say how many layers the model has", name);
    }
    for (int64_t i = 0; i < mo_gguf_tensor_count(g); i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(g, i);
        if (t->dims < 1 || t->dims > 4 || t->size[3] > 1) {
            return mo_fail(err, MO_EUNSUPPORTED,
                           "%s: tensor %s has %d dimensions; random weights are made for one to three", name,
                           t->name, t->dims);
        }
        if (t->format->kind == MO_KIND_INTEGER && t->format->block_bytes != 4) {
            return mo_fail(err, MO_EUNSUPPORTED, "%s: tensor %s is %s; random weights cannot have that", name,
                           t->name, t->format->name);
        }
    }
    return MO_OK;
}

/* ---- Tensors ---- */

static bool ends(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* The role of a tensor whose name is in no known shape. */
static mo_shape_role guess_role(const mo_gguf_tensor *t)
{
    return ends(t->name, ".bias")                                ? MO_SHAPE_BIAS
           : strstr(t->name, "norm")                             ? MO_SHAPE_NORM
           : t->dims == 1                                        ? MO_SHAPE_ONE
           : strstr(t->name, "_exps") && strstr(t->name, "down") ? MO_SHAPE_EXPERT_DOWN
           : strstr(t->name, "_exps")                            ? MO_SHAPE_EXPERT
                                                                 : MO_SHAPE_MATRIX;
}

/* The matrix that a scale tensor belongs to. NULL: it is not a scale tensor. */
static const mo_gguf_tensor *scaled_by(const mo_gguf *g, const mo_gguf_tensor *t)
{
    char name[MO_GGUF_NAME + 8];
    if (!ends(t->name, ".scale")) {
        return NULL;
    }
    snprintf(name, sizeof name, "%.*sweight", (int)(strlen(t->name) - strlen("scale")), t->name);
    return mo_gguf_tensor_find(g, name);
}

static mo_shape_role role_of(const mo_like *like, const mo_gguf_tensor *t, const char *name)
{
    mo_shape_role role = MO_SHAPE_SCALE;
    if (!scaled_by(like->g, t) && !mo_shape_role_named(like->shape.architecture, name, &role)) {
        role = guess_role(t);
    }
    if (role == MO_SHAPE_TOKENS && t->format->type == MO_I32 && t->dims == 2) {
        return role;
    }
    /* Values around a center are generated only as F32. */
    return !mo_shape_mixed(role) && t->format->type != MO_F32 ? MO_SHAPE_MATRIX : role;
}

int64_t mo_like_tensors(const mo_like *like, int layers, mo_shape_tensor *out, mo_type *types,
                        int64_t capacity)
{
    int64_t count = 0;
    for (int64_t i = 0; i < mo_gguf_tensor_count(like->g); i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(like->g, i);
        int layer = -1, read = 0;
        const bool in_layer = sscanf(t->name, "blk.%d.%n", &layer, &read) == 1 && read > 0;
        if (in_layer && layer >= layers) {
            continue;
        }
        if (count < capacity) {
            mo_shape_tensor *s = &out[count];
            *s = (mo_shape_tensor){.dims = t->dims < 3 ? t->dims : 3, /* the fourth size is 1 */
                                   .size = {t->size[0], t->size[1], t->size[2]},
                                   .role = role_of(like, t, in_layer ? t->name + read : t->name),
                                   .layer = in_layer ? layer : -1};
            snprintf(s->name, sizeof s->name, "%s", t->name);
            types[count] = t->format->type;
        }
        count++;
    }
    return count;
}

/* ---- Metadata ---- */

/* Keys that the writer sets itself, and name and description, which the creator of the file sets. */
static bool is_said_anew(const char *key)
{
    return strncmp(key, "split.", 6) == 0 || strcmp(key, "general.alignment") == 0 ||
           strcmp(key, "general.name") == 0 || strcmp(key, "general.description") == 0;
}

static bool is_by_layer(const mo_like *like, const mo_metadata_info *info)
{
    const size_t prefix = strlen(like->shape.architecture);
    return info->is_array && info->count == (uint64_t)like->shape.layers &&
           strncmp(info->key, like->shape.architecture, prefix) == 0 && info->key[prefix] == '.' &&
           !ends(info->key, "dimension_sections");
}

void mo_like_keys(const mo_like *like, int layers, mo_gguf_writer *w)
{
    char count_key[256] = "", ahead_key[256] = "";
    mo_error ignored;
    mo_metadata_info info;
    const bool cut = layers < like->shape.layers;
    mo_gguf_arch_key(like->g, "block_count", count_key, sizeof count_key, &ignored);
    mo_gguf_arch_key(like->g, "nextn_predict_layers", ahead_key, sizeof ahead_key, &ignored);
    for (int64_t i = 0; i < mo_gguf_entry_count(like->g); i++) {
        const mo_gguf_entry *entry = mo_gguf_entry_at(like->g, i);
        mo_gguf_entry_info(entry, &info);
        if (cut && strcmp(info.key, count_key) == 0) {
            mo_gguf_put_u32(w, info.key, (uint32_t)layers);
        } else if (cut && strcmp(info.key, ahead_key) == 0) { /* prediction layers are last and are cut off */
            mo_gguf_put_u32(w, info.key, 0);
        } else if (!is_said_anew(info.key)) {
            mo_gguf_put_first(w, like->g, entry,
                              cut && is_by_layer(like, &info) ? (uint64_t)layers : info.count);
        }
    }
}
