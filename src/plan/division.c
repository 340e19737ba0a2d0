#include "plan/division.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"

/* Seconds of a token in a rank with so much of the model. */
static double time_of(const mo_division_rank *r, double bytes, double token_bytes)
{
    const double over = bytes + (double)r->other_bytes - (double)r->ram_bytes;
    const double from_disk = over > 0 && bytes > 0 ? token_bytes * fmin(over / bytes, 1.0) : 0.0;
    return token_bytes / r->ram_bytes_s + from_disk / r->disk_bytes_s;
}

mo_status mo_division_make(const mo_division_layer *layers, int count, const mo_division_rank *ranks,
                           int rank_count, int *first, mo_error *err)
{
    const size_t row = (size_t)count + 1;
    if (rank_count < 1 || rank_count > count) {
        return mo_fail(err, MO_EINVAL,
                       "the model has %d layers, which cannot be divided among %d ranks; start fewer", count,
                       rank_count);
    }
    /* Of the first `end` layers in ranks 0 .. r: the smallest sum, and where rank r begins. */
    double *best = calloc(row * (size_t)rank_count, sizeof *best);
    int *begin = calloc(row * (size_t)rank_count, sizeof *begin);
    if (!best || !begin) {
        free(best);
        free(begin);
        return mo_fail(err, MO_ENOMEM, "no memory for dividing the layers");
    }
    for (int r = 0; r < rank_count; r++) {
        double *at = best + row * (size_t)r;
        for (int end = 0; end <= count; end++) {
            double bytes = 0, token_bytes = 0;
            at[end] = INFINITY;
            for (int from = end - 1; from >= r; from--) {
                bytes += (double)layers[from].bytes;
                token_bytes += (double)layers[from].token_bytes;
                const double before = r > 0  ? best[row * (size_t)(r - 1) + (size_t)from]
                                      : from ? INFINITY
                                             : 0.0;
                const double t = time_of(&ranks[r], bytes, token_bytes), sum = before + t * t;
                if (sum < at[end]) {
                    at[end] = sum;
                    begin[row * (size_t)r + (size_t)end] = from;
                }
            }
        }
    }
    first[rank_count] = count;
    for (int r = rank_count - 1; r >= 0; r--) {
        first[r] = begin[row * (size_t)r + (size_t)first[r + 1]];
    }
    free(best);
    free(begin);
    return MO_OK;
}
