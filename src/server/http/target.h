/* Target: parses a request line's target: decoded path and query, and the host if it is a complete URL. */
#ifndef SRV_TARGET_H
#define SRV_TARGET_H

#include <stdbool.h>
#include <stddef.h>

enum { SRV_QUERIES = 32 };

typedef struct srv_target {
    char *path;
    char *authority; /* of "http://host:port/path", which clients of proxies send; NULL: none */
    struct srv_query {
        char *name, *value;
    } queries[SRV_QUERIES];
    int query_count;
    char *memory; /* storage of the path and the queries */
} srv_target;

/* Returns false if the target is invalid: no path, invalid %-sequences, a zero byte, too many parameters.
 * *why (a constant) gives the reason; NULL: out of memory. */
bool srv_target_parse(const char *text, srv_target *out, const char **why);
void srv_target_free(srv_target *target);

/* NULL: not given. */
const char *srv_target_query(const srv_target *target, const char *name);

#endif
