/* Moraine status: our own endpoints: how the server is, what another budget would give, and stopping an answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/events.h"
#include "server/running.h"
#include "server/server.h"
#include "server/status.h"
#include "server/status_json.h"

static void status(srv_server *server, srv_request *q)
{
    srv_reply_json(q, 200, srv_status_json(server, true));
    srv_request_end(q);
}

static void events(srv_server *server, srv_request *q)
{
    srv_events_add(srv_server_events(server), q);
}

static void cancel(srv_server *server, srv_request *q)
{
    const mo_text body = srv_request_body(q);
    json_t *root = json_loadb(body.data, body.length, 0, NULL);
    const char *id = json_string_value(json_object_get(root, "id"));
    if (!id) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "id", "the id of an answer is needed, as its client got it");
    } else if (!srv_running_stop(srv_server_running(server), id)) {
        srv_reply_refusal(q, SRV_FAULT_NOT_FOUND, "id", "no such answer is being made");
    } else {
        srv_reply_json(q, 200, json_pack("{s:s, s:b}", "id", id, "cancelled", 1));
        srv_request_end(q);
    }
    json_decref(root);
}

/* ---- Plans ---- */

/* A size such as 6G or 512MiB in a query; false: it is none. */
static bool read_size(const char *text, int64_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    const double number = strtod(text, &end);
    double factor = 1;
    if (end == text || !(number >= 0) || number > 1e15) {
        return false;
    }
    const char *unit = *end ? strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
    if (unit) {
        for (const char *u = units; u <= unit; u++) {
            factor *= 1024;
        }
        end++;
        end += strncmp(end, "iB", 2) == 0 ? 2 : *end == 'B' ? 1 : 0;
    }
    if (*end || number * factor > 9e18) {
        return false;
    }
    *bytes = (int64_t)(number * factor);
    return true;
}

static bool read_query(srv_request *q, const char *name, int64_t *out)
{
    const char *text = srv_request_query(q, name);
    if (text && *text && !read_size(text, out)) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, name, "a size such as 6G or a number is needed");
        return false;
    }
    return true;
}

static void plan(srv_server *server, srv_request *q)
{
    srv_models *models = srv_server_models(server);
    const int index = srv_models_find(models, srv_request_query(q, "model"));
    srv_model_report r;
    mo_plan_report report;
    mo_error err;
    int64_t parallel;
    mo_plan_options o = mo_plan_options_default();
    if (index < 0 || !srv_models_describe(models, index, &r)) {
        srv_reply_refusal(q, SRV_FAULT_MODEL, NULL, "there is no model of that name");
        return;
    }
    const mo_model_options *loading = srv_models_loading(models, index);
    o.ram_bytes = loading->ram_bytes;
    o.vram_bytes = loading->vram_bytes;
    o.context = r.context;
    o.batch = loading->batch;
    o.kv = loading->kv;
    o.device = loading->device;
    o.cpu_moe = loading->cpu_moe;
    o.postfetch = loading->postfetch;
    o.hot_cache = loading->learning.hot_cache;
    o.threads = loading->threads;
    o.isa = loading->isa;
    parallel = r.parallel ? r.parallel : 1;
    if (!read_query(q, "ram", &o.ram_bytes) || !read_query(q, "vram", &o.vram_bytes) ||
        !read_query(q, "ctx", &o.context) || !read_query(q, "parallel", &parallel)) {
        return;
    }
    if (parallel < 1 || parallel > 256) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "parallel", "a number from 1 to 256 is needed");
        return;
    }
    o.sessions = (int)parallel;
    srv_model *model = srv_models_peek(models, index);
    if (model) { /* it would not be there twice */
        mo_tier_report tiers;
        mo_model_tiers(srv_model_mo(model), &tiers, sizeof tiers);
        o.ram_bytes += o.ram_bytes ? tiers.planned_bytes : 0;
        srv_models_unpeek(model);
    }
    if (mo_plan_file(r.path, &o, &report, sizeof report, &err) != MO_OK) {
        char text[1024];
        srv_fault_words(&err, r.path, text, sizeof text);
        srv_reply_refusal(q, SRV_FAULT_REQUEST, NULL, text);
        return;
    }
    srv_reply_json(q, 200, srv_plan_json(&report));
    srv_request_end(q);
}

/* ---- Experts ---- */

enum { LAYER_EXPERTS = 4096 };

/* Places as a text with a letter for each expert, so that a heat map of thousands is small. */
static json_t *layer_json(mo_model *model, int layer, mo_expert_report *list, char *places)
{
    static const char letters[] = {[MO_EXPERT_DISK] = '0', [MO_EXPERT_RAM] = '1', [MO_EXPERT_DEVICE] = '2'};
    const int count = mo_model_experts(model, layer, list, sizeof *list, LAYER_EXPERTS);
    json_t *picks = json_array();
    int n = 0;
    for (; n < count && n < LAYER_EXPERTS; n++) {
        places[n] = letters[list[n].place];
        json_array_append_new(picks, json_integer((json_int_t)list[n].picks));
    }
    places[n] = '\0';
    return json_pack("{s:i, s:s, s:o}", "layer", layer, "places", places, "picks", picks);
}

static void experts(srv_server *server, srv_request *q)
{
    srv_models *models = srv_server_models(server);
    const int index = srv_models_find(models, srv_request_query(q, "model"));
    srv_model *model = srv_models_peek(models, index);
    mo_expert_report *list = malloc(LAYER_EXPERTS * sizeof *list);
    char *places = malloc(LAYER_EXPERTS + 1);
    mo_model_info info;
    if (!model || !list || !places) {
        srv_reply_refusal(q, index < 0 ? SRV_FAULT_MODEL : SRV_FAULT_UNAVAILABLE, NULL,
                          index < 0 ? "there is no model of that name" : "the model is not loaded");
    } else {
        json_t *layers = json_array();
        mo_model_describe(srv_model_mo(model), &info, sizeof info);
        for (int layer = 0; layer < info.layers; layer++) {
            if (mo_model_layer_experts(srv_model_mo(model), layer) > 0) {
                json_array_append_new(layers, layer_json(srv_model_mo(model), layer, list, places));
            }
        }
        srv_reply_json(q, 200,
                       json_pack("{s:s, s:i, s:i, s:{s:s, s:s, s:s}, s:o}", "model", srv_model_id(model),
                                 "experts", info.experts, "experts_used", info.experts_used, "places", "0",
                                 "disk", "1", "ram", "2", "device", "layers", layers));
        srv_request_end(q);
    }
    free(list);
    free(places);
    if (model) {
        srv_models_unpeek(model);
    }
}

const srv_route srv_moraine_routes[] = {
    {"GET", "[/v1]/moraine/status", status, SRV_STATUS},
    {"GET", "[/v1]/moraine/events", events, SRV_QUICK},
    {"GET", "[/v1]/moraine/plan", plan, SRV_STATUS},
    {"GET", "[/v1]/moraine/experts", experts, SRV_STATUS},
    {"POST", "[/v1]/moraine/cancel", cancel, SRV_STATUS},
    {NULL, NULL, NULL, 0},
};
