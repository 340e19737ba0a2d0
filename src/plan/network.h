/* Network: how long messages between two ranks take. */
#ifndef MO_PLAN_NETWORK_H
#define MO_PLAN_NETWORK_H

/* The way from one rank to another. */
typedef struct mo_network_wire {
    double latency_s; /* from sending a message without bytes to having received it */
    double bytes_s;
    double message_s; /* of each further message that is sent behind another: what it costs the processors */
} mo_network_wire;

/* Defaults of plans for a network that was not measured: 1 Gbit/s, by TCP. */
#define MO_NETWORK_LATENCY_GUESS 50e-6
#define MO_NETWORK_RATE_GUESS    115e6
#define MO_NETWORK_MESSAGE_GUESS 2e-6

static inline mo_network_wire mo_network_guess(void)
{
    return (mo_network_wire){MO_NETWORK_LATENCY_GUESS, MO_NETWORK_RATE_GUESS, MO_NETWORK_MESSAGE_GUESS};
}

/* A wire of which nothing is known is guessed. */
static inline mo_network_wire mo_network_known(const mo_network_wire *wire)
{
    return wire->bytes_s > 0 ? *wire : mo_network_guess();
}

/* Seconds of a series of messages with this many bytes in total, until the last one arrives. */
static inline double mo_network_seconds(const mo_network_wire *wire, double messages, double bytes)
{
    return messages > 0 ? wire->latency_s + (messages - 1) * wire->message_s + bytes / wire->bytes_s : 0;
}

#endif
