/* Loopback: ranks that are threads of one process, connected by queues in its memory. For tests of what uses a transport,
 * and for several devices behind one interface. */
#ifndef MO_TESTS_LOOPBACK_H
#define MO_TESTS_LOOPBACK_H

#include "net/transport.h"

/* What a fault makes of a message on its way. */
typedef struct mo_loopback_fault {
    bool lost;
    int64_t late_ns;
    size_t bytes; /* this many arrive */
} mo_loopback_fault;

typedef struct mo_loopback_options {
    int ranks;
    size_t limit; /* most bytes of a message */
    int depth;    /* messages that one rank can have sent to another before that receives */
    /* For tests: asked for every message, `number` among those from one rank to the other; changes *fault, which is none.
     * Called with a lock held. NULL: no faults. */
    void (*fault)(void *user, int from, int to, uint64_t number, mo_loopback_fault *fault);
    void *user;
} mo_loopback_options;

typedef struct mo_loopback mo_loopback;

mo_status mo_loopback_open(const mo_loopback_options *options, mo_loopback **out, mo_error *err);
/* After all ranks were closed. NULL is allowed. */
void mo_loopback_close(mo_loopback *loopback);
/* A rank's end; each is closed once, by mo_transport_close(). */
mo_transport *mo_loopback_rank(mo_loopback *loopback, int rank);

#endif
