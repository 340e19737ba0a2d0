/* Formats: the one table of the formats of weights. Every list of them, size and name comes from
 * here; what a format's bytes mean is numeric/block.c. docs/adding-a-format.md says what a new line asks for. Plain
 * C, for the GPU's kernels as well. */
#ifndef MO_NUMERIC_FORMATS_H
#define MO_NUMERIC_FORMATS_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, its number in a file, bytes of a value). */
#define MO_FLOAT_FORMATS(X)                                                                                  \
    X(F32, 0, 4)                                                                                             \
    X(F16, 1, 2)                                                                                             \
    X(BF16, 30, 2)

/* Carried, never multiplied. */
#define MO_INTEGER_FORMATS(X)                                                                                \
    X(I32, 26, 4)                                                                                            \
    X(I64, 27, 8)

/* X(name, its number in a file, log2 of the values of a block, bytes of a block, fold, two runs of units).
 *
 * Units: into what pieces interleaving cuts a block (numeric/weights.h), as offset in the block, count, bytes of
 * one; they cover it without a gap. Codes travel in words of four, because the dot-product instructions take four
 * codes per lane; scales travel in the size in which they are read. A format without units is never interleaved: its
 * codes are looked up row by row. */
#define MO_QUANTIZED_FORMATS(X)                                                                              \
    X(Q4_0, 2, 5, 18, PLAIN, 0, 1, 2, 2, 4, 4)                                                               \
    X(Q4_1, 3, 5, 20, MINIMUM, 0, 2, 2, 4, 4, 4)                                                             \
    X(Q5_0, 6, 5, 22, PLAIN, 0, 1, 2, 2, 5, 4)                                                               \
    X(Q5_1, 7, 5, 24, MINIMUM, 0, 2, 2, 4, 5, 4)                                                             \
    X(Q8_0, 8, 5, 34, PLAIN, 0, 1, 2, 2, 8, 4)                                                               \
    X(Q2_K, 10, 8, 84, HALF_MINIMA, 0, 20, 4, 80, 2, 2)                                                      \
    X(Q3_K, 11, 8, 110, HALVES, 0, 27, 4, 108, 1, 2)                                                         \
    X(Q4_K, 12, 8, 144, MINIMUM, 0, 2, 2, 4, 35, 4)                                                          \
    X(Q5_K, 13, 8, 176, MINIMUM, 0, 2, 2, 4, 43, 4)                                                          \
    X(Q6_K, 14, 8, 210, HALVES, 0, 52, 4, 208, 1, 2)                                                         \
    X(IQ4_NL, 20, 5, 18, PLAIN, 0, 1, 2, 2, 4, 4)                                                            \
    X(IQ4_XS, 23, 8, 136, SCALED, 0, 2, 2, 4, 33, 4)                                                         \
    X(MXFP4, 39, 5, 17, PLAIN, 0, 1, 1, 1, 4, 4)                                                             \
    X(NVFP4, 40, 6, 36, TWO_STEPS, 0, 9, 4, 36, 0, 4)                                                        \
    X(IQ1_S, 19, 8, 50, SCALED, 0, 0, 4, 0, 0, 4)                                                            \
    X(IQ1_M, 29, 8, 56, HALVES, 0, 0, 4, 0, 0, 4)                                                            \
    X(IQ2_XXS, 16, 8, 66, SCALED, 0, 0, 4, 0, 0, 4)                                                          \
    X(IQ2_XS, 17, 8, 74, HALVES, 0, 0, 4, 0, 0, 4)                                                           \
    X(IQ2_S, 22, 8, 82, HALVES, 0, 0, 4, 0, 0, 4)                                                            \
    X(IQ3_XXS, 18, 8, 98, SCALED, 0, 0, 4, 0, 0, 4)                                                          \
    X(IQ3_S, 21, 8, 110, SCALED, 0, 0, 4, 0, 0, 4)                                                           \
    X(TQ1_0, 34, 8, 54, PLAIN, 0, 0, 4, 0, 0, 4)                                                             \
    X(TQ2_0, 35, 8, 66, PLAIN, 0, 0, 4, 0, 0, 4)                                                             \
    X(Q1_0, 41, 7, 18, PLAIN, 0, 0, 4, 0, 0, 4)                                                              \
    X(Q2_0, 42, 6, 18, PLAIN, 0, 0, 4, 0, 0, 4)

enum { MO_BLOCK_BYTES_MAX = 256 }; /* most bytes of a block */

#define MO_NUMBERED(name, number, ...) MO_##name = (number),
typedef enum mo_type {
    MO_FLOAT_FORMATS(MO_NUMBERED) MO_INTEGER_FORMATS(MO_NUMBERED) MO_QUANTIZED_FORMATS(MO_NUMBERED)
        MO_TYPE_LIMIT = 43
} mo_type;
#undef MO_NUMBERED

/* All types of weights, for initializers: MO_F32, MO_F16, ... */
#define MO_LISTED(name, ...) MO_##name,
#define MO_WEIGHT_TYPES      MO_FLOAT_FORMATS(MO_LISTED) MO_QUANTIZED_FORMATS(MO_LISTED)
/* Their names as one text: "F32, F16, ...", with a comma after the last. */
#define MO_NAMED(name, ...)  #name ", "
#define MO_WEIGHT_TYPE_NAMES MO_FLOAT_FORMATS(MO_NAMED) MO_QUANTIZED_FORMATS(MO_NAMED)

/* What the integer sum of a block of 32 codes adds to a product (docs/numerics.md). */
typedef enum mo_fold {
    MO_FOLD_PLAIN,       /* one scale */
    MO_FOLD_MINIMUM,     /* the same; then a minimum with the activations' scaled sum */
    MO_FOLD_SCALED,      /* one scale, one integer scale */
    MO_FOLD_HALVES,      /* one scale, an integer scale for each 16 values */
    MO_FOLD_HALF_MINIMA, /* the same; then an integer minimum for each 16, summed exactly before it is scaled */
    MO_FOLD_TWO_STEPS,   /* a step, with a scale of its own, for each 16 */
    MO_FOLD_NONE,        /* not a quantized type */
} mo_fold;

/* Constant expressions where the language has them, and constants after inlining where not: kernels are written for
 * a type that the compiler knows. */
#ifdef __CUDACC__
#define MO_CONSTANT static __host__ __device__ constexpr
#elif defined __cplusplus
#define MO_CONSTANT static constexpr
#else
#define MO_CONSTANT static inline __attribute__((always_inline))
#endif

/* Log2 of the values of a block. Without branches, and of a type that is known to be in the table: a GPU's kernels
 * ask for it at their start. Bit n of the answer is bit `type` of mask n. */
MO_CONSTANT int mo_format_values_log2(int type)
{
#define MO_LOG2_BIT(bit, number, log2)         | (uint64_t)((log2) >> (bit)&1) << (number)
#define MO_LOG2_BIT_0(name, number, log2, ...) MO_LOG2_BIT(0, number, log2)
#define MO_LOG2_BIT_1(name, number, log2, ...) MO_LOG2_BIT(1, number, log2)
#define MO_LOG2_BIT_2(name, number, log2, ...) MO_LOG2_BIT(2, number, log2)
#define MO_LOG2_BIT_3(name, number, log2, ...) MO_LOG2_BIT(3, number, log2)
    const uint64_t mask0 = 0 MO_QUANTIZED_FORMATS(MO_LOG2_BIT_0),
                   mask1 = 0 MO_QUANTIZED_FORMATS(MO_LOG2_BIT_1);
    const uint64_t mask2 = 0 MO_QUANTIZED_FORMATS(MO_LOG2_BIT_2),
                   mask3 = 0 MO_QUANTIZED_FORMATS(MO_LOG2_BIT_3);
    return (int)(mask0 >> type & 1) | (int)(mask1 >> type & 1) << 1 | (int)(mask2 >> type & 1) << 2 |
           (int)(mask3 >> type & 1) << 3;
#undef MO_LOG2_BIT
#undef MO_LOG2_BIT_0
#undef MO_LOG2_BIT_1
#undef MO_LOG2_BIT_2
#undef MO_LOG2_BIT_3
}
MO_CONSTANT int mo_format_values(int type)
{
    return 1 << mo_format_values_log2(type);
}

/* Bytes of a block of weights. 0: not a type that is multiplied. */
MO_CONSTANT int mo_format_bytes(int type)
{
    switch (type) {
#define MO_CASE_BYTES(name, bytes)                                                                           \
    case MO_##name:                                                                                          \
        return bytes;
#define MO_BYTES_OF_FLOAT(name, number, bytes)            MO_CASE_BYTES(name, bytes)
#define MO_BYTES_OF_BLOCK(name, number, log2, bytes, ...) MO_CASE_BYTES(name, bytes)
        MO_FLOAT_FORMATS(MO_BYTES_OF_FLOAT)     /* NOLINT(bugprone-branch-clone): a table */
        MO_QUANTIZED_FORMATS(MO_BYTES_OF_BLOCK) /* NOLINT(bugprone-branch-clone): a table */
#undef MO_CASE_BYTES
#undef MO_BYTES_OF_FLOAT
#undef MO_BYTES_OF_BLOCK
    default: return 0;
    }
}

MO_CONSTANT bool mo_format_is_float(int type)
{
    return type == MO_F32 || type == MO_F16 || type == MO_BF16;
}

/* Has the format units, so that rows can be interleaved? A bit of a mask for each. */
MO_CONSTANT bool mo_format_has_units(int type)
{
#define MO_UNITS_BIT(name, number, log2, bytes, fold, at0, count0, ...) | (uint64_t)((count0) > 0) << (number)
    const uint64_t mask = 0 MO_QUANTIZED_FORMATS(MO_UNITS_BIT);
#undef MO_UNITS_BIT
    return (mask >> type & 1) != 0;
}

MO_CONSTANT mo_fold mo_format_fold(int type)
{
    switch (type) {
#define MO_FOLD_OF(name, number, log2, bytes, fold, ...)                                                     \
    case MO_##name: return MO_FOLD_##fold;
        MO_QUANTIZED_FORMATS(MO_FOLD_OF) /* NOLINT(bugprone-branch-clone): a table */
#undef MO_FOLD_OF
    default: return MO_FOLD_NONE;
    }
}

/* Formats whose codes are taken apart row by row: IQ1 to IQ3, whose codes are in tables (numeric/grids.h), and the
 * smallest of the plain ones. */
MO_CONSTANT bool mo_format_by_row(int type)
{
    return mo_format_fold(type) != MO_FOLD_NONE && !mo_format_has_units(type);
}

#endif
