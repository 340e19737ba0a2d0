/* Origin: checks that a web page may call this server and that the Host names this server. A browser sends a
 * page's requests to any address, with the page's origin; DNS rebinding shows up as a foreign Host that
 * resolves to 127.0.0.1. */
#ifndef SRV_ORIGIN_H
#define SRV_ORIGIN_H

#include <stdbool.h>

typedef struct srv_origins {
    /* origins such as "https://chat.example"; "*": all; NULL-terminated. May be NULL */
    const char *const *allowed;
    const char *const *hosts; /* additional names of the server; NULL-terminated. May be NULL */
    bool loopback;            /* listens only on loopback addresses, so it has no other names */
} srv_origins;

/* The host of "name", "name:port" or "[::1]:port", lower-cased and without brackets, port and final dot.
 * Returns false if it is invalid. */
bool srv_host_name(const char *host, char *name, int size);

/* True if this Host may be used. NULL (HTTP/1.0): true. */
bool srv_host_allowed(const srv_origins *origins, const char *host);

/* True if a page of that origin may call. NULL and the server's own origin: true. *answer: send
 * Access-Control-Allow-Origin with it. */
bool srv_origin_allowed(const srv_origins *origins, const char *origin, const char *host, bool *answer);

#endif
