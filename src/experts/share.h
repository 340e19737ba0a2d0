/* Share: measured rates of two lanes, and the share of the work that each gets. A rate starts with the probed
 * value and follows observations. A machine shared with others sometimes stalls for milliseconds. Such a
 * stall must not take all work from a lane, because a lane without work could not show that it is fast
 * again. */
#ifndef MO_EXPERTS_SHARE_H
#define MO_EXPERTS_SHARE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mo_lane_rate {
    double s_per_byte; /* current estimate */
    double start;      /* initial estimate */
    double last;       /* the last observation */
} mo_lane_rate;

mo_lane_rate mo_lane_rate_of(double bytes_s);

/* Moves the estimate by a tenth of the observation. An observation more than twice as slow as the estimate
 * counts as twice as slow, unless the one before was slow too. Impossible observations (clock faults) are
 * ignored. */
void mo_lane_rate_observe(mo_lane_rate *rate, double seconds, int64_t bytes);

/* The lanes of small steps. The CPU has one rate while experts are copied and another while none are. Copies
 * take some of its memory bandwidth, and the slowdown that sending causes must not become the reason for
 * sending. */
typedef struct mo_lanes {
    mo_lane_rate alone, cpu, link;
} mo_lanes;

/* How many of `count` experts, at most `most`, to copy so that the link and the CPU finish together. A rate
 * that is not observed because of the choice, and is slower than its initial value, slowly returns to
 * that. */
int mo_lane_share(mo_lanes *lanes, int64_t expert_bytes, int count, int most);

/* Records the bytes that the CPU computed while experts were copied, or while none were. */
void mo_lane_observe_cpu(mo_lanes *lanes, bool crossing, double seconds, int64_t bytes);

/* The CPU's time for an expert with this many rows, relative to one row. */
double mo_lane_rows_cost(int32_t rows);

/* Like mo_lane_share() for experts with several rows each, rows[count]. The link takes the same time for each
 * expert, so the CPU gets those with the fewest rows. `carried` experts are copied before them. Returns how
 * many the CPU gets: those with fewer than *most rows, and *few of those with exactly *most. */
int mo_lane_split(mo_lane_rate *cpu, mo_lane_rate *link, int64_t expert_bytes, double carried, int32_t *rows,
                  int count, int32_t *most, int *few);

#endif
