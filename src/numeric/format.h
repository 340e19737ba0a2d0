/* Format: the tensor types of a GGUF file that Moraine computes with, and the size of their blocks. */
#ifndef MO_NUMERIC_FORMAT_H
#define MO_NUMERIC_FORMAT_H

#include "moraine.h"

/* The numbers are those of the file. */
typedef enum mo_type {
    MO_F32 = 0,
    MO_F16 = 1,
    MO_Q4_0 = 2,
    MO_Q4_1 = 3,
    MO_Q5_0 = 6,
    MO_Q5_1 = 7,
    MO_Q8_0 = 8,
    MO_Q2_K = 10,
    MO_Q3_K = 11,
    MO_Q4_K = 12,
    MO_Q5_K = 13,
    MO_Q6_K = 14,
    MO_IQ4_NL = 20,
    MO_IQ4_XS = 23,
    MO_I32 = 26,
    MO_I64 = 27,
    MO_BF16 = 30,
    MO_MXFP4 = 39,
    MO_NVFP4 = 40,
    MO_TYPE_LIMIT = 41
} mo_type;

/* How a type's values are made from codes. */
typedef enum mo_kind {
    MO_KIND_FLOAT,     /* F32, F16, BF16: the value itself */
    MO_KIND_QUANTIZED, /* blocks of codes with scales */
    MO_KIND_INTEGER,   /* I32, I64: carried, never multiplied */
} mo_kind;

/* What a quantized type adds besides scale x code. */
typedef enum mo_minimum {
    MO_MINIMUM_NONE,
    MO_MINIMUM_BLOCK,  /* one float per block of 32, folded with the activations' scaled sum */
    MO_MINIMUM_HALVES, /* Q2_K: one integer per 16 values, summed exactly before it is scaled */
} mo_minimum;

typedef struct mo_format {
    mo_type type;
    const char *name; /* as in "Q4_K" */
    int block_values;
    int block_bytes;
    mo_kind kind;
    mo_minimum minimum;
} mo_format;

/* The format of a type number from a file, or NULL when Moraine does not know it. */
const mo_format *mo_format_of(uint32_t type);

/* The format of a name, in any case ("q4_k"), or NULL. */
const mo_format *mo_format_named(const char *name);

/* Bytes of a row of `cols` values; cols must be a multiple of block_values. */
static inline int64_t mo_format_row_bytes(const mo_format *f, int64_t cols)
{
    return cols / f->block_values * f->block_bytes;
}

/* Can blocks of this type hold what no product allows, so that mo_format_check() has to look at them? */
static inline bool mo_format_needs_check(mo_type type)
{
    return type == MO_MXFP4;
}

/* Checks what the fold relies on and a file can break: MXFP4 exponents of at most 200. Called when
 * weights are loaded or a slot is filled; err says which block. */
mo_status mo_format_check(mo_type type, const uint8_t *data, int64_t bytes, mo_error *err);

#endif
