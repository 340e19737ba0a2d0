/* Routes: which function answers which method and path. */
#ifndef SRV_ROUTES_H
#define SRV_ROUTES_H

#include "server/http/request.h"

/* owner: what its table belongs to (srv_route_table). */
typedef void (*srv_handler)(void *owner, srv_request *q);

enum {
    SRV_QUICK = 1,  /* runs on the listener's thread: must not wait, tokenise or read files */
    SRV_PUBLIC = 2, /* needs no key */
    SRV_STATUS =
        4, /* waits for no engine and no model: has threads of its own, so that others never keep it waiting */
    SRV_ADMIN = 8, /* changes what all clients share: with keys, for administrators */
};

typedef struct srv_route {
    const char *method; /* "GET", "POST", "DELETE"; NULL ends a table */
    /* As "/api/chat". "[/v1]/models" exists with and without the prefix; {} matches one segment, {*} at the end all that
     * is left, at least a character, slashes too. */
    const char *path;
    srv_handler handler;
    int flags;
} srv_route;

/* Routes, and what their handlers get. */
typedef struct srv_route_table {
    const srv_route *routes; /* NULL ends a list of tables */
    void *owner;             /* NULL: nothing is needed */
} srv_route_table;

/* A part of a path that a {} matched. */
typedef struct srv_part {
    const char *text;
    size_t length;
} srv_part;

enum { SRV_PARTS = 4 };

/* The route of a method and a path, and its table's owner. NULL: none; then `allow` (of `size` bytes) has the methods that the
 * path knows, as "GET, POST", or "". */
const srv_route *srv_routes_find(const srv_route_table *tables, const char *method, const char *path,
                                 srv_part *parts, int *count, void **owner, char *allow, size_t size);

#endif
