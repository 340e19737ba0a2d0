/* Caller: who asks, for what belongs to clients: prefixes, sequences, running answers. */
#ifndef SRV_CALLER_H
#define SRV_CALLER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct srv_caller {
    uint64_t owner; /* a number of the client's identity; 0: without keys, or where keys share prefixes */
    bool admin;     /* may see and change what belongs to others; always so without keys */
} srv_caller;

/* What belongs to owner 0 is for all: with keys that is what the server itself computed (--warm). */
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
