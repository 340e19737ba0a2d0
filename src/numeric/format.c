#include "numeric/format.h"

#include <strings.h>

#include "base/status.h"

#define FLOAT(name, number, bytes) [MO_##name] = {MO_##name, #name, 1, bytes, MO_KIND_FLOAT, MO_FOLD_NONE},
#define INTEGER(name, number, bytes)                                                                         \
    [MO_##name] = {MO_##name, #name, 1, bytes, MO_KIND_INTEGER, MO_FOLD_NONE},
#define BLOCKS(name, number, log2, bytes, fold, ...)                                                         \
    [MO_##name] = {MO_##name, #name, 1 << (log2), bytes, MO_KIND_QUANTIZED, MO_FOLD_##fold},

static const mo_format formats[MO_TYPE_LIMIT] = {MO_FLOAT_FORMATS(FLOAT) MO_INTEGER_FORMATS(INTEGER)
                                                     MO_QUANTIZED_FORMATS(BLOCKS)};

/* Units, where there are any, cover a block without a gap; what functions over types assume of it. */
#define CHECK(name, number, log2, bytes, fold, at0, count0, size0, at1, count1, size1)                       \
    _Static_assert((count0) + (count1) == 0 ||                                                               \
                       ((at0) == 0 && (count0) * (size0) == (at1) && (at1) + (count1) * (size1) == (bytes)), \
                   #name ": units and block");                                                               \
    _Static_assert((log2) >= 5 && (log2) <= 8 && (bytes) <= MO_BLOCK_BYTES_MAX && (number) < MO_TYPE_LIMIT,  \
                   #name ": size and number");
MO_QUANTIZED_FORMATS(CHECK)

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
                           "MXFP4 block %lld has exponent %d, above the 200 that products "
                           "allow; the file is damaged or malformed, download it again",
                           (long long)b, exponent);
        }
    }
    return MO_OK;
}
