/* Model JSON: see model_json.h. */
#include "server/status/model_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "server/common/body.h"

const char *srv_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *state_text(srv_model_state state)
{
    static const char *const names[] = {[SRV_MODEL_UNLOADED] = "unloaded",
                                        [SRV_MODEL_LOADING] = "loading",
                                        [SRV_MODEL_LOADED] = "loaded",
                                        [SRV_MODEL_LEAVING] = "unloading"};
    return names[state];
}

static json_t *alias_list(const char *alias)
{
    json_t *list = json_array();
    while (alias && *alias) {
        const size_t length = strcspn(alias, ",");
        json_array_append_new(list, srv_json_text(alias, length));
        alias += length + (alias[length] == ',');
    }
    return list;
}

json_t *srv_model_json_capabilities(const srv_model_report *r)
{
    json_t *can = json_pack("[s]", "completion");
    if (r->pictures) {
        json_array_append_new(can, json_string("multimodal"));
    }
    return can;
}

json_t *srv_model_json_openai(srv_models *models, int index, const srv_model_report *r)
{
    mo_model_info info = {0};
    srv_model *model = srv_models_peek(models, index);
    const int64_t n_ctx = r->context ? r->context : r->made_for;
    if (model) {
        mo_model_describe(srv_model_mo(model), &info, sizeof info);
    }
    json_t *meta = json_pack("{s:I, s:I, s:I, s:I, s:s}", "n_ctx", (json_int_t)n_ctx, "n_ctx_train",
                             (json_int_t)r->made_for, "n_params", (json_int_t)r->parameters, "size",
                             (json_int_t)r->file_bytes, "ftype", r->format);
    if (model) {
        json_object_set_new(meta, "n_vocab", json_integer(info.vocab));
        json_object_set_new(meta, "n_embd", json_integer(info.width));
        srv_models_unpeek(model);
    }
    return json_pack("{s:s, s:s, s:I, s:s, s:o, s:[], s:I, s:I, s:o, s:o, s:{s:s, s:f, s:b, s:b}}", "id",
                     r->id, "object", "model", "created", (json_int_t)r->modified, "owned_by", "moraine",
                     "aliases", alias_list(r->alias), "tags", "max_model_len", (json_int_t)n_ctx,
                     "max_context_length", (json_int_t)r->made_for, "meta", meta, "capabilities",
                     srv_model_json_capabilities(r), "status", "value", state_text(r->state), "progress",
                     r->state == SRV_MODEL_LOADED ? 1.0 : r->load_share, "pinned", r->pinned, "failed",
                     r->failed);
}

json_t *srv_model_json_details(const srv_model_report *r)
{
    char size[32];
    if (r->parameters >= 1000000000) {
        snprintf(size, sizeof size, "%.1fB", (double)r->parameters * 1e-9);
    } else {
        snprintf(size, sizeof size, "%.2fM", (double)r->parameters * 1e-6);
    }
    return json_pack("{s:s, s:s, s:o, s:[o], s:s, s:s}", "parent_model", "", "format", "gguf", "family",
                     srv_json_ctext(r->architecture), "families", srv_json_ctext(r->architecture),
                     "parameter_size", size, "quantization_level", r->format);
}

/* Ollama tells models apart by the hash of their contents, which is not computed here: by what names the file. */
static void digest(const srv_model_report *r, char *text, size_t size)
{
    uint64_t h = MO_HASH_SEED ^ (uint64_t)r->file_bytes ^ ((uint64_t)r->modified << 20);
    size_t used = 0;
    h = mo_hash(h, r->path, strlen(r->path));
    while (used + 17 <= size) {
        used += (size_t)snprintf(text + used, size - used, "%016" PRIx64, h);
        h = (h ^ used) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
}

json_t *srv_model_json_ollama(const srv_model_report *r)
{
    char modified[48], hash[65], name[512];
    digest(r, hash, sizeof hash);
    snprintf(name, sizeof name, "%s%s", r->id, strchr(r->id, ':') ? "" : ":latest");
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name", name, "model", name, "modified_at",
                     srv_time_text((struct timespec){.tv_sec = r->modified}, 9, modified, sizeof modified),
                     "size", (json_int_t)r->file_bytes, "digest", hash, "details", srv_model_json_details(r));
}

/* The index of a key; -1: there is none. */
static int64_t find(const mo_file *file, const char *key)
{
    mo_metadata_info info;
    for (int64_t i = 0; mo_file_metadata(file, i, &info, sizeof info); i++) {
        if (strcmp(info.key, key) == 0) {
            return i;
        }
    }
    return -1;
}

static json_t *value_json(const mo_value *v)
{
    switch (v->type) {
    case MO_VALUE_STRING: return srv_json_text(v->as.s.data, v->as.s.length);
    case MO_VALUE_BOOL: return json_boolean(v->as.b);
    case MO_VALUE_F32:
    case MO_VALUE_F64: return isfinite(v->as.r) ? json_real(v->as.r) : json_null();
    case MO_VALUE_U8:
    case MO_VALUE_U16:
    case MO_VALUE_U32:
    case MO_VALUE_U64: return json_integer((json_int_t)v->as.u);
    default: return json_integer((json_int_t)v->as.i);
    }
}

json_t *srv_metadata_json(const mo_file *file, int64_t index, bool arrays)
{
    mo_metadata_info info;
    mo_value value;
    if (!mo_file_metadata(file, index, &info, sizeof info)) {
        return json_null();
    }
    if (!info.is_array) {
        return mo_file_metadata_value(file, index, 0, &value) ? value_json(&value) : json_null();
    }
    json_t *list = json_array();
    for (uint64_t i = 0; arrays && i < info.count && mo_file_metadata_value(file, index, i, &value); i++) {
        json_array_append_new(list, value_json(&value));
    }
    return list;
}

json_t *srv_metadata_text(const mo_file *file, const char *key)
{
    mo_value value;
    const int64_t index = find(file, key);
    return index >= 0 && mo_file_metadata_value(file, index, 0, &value) && value.type == MO_VALUE_STRING
               ? srv_json_text(value.as.s.data, value.as.s.length)
               : NULL;
}

json_t *srv_metadata_token(const mo_file *file, const char *key)
{
    mo_value id, token;
    const int64_t index = find(file, key);
    const int64_t tokens = find(file, "tokenizer.ggml.tokens");
    if (index < 0 || tokens < 0 || !mo_file_metadata_value(file, index, 0, &id) ||
        (id.type != MO_VALUE_U32 && id.type != MO_VALUE_U64) ||
        !mo_file_metadata_value(file, tokens, id.as.u, &token) || token.type != MO_VALUE_STRING) {
        return json_string("");
    }
    return srv_json_text(token.as.s.data, token.as.s.length);
}

int srv_asked_index(srv_models *models, srv_request *q)
{
    const char *name = srv_request_query(q, "model");
    const int index = srv_models_find(models, name);
    if (index < 0) {
        srv_reply_refusal(q, SRV_FAULT_MODEL, NULL,
                          name ? "there is no model of that name" : "there is no model");
    }
    return index;
}

srv_model *srv_asked_model(srv_models *models, srv_request *q, int *index)
{
    const int found = srv_asked_index(models, q);
    if (index) {
        *index = found;
    }
    if (found < 0) {
        return NULL;
    }
    srv_model *model = srv_models_peek(models, found);
    if (!model) {
        srv_reply_refusal(q, SRV_FAULT_UNAVAILABLE, NULL, "the model is not loaded");
    }
    return model;
}
