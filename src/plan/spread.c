#include "plan/spread.h"

#include <math.h>

enum { USED_MOST = 64 };

#define COUNTING_MOST                                                                                        \
    2e7 /* counting steps; beyond them, cases that take nearly the same time are merged to limit the work */

double mo_spread_asked(int own, int experts, int used)
{
    double none = 1;
    for (int i = 0; i < used && none > 0; i++) {
        const int left = experts - own - i;
        none = left > 0 ? none * left / (experts - i) : 0;
    }
    return 1 - none;
}

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* Probability that no rank has more picks than its limit in `most`: the number of such choices divided by all
 * choices. Both are scaled equally to avoid overflow. */
static double probability(const mo_spread_rank *ranks, int count, int experts, int used,
                          const unsigned char *most, double *work)
{
    const double scale = (double)used / experts;
    double ways[USED_MOST + 1] = {1}, all = 1;
    for (int i = 0; i < used; i++) {
        all *= scale * (experts - i) / (i + 1);
    }
    for (int r = 0; r < count; r++) {
        for (int sum = used; sum >= 1 && most[r] > 0; sum--) {
            double term = 1;
            for (int n = 1; n <= least_of(most[r], sum); n++) {
                term *= scale * (ranks[r].experts - n + 1) / n;
                ways[sum] += term * ways[sum - n];
            }
            *work += most[r];
        }
    }
    return fmin(ways[used] / all, 1);
}

static double longest_mean(const mo_spread_rank *ranks, int count, int experts, int used)
{
    double mean = 0;
    for (int r = 0; r < count; r++) {
        const double asked = mo_spread_asked(ranks[r].experts, experts, used);
        const double picks = (double)used * ranks[r].experts / experts;
        mean = fmax(mean, asked * ranks[r].fixed + picks * ranks[r].each);
    }
    return mean;
}

static double seconds_of(const mo_spread_rank *rank, int picks)
{
    return rank->fixed + picks * rank->each;
}

double mo_spread_longest(const mo_spread_rank *ranks, int count, int used)
{
    unsigned char most[MO_SPREAD_RANKS] = {0}; /* picks of every rank that take at most t */
    double t = 0, mean = 0, end = 0, work = 0, left = 1;
    int experts = 0;
    for (int r = 0; r < count; r++) {
        experts += ranks[r].experts;
        end = fmax(end, seconds_of(&ranks[r], least_of(used, ranks[r].experts)));
    }
    if (used < 1 || used > experts) {
        return 0;
    }
    if (used > USED_MOST || count > MO_SPREAD_RANKS) {
        return longest_mean(ranks, count, experts, used);
    }
    /* the mean: sum of the steps of t, each times the probability of exceeding it */
    while (left > 0) {
        double next = INFINITY;
        int sum = 0;
        for (int r = 0; r < count; r++) {
            if (most[r] < least_of(used, ranks[r].experts)) {
                next = fmin(next, seconds_of(&ranks[r], most[r] + 1));
            }
        }
        if (isinf(next)) {
            break;
        }
        next = fmax(next, t + (work > COUNTING_MOST ? end / 256 : 0));
        mean += (next - t) * left;
        t = next;
        for (int r = 0; r < count; r++) {
            const int limit = least_of(used, ranks[r].experts);
            while (most[r] < limit && seconds_of(&ranks[r], most[r] + 1) <= t) {
                most[r]++;
            }
            sum += most[r];
        }
        left = sum < used ? 1 : 1 - probability(ranks, count, experts, used, most, &work);
        left = left > 1e-12 ? left : 0;
    }
    return mean;
}
