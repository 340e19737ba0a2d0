/* Pulse: what a model did in the last second: tokens, hits, and bytes over its wires. */
#ifndef SRV_PULSE_H
#define SRV_PULSE_H

#include "moraine.h"
#include "server/scheduler/job.h"

/* Sums since the model was loaded. */
typedef struct srv_pulse_counts {
    uint64_t prompt, predicted;                 /* tokens */
    uint64_t experts, hits;                     /* that tokens needed; found in the upper tier */
    uint64_t disk_bytes, ram_bytes, link_bytes; /* read from disk; by the CPU from RAM; sent to the device */
} srv_pulse_counts;

/* Waits for no step. */
void srv_pulse_count(mo_model *model, srv_engine *engine, srv_pulse_counts *out);

typedef struct srv_pulse {
    srv_pulse_counts all;
    double prompt_tokens_s, predicted_tokens_s;
    double disk_bytes_s, ram_bytes_s, link_bytes_s;
    /* 0 while there is no token. */
    double experts_per_token, hits_per_token, disk_bytes_per_token, link_bytes_per_token;
} srv_pulse;

/* What lies between two counts that were taken so many seconds apart. Counts that went back began anew. */
srv_pulse srv_pulse_between(const srv_pulse_counts *before, const srv_pulse_counts *now, double seconds);

#endif
