/* Format: the tensor types of a GGUF file that Moraine computes with, by number and by name. The table is
 * numeric/formats.h. */
#ifndef MO_NUMERIC_FORMAT_H
#define MO_NUMERIC_FORMAT_H

#include "moraine.h"
#include "numeric/formats.h"

/* How a type's values are made from codes. */
typedef enum mo_kind {
    MO_KIND_FLOAT,     /* F32, F16, BF16: the value itself */
    MO_KIND_QUANTIZED, /* blocks of codes with scales */
    MO_KIND_INTEGER,   /* I32, I64: carried, never multiplied */
} mo_kind;

typedef struct mo_format {
    mo_type type;
    const char *name; /* as in "Q4_K" */
    int block_values;
    int block_bytes;
    mo_kind kind;
    mo_fold fold;
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

/* Can mo_row_quantize() make it? Formats of one to three bits, but for Q2_K and Q3_K, are read and not written. */
static inline bool mo_format_is_written(mo_type type)
{
    return !mo_format_by_row(type);
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
