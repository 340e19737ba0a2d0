#include "numeric/format.h"

#include <strings.h>

#include "base/status.h"

#define FLOAT(t, bytes)   [MO_##t] = {MO_##t, #t, 1, bytes, MO_KIND_FLOAT, MO_MINIMUM_NONE}
#define INTEGER(t, bytes) [MO_##t] = {MO_##t, #t, 1, bytes, MO_KIND_INTEGER, MO_MINIMUM_NONE}
#define BLOCKS(t, values, bytes, mn)                                                                         \
    [MO_##t] = {MO_##t, #t, values, bytes, MO_KIND_QUANTIZED, MO_MINIMUM_##mn}

static const mo_format formats[MO_TYPE_LIMIT] = {
    FLOAT(F32, 4),
    FLOAT(F16, 2),
    FLOAT(BF16, 2),
    INTEGER(I32, 4),
    INTEGER(I64, 8),
    BLOCKS(Q4_0, 32, 18, NONE),
    BLOCKS(Q4_1, 32, 20, BLOCK),
    BLOCKS(Q5_0, 32, 22, NONE),
    BLOCKS(Q5_1, 32, 24, BLOCK),
    BLOCKS(Q8_0, 32, 34, NONE),
    BLOCKS(Q2_K, 256, 84, HALVES),
    BLOCKS(Q3_K, 256, 110, NONE),
    BLOCKS(Q4_K, 256, 144, BLOCK),
    BLOCKS(Q5_K, 256, 176, BLOCK),
    BLOCKS(Q6_K, 256, 210, NONE),
    BLOCKS(IQ4_NL, 32, 18, NONE),
    BLOCKS(IQ4_XS, 256, 136, NONE),
    BLOCKS(MXFP4, 32, 17, NONE),
    BLOCKS(NVFP4, 64, 36, NONE),
};

const mo_format *mo_format_of(uint32_t type)
{
    return type < MO_TYPE_LIMIT && formats[type].name ? &formats[type] : NULL;
}

const mo_format *mo_format_named(const char *name)
{
    for (uint32_t type = 0; type < MO_TYPE_LIMIT; type++) {
        if (formats[type].name && strcasecmp(formats[type].name, name) == 0) {
            return &formats[type];
        }
    }
    return NULL;
}

mo_status mo_format_check(mo_type type, const uint8_t *data, int64_t bytes, mo_error *err)
{
    if (!mo_format_needs_check(type)) {
        return MO_OK;
    }
    const int64_t blocks = bytes / formats[type].block_bytes;
    for (int64_t b = 0; b < blocks; b++) {
        const uint8_t exponent = data[b * formats[type].block_bytes];
        if (exponent > 200) {
            return mo_fail(err, MO_EFORMAT,
                           "MXFP4 block %lld has exponent %d, above the 200 that products allow; the file is "
                           "damaged or was written wrongly, so fetch it again",
                           (long long)b, exponent);
        }
    }
    return MO_OK;
}
