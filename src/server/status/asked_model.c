#include "server/status/asked_model.h"

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
