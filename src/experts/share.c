#include "experts/share.h"

#include <stdlib.h>

#include "device/fetch_share.h"

/* Observations outside these rates are implausible. */
#define FASTEST_BYTES_S 1e12
#define SLOWEST_BYTES_S 1e7
#define NEW_SHARE       0.1  /* weight of an observation */
#define BACK_SHARE      0.01 /* part of the way back to the initial value, per layer without work */
#define AGAIN_SHARE                                                                                          \
    0.002 /* likewise for the CPU's other rate, which is used again as soon as it looks better */
/* Rows that a CPU multiplies with an expert in the time it takes to read the expert; see
 * plan/prompt_cost.c. */
#define CPU_ROWS 6.0

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

static void idle(mo_lane_rate *rate, double share)
{
    if (rate->s_per_byte > rate->start) {
        rate->s_per_byte += share * (rate->start - rate->s_per_byte);
    }
}

int mo_lane_share(mo_lanes *l, int64_t expert_bytes, int count, int most)
{
    const double bytes = (double)expert_bytes;
    /* Without copies the CPU is at least as fast as with them, whatever was observed before. */
    const mo_fetch_costs costs = {.cpu_alone = bytes * less(l->alone.s_per_byte, l->cpu.s_per_byte),
                                  .cpu = bytes * l->cpu.s_per_byte,
                                  .link = bytes * l->link.s_per_byte};
    const int chosen = mo_fetch_share(&costs, count, most, NULL);
    if (count > 0 && chosen > 0) {
        idle(&l->alone, AGAIN_SHARE);
    }
    if (count > 0 && chosen == count) {
        idle(&l->cpu, BACK_SHARE);
    } else if (count > 0 && chosen == 0) {
        idle(&l->cpu, AGAIN_SHARE);
        idle(&l->link, BACK_SHARE);
    }
    return chosen;
}

void mo_lane_observe_cpu(mo_lanes *l, bool crossing, double seconds, int64_t bytes)
{
    mo_lane_rate_observe(crossing ? &l->cpu : &l->alone, seconds, bytes);
}

double mo_lane_rows_cost(int32_t rows)
{
    return 1.0 + (rows > 1 ? rows - 1 : 0) / CPU_ROWS;
}

static int by_rows(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

int mo_lane_split(mo_lane_rate *cpu, mo_lane_rate *link, int64_t expert_bytes, double carried, int32_t *rows,
                  int count, int32_t *most, int *few)
{
    const double by_cpu = (double)expert_bytes * cpu->s_per_byte,
                 by_link = (double)expert_bytes * link->s_per_byte;
    const double before = carried * by_link;
    double best = MO_FETCH_START_S + before + count * by_link, sum = 0;
    int chosen = 0;
    qsort(rows, (size_t)count, sizeof *rows, by_rows);
    for (int n = 1; n <= count; n++) {
        sum += by_cpu * mo_lane_rows_cost(rows[n - 1]);
        const double both = more(before + (n < count ? MO_FETCH_START_S + (count - n) * by_link : 0), sum);
        if (both < best) {
            best = both;
            chosen = n;
        }
    }
    *most = chosen ? rows[chosen - 1] : 0;
    *few = 0;
    for (int i = chosen; i > 0 && rows[i - 1] == *most; i--) {
        ++*few;
    }
    if (count > 0 && chosen == 0) {
        idle(cpu, BACK_SHARE);
    }
    return chosen;
}
