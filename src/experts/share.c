#include "experts/share.h"

#include <stdlib.h>

/* Rates between which an observation makes sense. */
#define FASTEST_BYTES_S 1e12
#define SLOWEST_BYTES_S 1e7
#define NEW_SHARE       0.1  /* of an observation */
#define BACK_SHARE      0.01 /* of the way back to the start, per layer without work */
/* A fetch must save this much of a layer's time: it costs launches and another round of waiting. */
#define FETCH_PAYS_S 20e-6
/* Fixed cost of a fetch: until the first copy starts, and until the last one is computed. Of a small
 * expert that is as much as its copy. It is the link's alone; the plan's MO_PLAN_FETCH_SECONDS is what is left of it for a
 * layer whose work is divided. */
#define FETCH_START_S 45e-6
/* Rows that a CPU multiplies with an expert in the time in which it reads it; see plan/prompt_cost.c. */
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

static void idle(mo_lane_rate *rate)
{
    if (rate->s_per_byte > rate->start) {
        rate->s_per_byte += BACK_SHARE * (rate->start - rate->s_per_byte);
    }
}

int mo_lane_share(mo_lane_rate *cpu, mo_lane_rate *link, int64_t expert_bytes, int count, int most)
{
    const double by_cpu = (double)expert_bytes * cpu->s_per_byte,
                 by_link = (double)expert_bytes * link->s_per_byte;
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

double mo_lane_products(double round, double beside)
{
    return beside < round * 2 / 3 ? round : 3 * (round - beside);
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
    double best = FETCH_START_S + before + count * by_link, sum = 0;
    int chosen = 0;
    qsort(rows, (size_t)count, sizeof *rows, by_rows);
    for (int n = 1; n <= count; n++) {
        sum += by_cpu * mo_lane_rows_cost(rows[n - 1]);
        const double both = more(before + (n < count ? FETCH_START_S + (count - n) * by_link : 0), sum);
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
        idle(cpu);
    }
    return chosen;
}
