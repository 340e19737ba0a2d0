/* Target: the path and the query of a request line, decoded, and the host that it names where it is a whole URL. */
#ifndef SRV_TARGET_H
#define SRV_TARGET_H

#include <stdbool.h>
#include <stddef.h>

enum { SRV_QUERIES = 32 };

typedef struct srv_target {
    char *path;
    char *authority; /* of "http://host:port/path", which is what clients of proxies send; NULL: none */
    struct srv_query {
        char *name, *value;
    } queries[SRV_QUERIES];
    int query_count;
    char *memory; /* what the path and the queries point into */
} srv_target;

/* False where it makes no sense: no path, %-sequences that are none, a zero byte, too many parameters; *why (a constant)
 * then says so, NULL: memory ran out. */
bool srv_target_parse(const char *text, srv_target *out, const char **why);
void srv_target_free(srv_target *target);

/* NULL: not given. */
const char *srv_target_query(const srv_target *target, const char *name);

#endif
