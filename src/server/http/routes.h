/* Routes: the handler of each method and path. */
#ifndef SRV_ROUTES_H
#define SRV_ROUTES_H

#include "server/http/request.h"

/* owner: the owner of its table (srv_route_table). */
typedef void (*srv_handler)(void *owner, srv_request *q);

enum {
    SRV_QUICK = 1,  /* runs on the listener's thread: must not block, tokenize or read files */
    SRV_PUBLIC = 2, /* needs no key */
    /* waits for no engine or model: runs on separate threads, so that other handlers never delay it */
    SRV_STATUS = 4,
    SRV_ADMIN = 8, /* changes shared state: with keys, administrators only */
};

typedef struct srv_route {
    const char *method; /* "GET", "POST", "DELETE"; NULL ends a table */
    /* Such as "/api/chat". "[/v1]/models" matches with and without the prefix. {} matches one segment; {*} at
     * the end matches the rest, at least one character, including slashes. */
    const char *path;
    srv_handler handler;
    int flags;
} srv_route;

/* Routes with their handlers' argument. */
typedef struct srv_route_table {
    const srv_route *routes; /* NULL ends a list of tables */
    void *owner;             /* NULL: not needed */
} srv_route_table;

/* Part of a path matched by a {}. */
typedef struct srv_part {
    const char *text;
    size_t length;
} srv_part;

enum { SRV_PARTS = 4 };

/* The route for a method and path, and its table's owner. NULL: none; `allow` (of `size` bytes) then holds
 * the methods allowed for the path, such as "GET, POST", or "". */
const srv_route *srv_routes_find(const srv_route_table *tables, const char *method, const char *path,
                                 srv_part *parts, int *count, void **owner, char *allow, size_t size);

#endif
