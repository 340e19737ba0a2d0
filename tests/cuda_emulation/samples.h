/* The parameter of the sample kernels. */
#ifndef MO_EMULATION_SAMPLES_H
#define MO_EMULATION_SAMPLES_H

#include "device/op.h"

typedef struct sample {
    mo_daddr in, out;
    int32_t wrong;
} sample;

#endif
