/* Transport: ordered messages between ranks, which are processes of one run, on one machine or several. What is sent from
 * one rank to another arrives in order, once and whole, or the message fails with a sentence that names the other rank; no
 * call waits beyond a deadline. Messages and their bytes are the caller's and are made beforehand: nothing here allocates
 * after opening. One thread at a time uses a rank's transport.
 *
 * An implementation fills mo_transport_calls; tests/support/loopback.h is one for ranks that are threads of one process. */
#ifndef MO_NET_TRANSPORT_H
#define MO_NET_TRANSPORT_H

#include "moraine.h"

/* What is wrong with a message that came. The first between two ranks has one length in all builds of a version. */
#define MO_NET_LENGTH "sent a message of unexpected length"
#define MO_NET_FIRST_LENGTH                                                                                  \
    MO_NET_LENGTH                                                                                            \
    ", which happens with different versions of moraine; install the same version on every machine"

typedef enum mo_net_state {
    MO_NET_IDLE,
    MO_NET_UNDER_WAY, /* its bytes must stay where they are, and as they are */
    MO_NET_DONE,      /* sent: its bytes may change again; received: they are there */
    MO_NET_FAILED, /* `error` says why; every later message between the two ranks in this direction fails too */
} mo_net_state;

/* One message, to send or to receive. Begins as zeros; after it has ended it may be used again. Messages move on while
 * this rank looks at some message between it and the same peer. */
typedef struct mo_net_message {
    int peer;
    void *data;          /* sent from here, or received here */
    size_t bytes;        /* at most the transport's limit; for a receive: exactly this many must arrive */
    int64_t deadline_ns; /* by mo_clock_ns(); 0: none */

    mo_net_state state;
    mo_error error;

    /* The transport's own. */
    struct mo_net_message *next;
    uint64_t number;  /* among those between the two ranks */
    uint64_t request; /* of the transport */
    bool sends;
} mo_net_message;

typedef struct mo_transport mo_transport;

typedef struct mo_transport_calls {
    void (*begin)(mo_transport *, mo_net_message *);
    void (*look)(mo_transport *, mo_net_message *, bool wait);
    void (*abandon)(mo_transport *, mo_net_message *);
    void (*close)(mo_transport *);
} mo_transport_calls;

/* Every implementation's struct begins with this. */
struct mo_transport {
    const mo_transport_calls *calls;
    int rank, ranks; /* this one, of how many */
    size_t limit;    /* most bytes of a message */
};

/* Begin, and return at once. Messages to one peer are sent in the order of these calls, and received likewise. What is
 * wrong with a message makes it FAILED, here or later. */
static inline void mo_transport_send(mo_transport *t, mo_net_message *m)
{
    m->sends = true;
    t->calls->begin(t, m);
}

static inline void mo_transport_receive(mo_transport *t, mo_net_message *m)
{
    m->sends = false;
    t->calls->begin(t, m);
}

/* Has it ended? */
static inline bool mo_transport_ended(mo_transport *t, mo_net_message *m)
{
    t->calls->look(t, m, false);
    return m->state != MO_NET_UNDER_WAY;
}

/* Waits until it has ended, at most until its deadline; returns its error's status. */
static inline mo_status mo_transport_wait(mo_transport *t, mo_net_message *m)
{
    t->calls->look(t, m, true);
    return m->state == MO_NET_FAILED ? m->error.status : MO_OK;
}

/* Gives up a message that is under way, or none: its bytes are free afterwards, and nothing more is sent or received between the two
 * ranks in this direction. Before the rank leaves. */
static inline void mo_transport_abandon(mo_transport *t, mo_net_message *m)
{
    if (m->state == MO_NET_UNDER_WAY) {
        t->calls->abandon(t, m);
        m->state = MO_NET_FAILED;
    }
}

/* The rank leaves: messages that others send to it or expect of it fail. NULL is allowed. */
static inline void mo_transport_close(mo_transport *t)
{
    if (t) {
        t->calls->close(t);
    }
}

#endif
