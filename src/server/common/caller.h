/* Caller: the client that sends a request; it owns prefixes, sequences and running answers. */
#ifndef SRV_CALLER_H
#define SRV_CALLER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct srv_caller {
    uint64_t owner; /* number of the client's identity; 0: no keys, or prefixes are shared between keys */
    bool admin;     /* may see and change what others own; always true without keys */
} srv_caller;

/* Owner 0's property is shared by all: with keys it is what the server itself computed (--warm). */
static inline bool srv_owner_shares(uint64_t owner, uint64_t with)
{
    return owner == 0 || owner == with;
}
static inline bool srv_caller_sees(const srv_caller *c, uint64_t owner)
{
    return c->admin || srv_owner_shares(owner, c->owner);
}
static inline bool srv_caller_changes(const srv_caller *c, uint64_t owner)
{
    return c->admin || (owner != 0 && owner == c->owner);
}

#endif
