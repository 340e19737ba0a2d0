/* Warm: see warm.h. */
#include "server/warm_prompt.h"
#include "base/json.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/common/log.h"
#include "server/http/request_state.h"

static const char path[] = "/v1/chat/completions";

typedef struct waiting {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool over;
    srv_request_outcome end;
    char answer[512]; /* its beginning: what an error says */
} waiting;

static void on_finished(void *user, srv_request *q)
{
    waiting *w = user;
    const mo_text text = srv_request_answer(q);
    pthread_mutex_lock(&w->mutex);
    srv_request_describe(q, &w->end);
    snprintf(w->answer, sizeof w->answer, "%.*s", (int)(text.length < 500 ? text.length : 500), text.data);
    w->over = true;
    pthread_cond_broadcast(&w->ended);
    pthread_mutex_unlock(&w->mutex);
}

/* The request, whole, with what it says of tokens to generate (nothing: none), so that experts of answers come to memory too; NULL: it
 * is no JSON object. */
static char *make_body(const char *request)
{
    json_t *root = json_loads(request, 0, NULL);
    char *body = NULL;
    if (json_is_object(root)) {
        if (!json_object_get(root, "max_completion_tokens") && !json_object_get(root, "max_tokens")) {
            json_object_set_new(root, "max_tokens", json_integer(0));
        }
        json_object_set_new(root, "stream", json_false());
        body = mo_json_dump(root, JSON_COMPACT);
    }
    json_decref(root);
    return body;
}

void srv_warm_prompt(const srv_route_table *tables, const char *request)
{
    waiting w = {.over = false};
    const srv_request_host host = {.user = &w, .finished = on_finished};
    srv_part parts[SRV_PARTS];
    int count;
    void *owner;
    char allow[64];
    srv_fault fault;
    const srv_route *route =
        srv_routes_find(tables, "POST", path, parts, &count, &owner, allow, sizeof allow);
    char *body = make_body(request);
    srv_request *q = body && route ? srv_request_open(&host, NULL, path) : NULL;
    if (!q || !srv_request_parse(q, "POST", &fault)) {
        srv_say(MO_LOG_ERROR, "warm", "the warmup request is not a JSON object");
        free(body);
        if (q) {
            srv_request_release(q);
        }
        return;
    }
    pthread_mutex_init(&w.mutex, NULL);
    pthread_cond_init(&w.ended, NULL);
    srv_request_set_client(q, "self", &(srv_key_owner){0});
    srv_request_add_body(q, body, strlen(body), SIZE_MAX);
    free(body);
    srv_request_dispatch(q);
    srv_request_release(q); /* the handler holds it now */
    route->handler(owner, q);
    pthread_mutex_lock(&w.mutex);
    while (!w.over) {
        pthread_cond_wait(&w.ended, &w.mutex);
    }
    pthread_mutex_unlock(&w.mutex);
    if (w.end.status == 200) {
        srv_log(MO_LOG_INFO, "warm", (srv_log_field[]){SRV_REAL_FIELD("seconds", w.end.seconds), {0}});
    } else {
        srv_say(MO_LOG_ERROR, "warm", "the warmup request was refused: %s", w.answer);
    }
    pthread_cond_destroy(&w.ended);
    pthread_mutex_destroy(&w.mutex);
}
