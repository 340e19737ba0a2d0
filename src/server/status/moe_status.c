/* MoE status: the counts of experts, and applying them, by the paths of the hot-cache design. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "server/common/body.h"
#include "server/status/model_json.h"
#include "server/status/status.h"

static void reply_profile(srv_request *q, mo_model *model)
{
    char *json = NULL;
    mo_error err;
    if (mo_model_profile(model, &json, &err) == MO_OK) {
        srv_reply(q, 200, NULL, json, strlen(json));
        srv_request_end(q);
    } else {
        srv_reply_refusal(q, SRV_FAULT_SERVER, NULL, err.detail);
    }
    mo_free(json);
}

static void get_perf(void *owner, srv_request *q)
{
    int index;
    srv_model *model = srv_asked_model(owner, q, &index);
    if (model) {
        reply_profile(q, srv_model_mo(model));
        srv_models_unpeek(model);
    }
}

static void set_perf(void *owner, srv_request *q)
{
    const mo_text body = srv_request_body(q);
    int index;
    mo_error err;
    srv_model *model = srv_asked_model(owner, q, &index);
    if (!model) {
        return;
    }
    json_t *root = srv_body_json(body);
    const char *mode = json_string_value(json_object_get(root, "mode"));
    if (!mode || (strcmp(mode, "full") != 0 && strcmp(mode, "update") != 0 && strcmp(mode, "off") != 0)) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "mode", "must be full, update or off");
    } else if (mo_model_profile_reset(srv_model_mo(model), mode, &err) != MO_OK) {
        srv_reply_refusal(q, SRV_FAULT_SERVER, NULL, err.detail);
    } else {
        reply_profile(q, srv_model_mo(model));
    }
    json_decref(root);
    srv_models_unpeek(model);
}

/* ---- Applying ---- */

/* What happens between two steps of the engine. */
typedef struct application {
    mo_model *model;
    const char *json;
    mo_profile_report report;
    mo_status status;
    mo_error err;
} application;

static void apply(void *user)
{
    application *a = user;
    a->status =
        mo_model_profile_apply(a->model, a->json, strlen(a->json), &a->report, sizeof a->report, &a->err);
}

/* Writes the profile where the hot cache reads it from, after the old one has got the next free number: stem.N.ext. */
static bool save(const char *path, const char *json, char *backup, size_t size, mo_error *err)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    const int stem = dot ? (int)(dot - path) : (int)strlen(path);
    char part[4096];
    int number = 1;
    do {
        snprintf(backup, size, "%.*s.%d%s", stem, path, number++, dot ? dot : "");
    } while (number < 100000 && access(backup, F_OK) == 0);
    if (link(path, backup) != 0) {
        backup[0] =
            '\0'; /* there was none, or the place takes no links: the old file is replaced all the same */
    }
    if (snprintf(part, sizeof part, "%s.moraine-part", path) >= (int)sizeof part) {
        err->status = MO_EINVAL;
        snprintf(err->detail, sizeof err->detail, "the path is too long");
        return false;
    }
    FILE *f = fopen(part, "we");
    bool ok = f && fputs(json, f) >= 0 && fputc('\n', f) >= 0;
    ok = f && fclose(f) == 0 && ok;
    ok = ok && rename(part, path) == 0;
    if (!ok) {
        err->status = MO_EIO;
        snprintf(err->detail, sizeof err->detail, "%s: %s", path, strerror(errno));
        unlink(part);
    }
    return ok;
}

/* GET without a profile: what the cache is now. Nothing changes. */
static void report_cache(srv_request *q, mo_model *model)
{
    mo_device_report d;
    mo_tier_report t;
    mo_model_device(model, &d, sizeof d);
    mo_model_tiers(model, &t, sizeof t);
    const bool device = d.name != NULL;
    const uint64_t asked = device ? d.asked : t.prompt.asked + t.generation.asked,
                   hits = device ? d.hits : t.prompt.hits + t.generation.hits;
    srv_reply_json(q, 200,
                   json_pack("{s:b, s:b, s:I, s:I, s:I, s:I, s:f}", "success", true, "active",
                             device ? d.slots > 0 : t.slots > 0, "hot_experts",
                             (json_int_t)(device ? d.filled : t.filled), "bytes",
                             (json_int_t)(device ? d.slot_bytes : t.slot_bytes), "updates",
                             (json_int_t)d.updates, "exchanged", (json_int_t)d.exchanged, "hot_ratio",
                             asked > 0 ? (double)hits / (double)asked : 0.0));
    srv_request_end(q);
}

/* The profile to apply: the body or ?json=. NULL after answering. */
static char *read_profile(srv_request *q, mo_model *model, bool *keep)
{
    const mo_text body = srv_request_body(q);
    const char *query = srv_request_query(q, "json");
    json_t *root;
    char *json = NULL;
    *keep = false;
    if (body.length == 0 && !query && strcmp(srv_request_method(q), "GET") == 0) {
        report_cache(q, model);
        return NULL;
    }
    if (!srv_request_caller(q).admin) {
        srv_reply_refusal(q, SRV_FAULT_FORBIDDEN, NULL, SRV_NEEDS_ADMIN);
        return NULL;
    }
    root = body.length > 0 ? srv_body_json(body) : json_loads(query ? query : "", 0, NULL);
    if (json_is_object(root)) {
        *keep = json_is_true(json_object_get(root, "save_to_disk"));
        json_object_del(root, "save_to_disk");
        json = mo_json_dump(root, JSON_COMPACT);
    }
    json_decref(root);
    if (!json) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, NULL,
                          "expected a profile in JSON, as returned by GET /moe-layer-perf");
    }
    return json;
}

static void reply_applied(srv_models *models, srv_request *q, int index, const application *a, bool keep)
{
    const mo_profile_report *r = &a->report;
    const char *path = srv_models_loading(models, index)->learning.hot_cache.file;
    char backup[4096] = "";
    mo_error err;
    json_t *root =
        json_pack("{s:b, s:b, s:f, s:I, s:I, s:I, s:I, s:I}", "success", r->success, "active", r->active,
                  "update_rate", r->update_rate, "exchanged", (json_int_t)r->exchanged, "candidates",
                  (json_int_t)r->candidates, "max_exchange", (json_int_t)r->max_exchange, "hot_experts",
                  (json_int_t)r->hot_experts, "layers_changed", (json_int_t)r->layers_changed);
    bool saved = false;
    if (keep && !path) {
        json_object_set_new(root, "save_error", json_string("the server was started without a profile file"));
    } else if (keep) {
        saved = save(path, a->json, backup, sizeof backup, &err);
        if (saved) {
            json_object_set_new(root, "path", json_string(path));
            if (*backup) {
                json_object_set_new(root, "backup_path", json_string(backup));
            }
        } else {
            json_object_set_new(root, "save_error", json_string(err.detail));
        }
    }
    json_object_set_new(root, "saved_to_disk", json_boolean(saved));
    srv_reply_json(q, 200, root);
    srv_request_end(q);
}

static void apply_profile(void *owner, srv_request *q)
{
    bool keep;
    int index;
    srv_model *model = srv_asked_model(owner, q, &index);
    char *json = model ? read_profile(q, srv_model_mo(model), &keep) : NULL;
    if (json) {
        application a = {.model = srv_model_mo(model), .json = json};
        srv_engine_between_steps(srv_model_engine(model), apply, &a);
        if (a.status != MO_OK) {
            const bool theirs =
                a.status == MO_EFORMAT || a.status == MO_EINVAL || a.status == MO_EUNSUPPORTED;
            srv_reply_refusal(q, theirs ? SRV_FAULT_REQUEST : SRV_FAULT_SERVER, NULL, a.err.detail);
        } else {
            reply_applied(owner, q, index, &a, keep);
        }
    }
    mo_free(json);
    if (model) {
        srv_models_unpeek(model);
    }
}

const srv_route srv_moe_routes[] = {
    {"GET", "/moe-layer-perf", get_perf, SRV_STATUS},
    {"POST", "/moe-layer-perf", set_perf, SRV_STATUS | SRV_ADMIN},
    {"GET", "/moe-hot-cache", apply_profile, 0},
    {"POST", "/moe-hot-cache", apply_profile, SRV_ADMIN},
    {NULL, NULL, NULL, 0},
};
