/* Traffic: messages between the ranks of a model, by step, and how long rank 0 waited for them. */
#ifndef MO_CLUSTER_TRAFFIC_H
#define MO_CLUSTER_TRAFFIC_H

#include <pthread.h>

#include "moraine_server.h"

enum { MO_TRAFFIC_RECENT = 256 };

typedef struct mo_traffic {
    pthread_mutex_t lock; /* protects the other members */
    mo_traffic_report sum;
    uint64_t recent_ns[MO_TRAFFIC_RECENT]; /* message time of the last steps, a ring buffer */
} mo_traffic;

/* One step: as in mo_traffic_report. */
typedef struct mo_traffic_step {
    uint64_t tokens, sent_bytes, received_bytes, wait_ns, work_ns;
} mo_traffic_step;

void mo_traffic_open(mo_traffic *traffic, mo_divide divide, int ranks);
void mo_traffic_close(mo_traffic *traffic);
/* Both: any thread. */
void mo_traffic_count(mo_traffic *traffic, const mo_traffic_step *step);
void mo_traffic_read(mo_traffic *traffic, mo_traffic_report *out);

#endif
