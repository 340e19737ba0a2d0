/* Moraine status: our own endpoints: how the server is, where experts are, and stopping an answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/common/body.h"
#include "server/requests/running.h"
#include "server/requests/trace.h"
#include "server/status/events.h"
#include "server/status/expert_map.h"
#include "server/status/model_json.h"
#include "server/status/status.h"
#include "server/status/status_json.h"

static void status(void *owner, srv_request *q)
{
    const srv_caller caller = srv_request_caller(q);
    srv_reply_json(q, 200, srv_status_json(owner, &caller, true));
    srv_request_end(q);
}

static bool asked_for(srv_request *q, const char *name)
{
    const char *value = srv_request_query(q, name);
    return value && strcmp(value, "0") != 0 && strcmp(value, "false") != 0;
}

static void events(void *owner, srv_request *q)
{
    srv_events_add(((const srv_status *)owner)->events, q, asked_for(q, "experts"), asked_for(q, "log"));
}

static void cancel(void *owner, srv_request *q)
{
    const mo_text body = srv_request_body(q);
    json_t *root = srv_body_json(body);
    const char *id = json_string_value(json_object_get(root, "id"));
    const char *whose = srv_request_caller(q).admin ? NULL : srv_request_owner(q);
    if (!id) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "id",
                          "expected the id of an answer, as returned to its client");
    } else if (!srv_running_stop(((const srv_status *)owner)->running, id, whose)) {
        srv_reply_refusal(q, SRV_FAULT_NOT_FOUND, "id", "no running answer has that id");
    } else {
        srv_reply_json(q, 200, json_pack("{s:s, s:b}", "id", id, "cancelled", 1));
        srv_request_end(q);
    }
    json_decref(root);
}

/* ---- Experts ---- */

/* The device's times of a layer; null: it had none. */
static json_t *lanes_of(const mo_device_layer *lanes, int count, int layer)
{
    for (int i = 0; i < count; i++) {
        if (lanes[i].layer == layer) {
            return srv_lanes_json(&lanes[i]);
        }
    }
    return json_null();
}

/* Places as a text with a letter for each expert, so that a heat map of thousands is small. */
static json_t *layer_json(mo_model *model, int layer, mo_expert_report *list, char *locations)
{
    const int count = mo_model_experts(model, layer, list, sizeof *list, SRV_LAYER_EXPERTS);
    json_t *picks = json_array(), *hits = json_array();
    int n = 0;
    for (; n < count && n < SRV_LAYER_EXPERTS; n++) {
        locations[n] = srv_expert_map_letter(list[n].place);
        json_array_append_new(picks, json_integer((json_int_t)list[n].picks));
        json_array_append_new(hits, json_integer((json_int_t)list[n].hits));
    }
    locations[n] = '\0';
    return json_pack("{s:i, s:I, s:s, s:o, s:o}", "layer", layer, "expert_bytes",
                     (json_int_t)(n > 0 ? list[0].bytes : 0), "places", locations, "picks", picks, "hits",
                     hits);
}

/* Of every layer with experts; NULL: no memory. */
static json_t *layers_json(mo_model *model, const mo_model_info *info)
{
    mo_expert_report *list = malloc(SRV_LAYER_EXPERTS * sizeof *list);
    mo_device_layer *lanes = calloc((size_t)info->layers + 1, sizeof *lanes);
    char *locations = malloc(SRV_LAYER_EXPERTS + 1);
    json_t *layers = list && lanes && locations ? json_array() : NULL;
    if (layers) {
        const int timed = mo_model_device_layers(model, lanes, sizeof *lanes, info->layers);
        for (int layer = 0; layer < info->layers; layer++) {
            if (mo_model_layer_experts(model, layer) > 0) {
                json_t *one = layer_json(model, layer, list, locations);
                json_object_set_new(one, "lanes",
                                    lanes_of(lanes, timed < info->layers ? timed : info->layers, layer));
                json_array_append_new(layers, one);
            }
        }
    }
    free(list);
    free(lanes);
    free(locations);
    return layers;
}

static void experts(void *owner, srv_request *q)
{
    srv_model *model = srv_asked_model(((const srv_status *)owner)->models, q, NULL);
    mo_model_info info;
    if (!model) {
        return;
    }
    mo_model_describe(srv_model_mo(model), &info, sizeof info);
    srv_reply_json(q, 200,
                   json_pack("{s:s, s:i, s:i, s:{s:s, s:s, s:s}, s:o}", "model", srv_model_id(model),
                             "experts", info.experts, "experts_used", info.experts_used, "places", "0",
                             "disk", "1", "ram", "2", "device", "layers",
                             layers_json(srv_model_mo(model), &info)));
    srv_request_end(q);
    srv_models_unpeek(model);
}

/* ---- Traces ---- */

static void trace(void *owner, srv_request *q)
{
    const srv_status *all = owner;
    srv_models *models = all->models;
    srv_trace *t = srv_traces_find(all->traces, srv_request_part(q, 0), srv_request_owner(q));
    srv_writer w = {0};
    if (!t) {
        srv_reply_refusal(q, SRV_FAULT_NOT_FOUND, NULL,
                          "no trace of an answer with that id is stored; request one with \"trace\": true");
        return;
    }
    srv_model *model = srv_models_peek(models, srv_models_find(models, srv_trace_model(t)));
    srv_trace_write(t, model ? srv_model_mo(model) : NULL, &w);
    srv_reply_writer(q, 200, &w);
    srv_request_end(q);
    srv_writer_free(&w);
    srv_trace_release(t);
    if (model) {
        srv_models_unpeek(model);
    }
}

const srv_route srv_moraine_routes[] = {
    {"GET", "[/v1]/moraine/status", status, SRV_STATUS},
    {"GET", "[/v1]/moraine/events", events, SRV_QUICK},
    {"GET", "[/v1]/moraine/experts", experts, SRV_STATUS},
    {"GET", "[/v1]/moraine/trace/{}", trace, SRV_STATUS},
    {"POST", "[/v1]/moraine/cancel", cancel, SRV_STATUS},
    {NULL, NULL, NULL, 0},
};
