/* Measured: the clock for measurements, and quantiles of results. */
#ifndef CLI_MEASURED_H
#define CLI_MEASURED_H

#include <stdint.h>

/* Sorts the values and returns a quantile: 0.5 is the median, 1 the maximum. 0 without values. */
double cli_quantile(double *values, int64_t count, double share);

#endif
