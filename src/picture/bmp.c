/* BMP: uncompressed pixels of 1, 4, 8, 16, 24 and 32 bits, with any header version. */
#include <string.h>

#include "base/interrupt.h"
#include "base/status.h"
#include "picture/decoder.h"

enum {
    FILE_HEADER = 14,
    CORE_HEADER = 12,
    INFO_HEADER = 40,
    MASKED_HEADER = 52,
    RGB = 0,
    BITFIELDS = 3,
    ALPHA_BITFIELDS = 6
};

typedef struct layout {
    const uint8_t *pixels, *palette;
    int64_t width, height;
    int64_t stride; /* bytes per row */
    bool top_first;
    int bits;             /* per pixel */
    uint32_t mask[3];     /* of red, green and blue, for 16 and 32 bits */
    int64_t colours;      /* number of palette entries */
    int64_t colour_bytes; /* bytes per palette entry */
} layout;

static uint32_t number(const uint8_t *b, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint32_t)b[i] << 8 * i;
    }
    return value;
}

static mo_status damaged(mo_error *err, const char *why)
{
    return mo_fail(err, MO_EFORMAT, "the BMP picture is damaged: %s", why);
}

/* Reads the masks for 16 and 32 bits: the default ones, or those after the first 40 bytes of the header. */
static bool read_masks(const mo_picture_file *file, uint32_t compression, layout *l)
{
    static const uint32_t narrow[3] = {0x7c00, 0x03e0, 0x001f}, wide[3] = {0xff0000, 0xff00, 0xff};
    if (compression == RGB) {
        memcpy(l->mask, l->bits == 16 ? narrow : wide, sizeof l->mask);
        return true;
    }
    if (file->bytes < FILE_HEADER + MASKED_HEADER) {
        return false;
    }
    for (int i = 0; i < 3; i++) {
        l->mask[i] = number(file->data + FILE_HEADER + INFO_HEADER + (ptrdiff_t)4 * i, 4);
    }
    return true;
}

static mo_status read_core_header(const mo_picture_file *file, layout *l)
{
    const uint8_t *h = file->data + FILE_HEADER;
    l->width = number(h + 4, 2);
    l->height = number(h + 6, 2);
    l->bits = (int)number(h + 10, 2);
    l->colours = l->bits <= 8 ? (int64_t)1 << l->bits : 0;
    l->colour_bytes = 3;
    return MO_OK;
}

static mo_status read_info_header(const mo_picture_file *file, layout *l, mo_error *err)
{
    const uint8_t *h = file->data + FILE_HEADER;
    const uint32_t compression = number(h + 16, 4), used = number(h + 32, 4);
    const int32_t height = (int32_t)number(h + 8, 4);
    l->width = (int32_t)number(h + 4, 4);
    l->height = height < 0 ? -(int64_t)height : height;
    l->top_first = height < 0;
    l->bits = (int)number(h + 14, 2);
    l->colour_bytes = 4;
    if (l->bits <= 8) {
        l->colours = used > 0 && used < 1u << l->bits ? used : (int64_t)1 << l->bits;
    }
    const bool masked = compression == BITFIELDS || compression == ALPHA_BITFIELDS;
    if (compression != RGB && !(masked && (l->bits == 16 || l->bits == 32))) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "the BMP picture is compressed (method %u), which is not read; convert it to PNG",
                       compression);
    }
    if ((l->bits == 16 || l->bits == 32) && !read_masks(file, compression, l)) {
        return damaged(err, "it ends early");
    }
    return MO_OK;
}

static mo_status read_header(const mo_picture_file *file, layout *l, mo_error *err)
{
    if (file->bytes < FILE_HEADER + CORE_HEADER) {
        return damaged(err, "it ends early");
    }
    const uint32_t header = number(file->data + FILE_HEADER, 4);
    if (header != CORE_HEADER && (header < INFO_HEADER || header > 4096)) {
        return damaged(err, "its header is of an unknown kind");
    }
    if (file->bytes < FILE_HEADER + header) {
        return damaged(err, "it ends early");
    }
    mo_status status = header == CORE_HEADER ? read_core_header(file, l) : read_info_header(file, l, err);
    if (status != MO_OK) {
        return status;
    }
    if (l->bits != 1 && l->bits != 4 && l->bits != 8 && l->bits != 16 && l->bits != 24 && l->bits != 32) {
        return damaged(err, "its pixels have an unknown number of bits");
    }
    l->palette = file->data + FILE_HEADER + header;
    return MO_OK;
}

/* Checks that pixels and palette are inside the file and the size is within the limits. */
static mo_status check_extent(const mo_picture_file *file, layout *l, mo_error *err)
{
    const uint32_t offset = number(file->data + 10, 4);
    const int64_t palette = l->palette - file->data;
    l->stride = (l->width * l->bits + 31) / 32 * 4;
    if (offset < FILE_HEADER || offset > file->bytes ||
        (int64_t)(file->bytes - offset) < l->stride * (l->height - 1) + (l->width * l->bits + 7) / 8) {
        return damaged(err, "it ends early");
    }
    /* The palette may be shorter than stated, because the pixels follow it. */
    const int64_t most = offset > palette ? (offset - palette) / l->colour_bytes : 0;
    l->colours = l->colours < most ? l->colours : most;
    l->pixels = file->data + offset;
    return MO_OK;
}

/* The masked bits as 8 bits: fewer are repeated, of more the upper 8 are used. */
static uint8_t channel(uint32_t pixel, uint32_t mask)
{
    if (mask == 0) {
        return 0;
    }
    const int shift = __builtin_ctz(mask), width = 32 - __builtin_clz(mask) - shift;
    const uint32_t value = (pixel & mask) >> shift;
    if (width >= 8) {
        return (uint8_t)(value >> (width - 8));
    }
    uint32_t wide = value;
    int have = width;
    for (; have < 8; have += width) {
        wide = wide << width | value;
    }
    return (uint8_t)(wide >> (have - 8));
}

static void read_row(const layout *l, const uint8_t *from, uint8_t *to)
{
    for (int64_t x = 0; x < l->width; x++, to += 3) {
        if (l->bits <= 8) {
            const int per_byte = 8 / l->bits;
            const int shift = 8 - l->bits * ((int)(x % per_byte) + 1);
            const int64_t index = from[x / per_byte] >> shift & ((1 << l->bits) - 1);
            const uint8_t *c = l->palette + index * l->colour_bytes;
            if (index < l->colours) {
                memcpy(to, (uint8_t[]){c[2], c[1], c[0]}, 3);
            }
        } else if (l->bits == 24) {
            memcpy(to, (uint8_t[]){from[x * 3 + 2], from[x * 3 + 1], from[x * 3]}, 3);
        } else {
            const uint32_t pixel = number(from + x * (l->bits / 8), l->bits / 8);
            for (int i = 0; i < 3; i++) {
                to[i] = channel(pixel, l->mask[i]);
            }
        }
    }
}

mo_status mo_bmp_decode(const mo_picture_file *file, mo_picture *out, int *orientation, mo_error *err)
{
    layout l = {.bits = 8, .colour_bytes = 4};
    (void)orientation; /* the format has no orientation */
    mo_status status = read_header(file, &l, err);
    if (status == MO_OK) {
        status = mo_picture_begin(file, l.width, l.height, out, err);
    }
    if (status == MO_OK) {
        status = check_extent(file, &l, err);
    }
    for (int64_t y = 0; y < l.height && status == MO_OK; y++) {
        if (mo_interrupted((size_t)l.width)) {
            return mo_interrupt_fail(err);
        }
        read_row(&l, l.pixels + y * l.stride, mo_picture_row(out, l.top_first ? y : l.height - 1 - y));
    }
    return status;
}
