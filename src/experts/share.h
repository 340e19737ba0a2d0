/* Rate: how fast a lane is, from what it did, and what each of two gets. It begins with what was probed and follows what
 * happens; but a machine that others share sometimes stands still for milliseconds, and one such moment must not cost a
 * lane its work: without work it could not be seen that it is fast again. */
#ifndef MO_EXPERTS_SHARE_H
#define MO_EXPERTS_SHARE_H

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

/* How many of `count` experts, at most `most`, cross the link, so that it and the CPU end together. A lane that gets none
 * forgets slowly what made it look slow. */
int mo_lane_share(mo_lane_rate *cpu, mo_lane_rate *link, int64_t expert_bytes, int count, int most);

/* What a round's products took, of a round of this many seconds in which one thread did something else for `beside` seconds
 * before it helped: gate and up, two thirds of the work, may have ended before that, but down begins after it. */
double mo_lane_products(double round, double beside);

/* How much longer the CPU takes for an expert with this many rows than with one. */
double mo_lane_rows_cost(int32_t rows);

/* The same for experts with several rows each, rows[count]: the link takes as long for each, the CPU gets those with the fewest.
 * `carried` experts cross before any of them. Returns how many are the CPU's: those with fewer than *most rows, and *few of those
 * that have just so many. */
int mo_lane_split(mo_lane_rate *cpu, mo_lane_rate *link, int64_t expert_bytes, double carried, int32_t *rows,
                  int count, int32_t *most, int *few);

#endif
