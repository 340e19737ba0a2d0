/* Server: see server.h. */
#include "server/server.h"

#include "base/clock.h"

bool srv_model_hold(srv_server *server, const char *name, srv_request *q, srv_model **out, srv_fault *fault)
{
    double load_s;
    return srv_model_ref(server->models, name, q, out, &load_s, fault);
}

srv_models *srv_server_models(srv_server *server)
{
    return server->models;
}

srv_http *srv_server_http(srv_server *server)
{
    return server->http;
}

srv_events *srv_server_events(srv_server *server)
{
    return server->events;
}

srv_running *srv_server_running(srv_server *server)
{
    return server->running;
}

srv_call_index *srv_server_call_index(srv_server *server)
{
    return server->call_index;
}

srv_response_store *srv_server_responses(srv_server *server)
{
    return server->responses;
}

srv_traces *srv_server_traces(srv_server *server)
{
    return server->traces;
}

double srv_server_uptime(const srv_server *server)
{
    return (double)(mo_clock_ns() - server->begun_ns) * 1e-9;
}
