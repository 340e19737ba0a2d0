/* Kept responses: the endpoints that show and forget answers of the responses API. */
#include <stdlib.h>
#include <string.h>

#include "server/dialects/dialects.h"
#include "server/dialects/response_store.h"

enum { PAGE = 20, PAGE_MOST = 100 };

/* The answer of the path's id, or false after a refusal. store: NULL: none are kept. */
static bool find(srv_response_store *store, srv_request *q, srv_kept_response *out)
{
    if (store && srv_response_store_get(store, srv_request_part(q, 0), srv_request_owner(q), out)) {
        return true;
    }
    srv_reply_refusal(q, SRV_FAULT_NOT_FOUND, NULL, "no response with that id is stored");
    return false;
}

static void get_response(void *owner, srv_request *q)
{
    srv_kept_response kept;
    const char *stream = srv_request_query(q, "stream");
    if (stream && strcmp(stream, "true") == 0) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "stream", "stored responses cannot be streamed");
    } else if (find(owner, q, &kept)) {
        srv_reply_json(q, 200, kept.response);
        srv_request_end(q);
        json_decref(kept.input);
    }
}

static void delete_response(void *owner, srv_request *q)
{
    srv_response_store *store = owner;
    const char *id = srv_request_part(q, 0);
    if (!store || !srv_response_store_remove(store, id, srv_request_owner(q))) {
        srv_reply_refusal(q, SRV_FAULT_NOT_FOUND, NULL, "no response with that id is stored");
        return;
    }
    srv_reply_json(q, 200, json_pack("{s:s, s:s, s:b}", "id", id, "object", "response", "deleted", 1));
    srv_request_end(q);
}

/* Which items a client wants to see: the newest first, unless it says otherwise. */
typedef struct page {
    size_t limit;
    bool ascending;
    const char *after; /* the item before the first; NULL: none */
} page;

/* False after a refusal. */
static bool read_page(srv_request *q, page *out)
{
    const char *limit = srv_request_query(q, "limit"), *order = srv_request_query(q, "order");
    char *end = NULL;
    const long number = limit ? strtol(limit, &end, 10) : PAGE;
    if (number < 1 || number > PAGE_MOST || (end && *end)) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "limit", "must be a number from 1 to 100");
        return false;
    }
    if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "order", "must be asc or desc");
        return false;
    }
    *out = (page){.limit = (size_t)number,
                  .ascending = order && strcmp(order, "asc") == 0,
                  .after = srv_request_query(q, "after")};
    return true;
}

static const char *item_id(const json_t *item)
{
    const char *id = json_string_value(json_object_get(item, "id"));
    return id ? id : "";
}

static void list_input(void *owner, srv_request *q)
{
    srv_kept_response kept;
    page p;
    if (!read_page(q, &p) || !find(owner, q, &kept)) {
        return;
    }
    const size_t count = json_array_size(kept.input);
    json_t *data = json_array();
    bool begun = !p.after, more = false;
    for (size_t i = 0; i < count && !more; i++) {
        json_t *item = json_array_get(kept.input, p.ascending ? i : count - 1 - i);
        if (begun && json_array_size(data) < p.limit) {
            json_array_append(data, item);
        } else {
            more = begun;
        }
        begun = begun || strcmp(item_id(item), p.after) == 0;
    }
    const size_t shown = json_array_size(data);
    const json_t *first = json_array_get(data, 0), *last = shown ? json_array_get(data, shown - 1) : NULL;
    srv_reply_json(q, 200,
                   json_pack("{s:s, s:o, s:s?, s:s?, s:b}", "object", "list", "data", data, "first_id",
                             first ? item_id(first) : NULL, "last_id", last ? item_id(last) : NULL,
                             "has_more", more));
    srv_request_end(q);
    json_decref(kept.response);
    json_decref(kept.input);
}

const srv_route srv_kept_response_routes[] = {
    {"GET", "[/v1]/responses/{}", get_response, SRV_STATUS},
    {"DELETE", "[/v1]/responses/{}", delete_response, SRV_STATUS},
    {"GET", "[/v1]/responses/{}/input_items", list_input, SRV_STATUS},
    {NULL, NULL, NULL, 0},
};
