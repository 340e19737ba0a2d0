/* Network: the time of messages between two ranks. */
#ifndef MO_PLAN_NETWORK_H
#define MO_PLAN_NETWORK_H

/* A link between two ranks. */
typedef struct mo_network_wire {
    double latency_s; /* from sending an empty message to its receipt */
    double bytes_s;
    double message_s; /* CPU cost of each further message sent right after another */
} mo_network_wire;

/* Defaults for a network that was not measured: 1 Gbit/s TCP. */
#define MO_NETWORK_LATENCY_GUESS 50e-6
#define MO_NETWORK_RATE_GUESS    115e6
#define MO_NETWORK_MESSAGE_GUESS 2e-6

static inline mo_network_wire mo_network_guess(void)
{
    return (mo_network_wire){MO_NETWORK_LATENCY_GUESS, MO_NETWORK_RATE_GUESS, MO_NETWORK_MESSAGE_GUESS};
}

/* Defaults for an unknown link. */
static inline mo_network_wire mo_network_known(const mo_network_wire *wire)
{
    return wire->bytes_s > 0 ? *wire : mo_network_guess();
}

/* Seconds until the last of several messages arrives; bytes is their total. */
static inline double mo_network_seconds(const mo_network_wire *wire, double messages, double bytes)
{
    return messages > 0 ? wire->latency_s + (messages - 1) * wire->message_s + bytes / wire->bytes_s : 0;
}

#endif
