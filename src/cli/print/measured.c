#include "cli/print/measured.h"

#include <stdlib.h>
#include <time.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double cli_quantile(double *values, int64_t count, double share)
{
    if (count < 1) {
        return 0.0;
    }
    qsort(values, (size_t)count, sizeof *values, by_value);
    const int64_t at = (int64_t)(share * (double)count);
    return values[at < count ? at : count - 1];
}
