/* Fetch: downloads a URL sent by a client, if the server is configured to. Only http and https, with limits
 * on size and time, and never from this machine or a non-public network. */
#ifndef SRV_FETCH_H
#define SRV_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moraine_server.h"

struct ifaddrs;
struct sockaddr;

/* Returns true if connecting to the address is allowed. */
typedef bool (*srv_address_rule)(const struct sockaddr *address);

/* Only public internet addresses: none of this machine, of private, shared or link-local networks, of
 * documentation or multicast ranges, and none that embeds such an address of the other family. */
bool srv_address_public(const struct sockaddr *address);

/* True if the address is in a getifaddrs() list. */
bool srv_address_among(const struct sockaddr *address, const struct ifaddrs *list);

typedef struct srv_fetch_options {
    srv_address_rule allowed; /* checked for every address after name resolution, also of redirects */
    size_t bytes_most;
    double seconds; /* in total */
} srv_fetch_options;

/* True if this build supports fetching. */
bool srv_fetch_supported(void);

/* Fetches a file; the caller frees *bytes. Redirects are followed on the same host. MO_EINVAL: the URL may
 * not be fetched. MO_EIO: fetching failed; *busy: because of too many concurrent fetches. MO_ENOSPC: too
 * large. MO_ECANCELLED: the thread's work is no longer wanted (mo_interrupt_set()). MO_ENOMEM. */
mo_status srv_fetch(const char *url, size_t length, const srv_fetch_options *options, uint8_t **bytes,
                    size_t *size, bool *busy, mo_error *err);

#endif
