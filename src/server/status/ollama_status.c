/* Ollama status: what its front ends look at before they ask. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/common/body.h"
#include "server/status/model_json.h"
#include "server/status/status.h"

/* Front ends compare it with the versions that brought what they need. */
static const char version_json[] = "{\"version\":\"0.12.0\"}";

static void refuse(srv_request *q, srv_fault_kind kind, const char *format, const char *name)
{
    srv_fault fault;
    srv_fault_set(&fault, kind, NULL, format, name);
    srv_reply_fault(q, &fault);
    srv_request_end(q);
}

static void version(void *owner, srv_request *q)
{
    (void)owner;
    srv_reply(q, 200, NULL, version_json, sizeof version_json - 1);
    srv_request_end(q);
}

static void tags(void *owner, srv_request *q)
{
    srv_models *models = owner;
    srv_model_report r;
    json_t *list = json_array();
    for (int i = 0, count = srv_models_count(models); i < count; i++) {
        if (srv_models_describe(models, i, &r)) {
            json_array_append_new(list, srv_model_json_ollama(&r));
        }
    }
    srv_reply_json(q, 200, json_pack("{s:o}", "models", list));
    srv_request_end(q);
}

static void ps(void *owner, srv_request *q)
{
    srv_models *models = owner;
    srv_model_report r;
    json_t *list = json_array();
    for (int i = 0, count = srv_models_count(models); i < count; i++) {
        srv_model *model = srv_models_peek(models, i);
        if (!model) {
            continue;
        }
        srv_models_describe(models, i, &r);
        char expires[48];
        mo_device_report device;
        const double left = r.keep_s < 0 || r.pinned ? 1e9 : r.idle_s < 0 ? r.keep_s : r.keep_s - r.idle_s;
        mo_model_device(srv_model_mo(model), &device, sizeof device);
        json_t *one = srv_model_json_ollama(&r);
        json_object_set_new(one, "expires_at",
                            json_string(srv_time_text((struct timespec){.tv_sec = time(NULL) + (time_t)left},
                                                      9, expires, sizeof expires)));
        json_object_set_new(one, "size_vram", json_integer(device.name ? device.peak_bytes : 0));
        json_object_set_new(one, "context_length", json_integer(r.context));
        json_array_append_new(list, one);
        srv_models_unpeek(model);
    }
    srv_reply_json(q, 200, json_pack("{s:o}", "models", list));
    srv_request_end(q);
}

/* Whether a template writes thoughts is seen in its words. */
static json_t *capabilities(const char *template, bool pictures)
{
    json_t *list = json_pack("[s]", "completion");
    if (template && mo_chat_template_shows_tools(template)) {
        json_array_append_new(list, json_string("tools"));
    }
    if (template && (strstr(template, "think") || strstr(template, "reasoning"))) {
        json_array_append_new(list, json_string("thinking"));
    }
    if (pictures) {
        json_array_append_new(list, json_string("vision"));
    }
    return list;
}

static json_t *model_info(const mo_file *file, bool verbose)
{
    json_t *info = json_object();
    mo_metadata_info entry;
    for (int64_t i = 0; mo_file_metadata(file, i, &entry, sizeof entry); i++) {
        if (strncmp(entry.key, "tokenizer.chat_template", 23) != 0) { /* it is sent separately */
            json_object_set_new(info, entry.key, srv_metadata_json(file, i, verbose));
        }
    }
    return info;
}

static void show(void *owner, srv_request *q)
{
    const mo_text body = srv_request_body(q);
    json_t *root = srv_body_json(body);
    const char *name = json_string_value(json_object_get(root, "model"));
    name = name ? name : json_string_value(json_object_get(root, "name"));
    const bool verbose = json_is_true(json_object_get(root, "verbose"));
    srv_models *models = owner;
    const int index = name ? srv_models_find(models, name) : -1;
    srv_model_report r;
    mo_file *file = NULL;
    mo_error err;
    char modified[48];
    if (!name) {
        refuse(q, SRV_FAULT_REQUEST, "%s", "model is required");
    } else if (index < 0 || !srv_models_describe(models, index, &r)) {
        refuse(q, SRV_FAULT_MODEL, "model '%s' not found", name);
    } else if (mo_file_open(r.path, &file, &err) != MO_OK) {
        char text[1024];
        srv_fault_words(&err, r.path, text, sizeof text);
        refuse(q, SRV_FAULT_SERVER, "%s", text);
    } else {
        json_t *template = srv_metadata_text(file, "tokenizer.chat_template");
        const char *text = json_string_value(template);
        json_t *info = model_info(file, verbose);
        json_object_set_new(info, "general.parameter_count", json_integer(r.parameters));
        srv_reply_json(
            q, 200,
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "license", "", "modelfile", "",
                      "parameters", "", "template", text ? text : "", "modified_at",
                      srv_time_text((struct timespec){.tv_sec = r.modified}, 9, modified, sizeof modified),
                      "details", srv_model_json_details(&r), "model_info", info, "capabilities",
                      capabilities(text, r.pictures)));
        json_decref(template);
        mo_file_close(file);
        srv_request_end(q);
    }
    json_decref(root);
}

/* A model that is there need not be fetched; others cannot be. */
static void pull(void *owner, srv_request *q)
{
    const mo_text body = srv_request_body(q);
    json_t *root = srv_body_json(body);
    const char *name = json_string_value(json_object_get(root, "model"));
    name = name ? name : json_string_value(json_object_get(root, "name"));
    if (name && srv_models_find(owner, name) >= 0) {
        static const char done[] = "{\"status\":\"success\"}\n";
        srv_reply(q, 200, "application/x-ndjson", done, sizeof done - 1);
        srv_request_end(q);
    } else {
        refuse(q, SRV_FAULT_NOT_SUPPORTED, "%s",
               "this server does not download models; run moraine pull on its machine");
    }
    json_decref(root);
}

static void unsupported(void *owner, srv_request *q)
{
    (void)owner;
    refuse(q, SRV_FAULT_NOT_SUPPORTED, "%s", "this server does not modify model files");
}

const srv_route srv_ollama_status_routes[] = {
    {"GET", "/api/version", version, SRV_QUICK},
    {"GET", "/api/tags", tags, SRV_STATUS},
    {"GET", "/api/ps", ps, SRV_STATUS},
    {"POST", "/api/show", show, SRV_STATUS},
    {"POST", "/api/pull", pull, SRV_STATUS | SRV_ADMIN},
    {"POST", "/api/push", unsupported, SRV_STATUS | SRV_ADMIN},
    {"POST", "/api/create", unsupported, SRV_STATUS | SRV_ADMIN},
    {"POST", "/api/copy", unsupported, SRV_STATUS | SRV_ADMIN},
    {"DELETE", "/api/delete", unsupported, SRV_STATUS | SRV_ADMIN},
    {"POST", "/api/blobs/{*}", unsupported, SRV_STATUS | SRV_ADMIN},
    {NULL, NULL, NULL, 0},
};
