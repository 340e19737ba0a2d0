/* Sessions: the endpoint that shows what is kept of earlier requests and what runs, and forgets what is kept. It says how long
 * and how large they are, never what is in them. */
#include <stdlib.h>
#include <string.h>

#include "server/common/body.h"
#include "server/requests/running.h"
#include "server/scheduler/kept.h"
#include "server/status/model_json.h"
#include "server/status/status.h"
#include "server/status/status_json.h"

enum { KEPT_MAX = 4096, ANSWERS_MAX = 256 };

static json_t *kept_json(const srv_kept_report *k)
{
    json_t *where = json_array(),
           *out = json_pack("{s:s, s:I}", "id", k->id, "tokens", (json_int_t)k->tokens);
    const struct {
        bool is;
        const char *name;
    } locations[] = {
        {k->sequence, "sequence"}, {k->device, "device"}, {k->ram, "ram"}, {k->disk_bytes > 0, "disk"}};
    for (size_t i = 0; i < sizeof locations / sizeof *locations; i++) {
        if (locations[i].is) {
            json_array_append_new(where, json_string(locations[i].name));
        }
    }
    json_object_set_new(out, "where", where);
    if (k->ram || k->device) {
        json_object_set_new(out, "bytes", json_integer((json_int_t)k->bytes));
        json_object_set_new(out, "all_bytes", json_integer((json_int_t)k->all_bytes));
    }
    if (k->disk_bytes > 0) {
        json_object_set_new(out, "disk_bytes", json_integer((json_int_t)k->disk_bytes));
    }
    if (k->idle_s >= 0) {
        json_object_set_new(out, "idle_s", json_real(k->idle_s));
    }
    if (!k->sequence) {
        json_object_set_new(out, "pinned", json_boolean(k->pinned));
    }
    if (k->name[0]) {
        json_object_set_new(out, "name", json_string(k->name));
    }
    return out;
}

static json_t *answers_json(srv_running *running, const char *owner)
{
    char ids[ANSWERS_MAX][SRV_RUNNING_ID];
    json_t *list = json_array();
    const int count = srv_running_list(running, owner, ids, ANSWERS_MAX);
    for (int i = 0; i < count && i < ANSWERS_MAX; i++) {
        json_array_append_new(list, json_string(ids[i]));
    }
    return list;
}

/* What is kept, to be freed, and how many; NULL: no memory. */
static srv_kept_report *read_kept(srv_engine *engine, const srv_request *q, int *count)
{
    const srv_caller caller = srv_request_caller(q);
    srv_kept_report *list = calloc(KEPT_MAX, sizeof *list);
    *count = list ? srv_engine_kept(engine, &caller, list, KEPT_MAX) : 0;
    *count = *count < KEPT_MAX ? *count : KEPT_MAX;
    return list;
}

static void list_sessions(void *owner, srv_request *q)
{
    const srv_status *status = owner;
    srv_model *model = srv_asked_model(status->models, q, NULL);
    int count;
    if (!model) {
        return;
    }
    const srv_caller caller = srv_request_caller(q);
    srv_engine *engine = srv_model_engine(model);
    srv_kept_report *list = read_kept(engine, q, &count);
    srv_engine_report r;
    srv_engine_describe(engine, &r);
    json_t *sessions = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(sessions, kept_json(&list[i]));
    }
    free(list);
    srv_reply_json(q, 200,
                   json_pack("{s:s, s:o, s:I, s:I, s:I, s:o, s:o}", "model", srv_model_id(model), "sessions",
                             sessions, "bytes", (json_int_t)r.kept_bytes, "disk_bytes",
                             (json_int_t)r.disk_bytes, "disk_failures", (json_int_t)r.disk_failures, "jobs",
                             srv_jobs_json(engine, &caller), "answers",
                             answers_json(status->running, caller.admin ? NULL : srv_request_owner(q))));
    srv_request_end(q);
    srv_models_unpeek(model);
}

static void reply_session(srv_request *q, srv_engine *engine, const char *id)
{
    json_t *found = NULL;
    int count;
    srv_kept_report *list = read_kept(engine, q, &count);
    for (int i = 0; i < count && !found; i++) {
        found = strcmp(list[i].id, id) == 0 ? kept_json(&list[i]) : NULL;
    }
    free(list);
    if (!found) {
        srv_reply_refusal(q, SRV_FAULT_NOT_FOUND, NULL, "no session with that id is cached");
        return;
    }
    srv_reply_json(q, 200, found);
    srv_request_end(q);
}

static void one_session(void *owner, srv_request *q)
{
    const srv_status *status = owner;
    srv_model *model = srv_asked_model(status->models, q, NULL);
    if (model) {
        reply_session(q, srv_model_engine(model), srv_request_part(q, 0));
        srv_models_unpeek(model);
    }
}

/* {"pin": ..., "name": ...}; false after a refusal. */
static bool read_wanted(const json_t *root, srv_request *q, srv_prefix_wanted *out)
{
    const json_t *pin = json_object_get(root, "pin"), *name = json_object_get(root, "name");
    *out = (srv_prefix_wanted){
        .set_pin = pin != NULL, .pin = json_is_true(pin), .name = json_string_value(name)};
    if (!json_is_object(root) || (!pin && !name)) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, NULL, "expected an object with pin or name");
    } else if (pin && !json_is_boolean(pin)) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "pin", "must be true or false");
    } else if (name && (!out->name || json_string_length(name) >= SRV_PREFIX_NAME)) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "name", "must be a string shorter than 64 bytes");
    } else {
        return true;
    }
    return false;
}

static void change_session(void *owner, srv_request *q)
{
    const srv_status *status = owner;
    const mo_text body = srv_request_body(q);
    srv_model *model = srv_asked_model(status->models, q, NULL);
    srv_prefix_wanted wanted;
    const srv_caller caller = srv_request_caller(q);
    char id[32];
    mo_error err;
    if (!model) {
        return;
    }
    json_t *root = srv_body_json(body);
    if (read_wanted(root, q, &wanted)) {
        srv_engine *engine = srv_model_engine(model);
        if (srv_engine_change_kept(engine, srv_request_part(q, 0), &caller, &wanted, id, &err) == MO_OK) {
            reply_session(q, engine, id);
        } else {
            srv_reply_refusal(q, err.status == MO_ENOENT ? SRV_FAULT_NOT_FOUND : SRV_FAULT_REQUEST, NULL,
                              err.detail);
        }
    }
    json_decref(root);
    srv_models_unpeek(model);
}

static void drop_sessions(void *owner, srv_request *q)
{
    const srv_status *status = owner;
    const srv_caller caller = srv_request_caller(q);
    const char *id = srv_request_part(q, 0);
    srv_model *model = srv_asked_model(status->models, q, NULL);
    if (!model) {
        return;
    }
    const int dropped = srv_engine_drop_kept(srv_model_engine(model), *id ? id : NULL, &caller);
    srv_models_unpeek(model);
    if (*id && dropped == 0) {
        srv_reply_refusal(q, SRV_FAULT_NOT_FOUND, NULL, "no session with that id is cached");
        return;
    }
    srv_reply_json(q, 200, json_pack("{s:i}", "dropped", dropped));
    srv_request_end(q);
}

const srv_route srv_session_routes[] = {
    {"GET", "[/v1]/moraine/sessions", list_sessions, SRV_STATUS},
    {"GET", "[/v1]/moraine/sessions/{}", one_session, SRV_STATUS},
    {"POST", "[/v1]/moraine/sessions/{}", change_session, 0},
    {"DELETE", "[/v1]/moraine/sessions", drop_sessions, 0},
    {"DELETE", "[/v1]/moraine/sessions/{}", drop_sessions, 0},
    {NULL, NULL, NULL, 0},
};
