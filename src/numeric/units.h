/* Units: into what pieces interleaving cuts the file's blocks (numeric/weights.h says how). Plain C, for the GPU's
 * kernels as well.
 *
 * Codes travel in words of four, because the dot-product instructions take four codes per lane; scales travel in the
 * size in which they are read. */
#ifndef MO_NUMERIC_UNITS_H
#define MO_NUMERIC_UNITS_H

/* X(type, two runs of units: offset in the block, count, size of one). They cover the block without a gap. */
#define MO_UNITS(X)                                                                                          \
    X(MO_Q4_0, 0, 1, 2, 2, 4, 4)                                                                             \
    X(MO_Q4_1, 0, 2, 2, 4, 4, 4)                                                                             \
    X(MO_Q5_0, 0, 1, 2, 2, 5, 4)                                                                             \
    X(MO_Q5_1, 0, 2, 2, 4, 5, 4)                                                                             \
    X(MO_Q8_0, 0, 1, 2, 2, 8, 4)                                                                             \
    X(MO_Q2_K, 0, 20, 4, 80, 2, 2)                                                                           \
    X(MO_Q3_K, 0, 27, 4, 108, 1, 2)                                                                          \
    X(MO_Q4_K, 0, 2, 2, 4, 35, 4)                                                                            \
    X(MO_Q5_K, 0, 2, 2, 4, 43, 4)                                                                            \
    X(MO_Q6_K, 0, 52, 4, 208, 1, 2)                                                                          \
    X(MO_IQ4_NL, 0, 1, 2, 2, 4, 4)                                                                           \
    X(MO_IQ4_XS, 0, 2, 2, 4, 33, 4)                                                                          \
    X(MO_MXFP4, 0, 1, 1, 1, 4, 4)                                                                            \
    X(MO_NVFP4, 0, 9, 4, 36, 0, 4)

#endif
