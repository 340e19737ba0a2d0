/* Fetch: a file of another server, whose address a client sent, for servers that are asked to do so: http and https alone, within limits of size
 * and time, and never from this machine or a network that is not everybody's. */
#ifndef SRV_FETCH_H
#define SRV_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moraine_server.h"

struct ifaddrs;
struct sockaddr;

/* May a connection be made to it? */
typedef bool (*srv_address_rule)(const struct sockaddr *address);

/* Only addresses of the public internet: none of this machine, of private, shared or link-local networks, of documentation or groups, and none that
 * holds such an address of the other kind. */
bool srv_address_public(const struct sockaddr *address);

/* Is it one of those that getifaddrs() gave? */
bool srv_address_among(const struct sockaddr *address, const struct ifaddrs *list);

typedef struct srv_fetch_options {
    srv_address_rule allowed; /* is asked of every address after names are resolved, of redirects too */
    size_t bytes_most;
    double seconds; /* for all of it */
} srv_fetch_options;

/* Can this build do it? */
bool srv_fetch_supported(void);

/* The bytes; free() *bytes. Redirects are followed on the same host. MO_EINVAL: no address that may be fetched; MO_EIO: it could not be,
 * *busy: because too many others are being fetched; MO_ENOSPC: it is too large; MO_ECANCELLED: the thread's work is no longer wanted
 * (mo_interrupt_set()); MO_ENOMEM. */
mo_status srv_fetch(const char *url, size_t length, const srv_fetch_options *options, uint8_t **bytes,
                    size_t *size, bool *busy, mo_error *err);

#endif
