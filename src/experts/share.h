/* Rate: how fast a lane is, from what it did, and what each of two gets. It begins with what was probed and follows what
 * happens; but a machine that others share sometimes stands still for milliseconds, and one such moment must not cost a
 * lane its work: without work it could not be seen that it is fast again. */
#ifndef MO_EXPERTS_SHARE_H
#define MO_EXPERTS_SHARE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mo_lane_rate {
    double s_per_byte; /* what is believed */
    double start;      /* what was believed at first */
    double last;       /* the last observation */
} mo_lane_rate;

mo_lane_rate mo_lane_rate_of(double bytes_s);

/* A tenth of every new observation. One that is more than twice as slow as believed counts as twice as slow, unless the
 * one before was slow too. What no lane can be is passed over: a fault of the clock. */
void mo_lane_rate_observe(mo_lane_rate *rate, double seconds, int64_t bytes);

/* The lanes of small steps. The CPU has a rate while experts cross and another while none do: copies take some of its memory's rate, and
 * what it is slowed down to by sending must not be the reason for sending. */
typedef struct mo_lanes {
    mo_lane_rate alone, cpu, link;
} mo_lanes;

/* How many of `count` experts, at most `most`, cross the link, so that it and the CPU end together. A rate that is not observed, because
 * the choice made it unnecessary, forgets slowly what made it look slow. */
int mo_lane_share(mo_lanes *lanes, int64_t expert_bytes, int count, int most);

/* The CPU computed that many bytes while experts crossed, or while none did. */
void mo_lane_observe_cpu(mo_lanes *lanes, bool crossing, double seconds, int64_t bytes);

/* How much longer the CPU takes for an expert with this many rows than with one. */
double mo_lane_rows_cost(int32_t rows);

/* The same for experts with several rows each, rows[count]: the link takes as long for each, the CPU gets those with the fewest.
 * `carried` experts cross before any of them. Returns how many are the CPU's: those with fewer than *most rows, and *few of those
 * that have just so many. */
int mo_lane_split(mo_lane_rate *cpu, mo_lane_rate *link, int64_t expert_bytes, double carried, int32_t *rows,
                  int count, int32_t *most, int *few);

#endif
