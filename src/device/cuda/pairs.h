/* Pairs: the formats whose slabs two tokens may meet. Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_PAIRS_H
#define MO_DEVICE_CUDA_PAIRS_H

/* Those that have most experts, of which a thread decodes 32 values at a time: with 64 it has not the registers for two tokens. */
#define MO_PAIR_FORMATS(X) X(Q4_0) X(Q8_0) X(IQ4_NL) X(MXFP4)

#endif
