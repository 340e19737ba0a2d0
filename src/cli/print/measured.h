/* Measured: the clock that measurements go by, and what several of them say together. */
#ifndef CLI_MEASURED_H
#define CLI_MEASURED_H

#include <stdint.h>

/* Sorts; the value that a share of them does not exceed: 0.5 the median, 1 the largest. 0 where there is none. */
double cli_quantile(double *values, int64_t count, double share);

#endif
