/* Adapters: llama-server's endpoint that lists the adapters of a model and sets the scales that requests begin with. */
#include "server/common/body.h"
#include "server/common/json_text.h"
#include "server/requests/parameters.h"
#include "server/status/asked_model.h"
#include "server/status/status.h"

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
    {"POST", "/lora-adapters", set_scales, 0},
    {NULL, NULL, NULL, 0},
};
