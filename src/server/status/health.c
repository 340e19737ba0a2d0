/* Health: is the server there, and can it be asked? */
#include "server/status/status.h"

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
