/* Transport: ordered messages between ranks, which are processes of one run, on one or several machines. A
   message arrives once, whole and in order, or fails with a sentence that names the other rank. No call waits
   beyond a deadline. The caller owns messages and their bytes; nothing is allocated after opening. One thread
   at a time uses a rank's transport.

   An implementation fills mo_transport_calls. tests/support/loopback.h implements it for ranks that are
   threads of one process. */
#ifndef MO_NET_TRANSPORT_H
#define MO_NET_TRANSPORT_H

#include "moraine.h"

/* Error texts. The first message between two ranks has the same length in all builds of a version. */
#define MO_NET_LENGTH "sent a message of unexpected length"
#define MO_NET_FIRST_LENGTH                                                                                  \
    MO_NET_LENGTH                                                                                            \
    ", which happens with different versions of moraine; install the same version on every machine"

typedef enum mo_net_state {
    MO_NET_IDLE,
    MO_NET_UNDER_WAY, /* its bytes must stay unchanged */
    MO_NET_DONE,      /* sent: its bytes may be changed; received: its bytes are complete */
    MO_NET_FAILED,    /* see `error`; all later messages between the two ranks in this direction fail too */
} mo_net_state;

/* A message to send or receive. Initialize with zeros; may be reused when it has ended. Messages make
   progress only while this rank checks some message between it and the same peer. */
typedef struct mo_net_message {
    int peer;
    void *data;          /* sent from or received into */
    size_t bytes;        /* at most the transport's limit; a receive must get exactly this many */
    int64_t deadline_ns; /* by mo_clock_ns(); 0: no deadline */

    mo_net_state state;
    mo_error error;

    /* Used by the transport. */
    struct mo_net_message *next;
    uint64_t number;  /* number among the messages between the two ranks */
    uint64_t request; /* the transport's handle */
    bool sends;
} mo_net_message;

typedef struct mo_transport mo_transport;

typedef struct mo_transport_calls {
    void (*begin)(mo_transport *, mo_net_message *);
    void (*look)(mo_transport *, mo_net_message *, bool wait);
    void (*abandon)(mo_transport *, mo_net_message *);
    void (*close)(mo_transport *);
} mo_transport_calls;

/* First member of every implementation's struct. */
struct mo_transport {
    const mo_transport_calls *calls;
    int rank, ranks; /* this rank, and the number of ranks */
    size_t limit;    /* maximum bytes of a message */
};

/* Begin a message and return at once. Messages to one peer are sent in the order of these calls, and received
   likewise. An error makes the message FAILED, now or later. */
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

/* Has the message ended? */
static inline bool mo_transport_ended(mo_transport *t, mo_net_message *m)
{
    t->calls->look(t, m, false);
    return m->state != MO_NET_UNDER_WAY;
}

/* Waits until the message has ended, at most until its deadline. Returns the status of its error. */
static inline mo_status mo_transport_wait(mo_transport *t, mo_net_message *m)
{
    t->calls->look(t, m, true);
    return m->state == MO_NET_FAILED ? m->error.status : MO_OK;
}

/* Abandons a message, in flight or not: its bytes are free afterwards, and nothing more is sent or received
   between the two ranks in this direction. Used before the rank leaves. */
static inline void mo_transport_abandon(mo_transport *t, mo_net_message *m)
{
    if (m->state == MO_NET_UNDER_WAY) {
        t->calls->abandon(t, m);
        m->state = MO_NET_FAILED;
    }
}

/* The rank leaves: messages of other ranks to or from it fail. NULL is allowed. */
static inline void mo_transport_close(mo_transport *t)
{
    if (t) {
        t->calls->close(t);
    }
}

#endif
