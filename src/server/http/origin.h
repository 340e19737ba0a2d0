/* Origin: may a web page call this server, and was the server meant at all? A browser sends a page's requests to any
 * address, with the page's origin; a name that a stranger's DNS points to 127.0.0.1 comes as Host. */
#ifndef SRV_ORIGIN_H
#define SRV_ORIGIN_H

#include <stdbool.h>

typedef struct srv_origins {
    const char *const *allowed; /* origins as "https://chat.example"; "*": all; ends with NULL. May be NULL */
    const char *const *hosts;   /* further names the server is called by; ends with NULL. May be NULL */
    bool loopback;              /* it listens on loopback addresses only, so it has no other names */
} srv_origins;

/* The host of "name", "name:port", "[::1]:port", lower-cased and without brackets, port and a final dot. False: it is none. */
bool srv_host_name(const char *host, char *name, int size);

/* May it be called by this Host? NULL (HTTP/1.0): yes. */
bool srv_host_allowed(const srv_origins *origins, const char *host);

/* May a page of that origin call? NULL, and the origin of the server itself: yes. *answer says whether its
 * Access-Control-Allow-Origin is to be sent. */
bool srv_origin_allowed(const srv_origins *origins, const char *origin, const char *host, bool *answer);

#endif
