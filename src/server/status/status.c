/* Status: see status.h. The endpoints of llama-server: models, props. */
#include "server/status/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/common/body.h"
#include "server/requests/parameters.h"
#include "server/status/model_json.h"

/* ---- Models ---- */

/* Anthropic's clients are told by a header. */
static bool asks_anthropic(const srv_request *q)
{
    return srv_request_header(q, "anthropic-version") != NULL;
}

static json_t *anthropic_model(const srv_model_report *r)
{
    char created[48];
    return json_pack("{s:s, s:s, s:s, s:s}", "type", "model", "id", r->id, "display_name", r->id,
                     "created_at",
                     srv_time_text((struct timespec){.tv_sec = r->modified}, 0, created, sizeof created));
}

/* One page, which ?limit=, ?after_id= and ?before_id= make smaller. */
static void list_anthropic(srv_models *models, srv_request *q)
{
    const char *limit = srv_request_query(q, "limit"), *after = srv_request_query(q, "after_id"),
               *before = srv_request_query(q, "before_id");
    const int count = srv_models_count(models);
    const int most = limit && atoi(limit) > 0 ? atoi(limit) : count;
    int begin = after ? srv_models_find(models, after) + 1 : 0;
    int end = before && srv_models_find(models, before) >= 0 ? srv_models_find(models, before) : count;
    if (before && !after) {
        begin = end > most ? end - most : 0;
    }
    const bool more = end - begin > most;
    end = more ? begin + most : end;
    json_t *data = json_array();
    srv_model_report r;
    for (int i = begin; i < end; i++) {
        if (srv_models_describe(models, i, &r)) {
            json_array_append_new(data, anthropic_model(&r));
        }
    }
    json_t *none = json_null(), *first = json_object_get(json_array_get(data, 0), "id"),
           *last = json_object_get(json_array_get(data, json_array_size(data) - 1), "id");
    srv_reply_json(q, 200,
                   json_pack("{s:o, s:b, s:O, s:O}", "data", data, "has_more", more, "first_id",
                             first ? first : none, "last_id", last ? last : none));
    srv_request_end(q);
}

static void list_models(void *owner, srv_request *q)
{
    srv_models *models = ((const srv_status *)owner)->models;
    if (asks_anthropic(q)) {
        list_anthropic(models, q);
        return;
    }
    json_t *data = json_array(), *others = json_array();
    srv_model_report r;
    for (int i = 0, count = srv_models_count(models); i < count; i++) {
        if (srv_models_describe(models, i, &r)) {
            json_array_append_new(data, srv_model_json_openai(models, i, &r));
            json_t *other = srv_model_json_ollama(&r); /* as llama-server lists models for Ollama's clients */
            json_object_set_new(other, "type", json_string("model"));
            json_object_set_new(other, "capabilities", srv_model_json_capabilities(&r));
            json_array_append_new(others, other);
        }
    }
    srv_reply_json(q, 200, json_pack("{s:s, s:o, s:o}", "object", "list", "data", data, "models", others));
    srv_request_end(q);
}

static void one_model(void *owner, srv_request *q)
{
    srv_models *models = ((const srv_status *)owner)->models;
    srv_model_report r;
    const int index = srv_models_find(models, srv_request_part(q, 0));
    if (index < 0 || !srv_models_describe(models, index, &r)) {
        srv_reply_refusal(q, SRV_FAULT_MODEL, NULL, "there is no model of that name");
        return;
    }
    srv_reply_json(q, 200,
                   asks_anthropic(q) ? anthropic_model(&r) : srv_model_json_openai(models, index, &r));
    srv_request_end(q);
}

/* {"model": name} of a body; NULL after answering. */
static json_t *read_name(srv_request *q, const char **name)
{
    const mo_text body = srv_request_body(q);
    json_t *root = srv_body_json(body);
    *name = json_string_value(json_object_get(root, "model"));
    if (!*name) {
        json_decref(root);
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "model", "missing model name");
        return NULL;
    }
    return root;
}

static void load_model(void *owner, srv_request *q)
{
    srv_models *models = ((const srv_status *)owner)->models;
    const char *name;
    srv_model *model;
    srv_fault fault;
    json_t *root = read_name(q, &name);
    if (!root) {
        return;
    }
    if (srv_models_find(models, name) < 0) {
        srv_reply_refusal(q, SRV_FAULT_MODEL, "model", "there is no model of that name");
    } else if (srv_model_ref(models, name, q, &model, &fault)) {
        srv_model_unref(model);
        srv_reply_json(q, 200, json_pack("{s:b}", "success", 1));
        srv_request_end(q);
    } else {
        srv_reply_fault(q, &fault);
        srv_request_end(q);
    }
    json_decref(root);
}

static void unload_model(void *owner, srv_request *q)
{
    srv_models *models = ((const srv_status *)owner)->models;
    const char *name;
    json_t *root = read_name(q, &name);
    if (!root) {
        return;
    }
    const int index = srv_models_find(models, name);
    if (index < 0) {
        srv_reply_refusal(q, SRV_FAULT_MODEL, "model", "there is no model of that name");
    } else if (!srv_models_unload(models, index)) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "model", "the model is not loaded, or it is pinned");
    } else {
        srv_reply_json(q, 200, json_pack("{s:b}", "success", 1));
        srv_request_end(q);
    }
    json_decref(root);
}

/* ---- Props ---- */

static json_t *real_or(double value, double otherwise)
{
    return json_real(isnan(value) ? otherwise : value);
}

static json_t *whole_or(int64_t value, int64_t otherwise)
{
    return json_integer(value == SRV_NOT_GIVEN ? otherwise : value);
}

static json_t *parameters_json(const srv_defaults *d)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "temperature",
                     real_or(d->temperature, 0.8), "top_k", whole_or(d->top_k, 40), "top_p",
                     real_or(d->top_p, 0.95), "min_p", real_or(d->min_p, 0.05), "seed", whole_or(d->seed, -1),
                     "n_predict", whole_or(d->max_tokens, -1), "max_tokens", whole_or(d->max_tokens, -1),
                     "repeat_penalty", real_or(d->repeat_penalty, 1), "repeat_last_n",
                     whole_or(d->repeat_last_n, 64), "presence_penalty", real_or(d->presence_penalty, 0),
                     "frequency_penalty", real_or(d->frequency_penalty, 0), "stream", 0);
}

static void props(void *owner, srv_request *q)
{
    const srv_status *status = owner;
    srv_models *models = status->models;
    srv_model_report r;
    mo_file *file = NULL;
    char build[64];
    const int index = srv_asked_index(models, q);
    if (index < 0) {
        return;
    }
    srv_models_describe(models, index, &r);
    mo_file_open(r.path, &file, NULL);
    json_t *template = file ? srv_metadata_text(file, "tokenizer.chat_template") : NULL;
    json_t *bos = file ? srv_metadata_token(file, "tokenizer.ggml.bos_token_id") : json_string("");
    json_t *eos = file ? srv_metadata_token(file, "tokenizer.ggml.eos_token_id") : json_string("");
    mo_file_close(file);
    if (r.defaults->template_text) {
        json_decref(template);
        template = srv_json_ctext(r.defaults->template_text);
    }
    json_t *settings =
        json_pack("{s:I, s:o}", "n_ctx", (json_int_t)r.context, "params", parameters_json(r.defaults));
    snprintf(build, sizeof build, "moraine %s", mo_version());
    json_t *root = json_pack(
        "{s:o, s:i, s:s, s:o, s:s, s:{s:b, s:b, s:b}, s:o, s:o, s:o, s:s, s:b, s:b, s:b, s:b, s:{s:b, s:b}}",
        "default_generation_settings", settings, "total_slots", r.parallel, "model_alias", r.id, "model_path",
        srv_json_ctext(srv_file_name(r.path)), "model_ftype", r.format, "modalities", "vision",
        (int)r.pictures, "audio", 0, "video", 0, "chat_template", template ? template : json_string(""),
        "bos_token", bos, "eos_token", eos, "build_info", build, "is_sleeping", r.state != SRV_MODEL_LOADED,
        "endpoint_slots", !status->no_slots, "endpoint_props", 0, "endpoint_metrics", !status->no_metrics,
        "chat_template_caps", "supports_tools", 1, "supports_system_role", 1);
    srv_reply_json(q, 200, root);
    srv_request_end(q);
}

static void change_props(void *owner, srv_request *q)
{
    (void)owner;
    srv_reply_refusal(q, SRV_FAULT_NOT_SUPPORTED, NULL, "settings are fixed when the server is started");
}

const srv_route srv_status_routes[] = {
    {"GET", "[/v1]/models", list_models, SRV_STATUS},
    {"GET", "[/v1]/models/{*}", one_model, SRV_STATUS},
    {"POST", "[/v1]/models/load", load_model, SRV_ADMIN},
    {"POST", "[/v1]/models/unload", unload_model, SRV_STATUS | SRV_ADMIN},
    {"GET", "/props", props, SRV_STATUS},
    {"POST", "/props", change_props, SRV_STATUS | SRV_ADMIN},
    {NULL, NULL, NULL, 0},
};

/* Health: is the server there, and can it be asked? */

static void health(void *owner, srv_request *q)
{
    if (srv_models_beginning(owner)) {
        srv_fault fault;
        srv_fault_set(&fault, SRV_FAULT_UNAVAILABLE, NULL, "Loading model");
        srv_reply_fault(q, &fault);
    } else {
        srv_reply(q, 200, NULL, "{\"status\":\"ok\"}", 15);
    }
    srv_request_end(q);
}

const srv_route srv_health_routes[] = {
    {"GET", "[/v1]/health", health, SRV_QUICK | SRV_PUBLIC},
    {NULL, NULL, NULL, 0},
};

/* Adapters: llama-server's endpoint that lists the adapters of a model and sets the scales that requests begin with. */

static void list_adapters(void *owner, srv_request *q)
{
    srv_model *model = srv_asked_model(owner, q, NULL);
    mo_adapter_use adapters[SRV_ADAPTERS];
    if (!model) {
        return;
    }
    const int count = srv_model_adapters(model, adapters);
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        mo_adapter_info info;
        mo_adapter_describe(adapters[i].adapter, &info, sizeof info);
        json_array_append_new(list, json_pack("{s:i, s:o, s:f, s:o, s:o, s:o, s:I}", "id", i, "path",
                                              srv_json_ctext(info.path), "scale", (double)adapters[i].scale,
                                              "task_name", srv_json_ctext(info.task), "prompt_prefix",
                                              srv_json_ctext(info.prefix), "name", srv_json_ctext(info.name),
                                              "rank", (json_int_t)info.rank));
    }
    srv_reply_json(q, 200, list);
    srv_request_end(q);
    srv_models_unpeek(model);
}

/* A list of ids and scales; adapters that it does not name get 0. */
static void set_scales(void *owner, srv_request *q)
{
    const mo_text body = srv_request_body(q);
    srv_model *model = srv_asked_model(owner, q, NULL);
    mo_adapter_use adapters[SRV_ADAPTERS];
    srv_fault fault = {0};
    if (!model) {
        return;
    }
    const int count = srv_model_adapters(model, adapters);
    json_t *root = srv_body_json(body);
    const srv_field list = srv_field_root(root, &fault);
    if (!root) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, NULL, "expected a list of ids and scales");
    } else if (!srv_adapters_read(&list, adapters, count)) {
        srv_reply_fault(q, &fault);
        srv_request_end(q);
    } else {
        srv_model_scale(model, adapters, count);
        srv_reply_json(q, 200, json_pack("{s:b}", "success", 1));
        srv_request_end(q);
    }
    json_decref(root);
    srv_models_unpeek(model);
}

const srv_route srv_adapter_routes[] = {
    {"GET", "/lora-adapters", list_adapters, SRV_STATUS},
    {"POST", "/lora-adapters", set_scales, SRV_ADMIN},
    {NULL, NULL, NULL, 0},
};
