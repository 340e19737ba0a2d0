#include "plan/lane_rate.h"

/* Rates between which an observation makes sense. */
#define FASTEST_BYTES_S 1e12
#define SLOWEST_BYTES_S 1e7
#define NEW_SHARE       0.1  /* of an observation */
#define BACK_SHARE      0.01 /* of the way back to the start, per layer without work */
/* A fetch must save so much of a layer's time: it costs launches and a round more of waiting. */
#define FETCH_PAYS_S 20e-6
/* What a fetch costs beside its bytes: until the first sets out, and until what arrived last is computed. Of a small
 * expert that is as much as its copy. It is the link's alone; the plan's MO_PLAN_FETCH_SECONDS is what is left of it for a
 * layer whose work is divided. */
#define FETCH_START_S 45e-6

mo_lane_rate mo_lane_rate_of(double bytes_s)
{
    const double s_per_byte = 1.0 / bytes_s;
    return (mo_lane_rate){.s_per_byte = s_per_byte, .start = s_per_byte, .last = s_per_byte};
}

static double less(double a, double b)
{
    return a < b ? a : b;
}

static double more(double a, double b)
{
    return a > b ? a : b;
}

void mo_lane_rate_observe(mo_lane_rate *rate, double seconds, int64_t bytes)
{
    const double now = bytes > 0 ? seconds / (double)bytes : 0.0;
    if (now <= 1.0 / FASTEST_BYTES_S || now >= 1.0 / SLOWEST_BYTES_S) {
        return;
    }
    const double believable = less(now, more(2.0 * rate->s_per_byte, rate->last));
    rate->s_per_byte += NEW_SHARE * (believable - rate->s_per_byte);
    rate->last = now;
}

static void idle(mo_lane_rate *rate)
{
    if (rate->s_per_byte > rate->start) {
        rate->s_per_byte += BACK_SHARE * (rate->start - rate->s_per_byte);
    }
}

int mo_lane_share(mo_lane_rate *cpu, mo_lane_rate *link, int64_t brick_bytes, int count, int most)
{
    const double by_cpu = (double)brick_bytes * cpu->s_per_byte,
                 by_link = (double)brick_bytes * link->s_per_byte;
    double best = count * by_cpu - FETCH_PAYS_S;
    int chosen = 0;
    for (int f = 1; f <= most; f++) {
        const double both = more(FETCH_START_S + f * by_link, (count - f) * by_cpu);
        if (both < best) {
            best = both;
            chosen = f;
        }
    }
    if (count > 0 && chosen == count) {
        idle(cpu);
    } else if (count > 0 && chosen == 0) {
        idle(link);
    }
    return chosen;
}
