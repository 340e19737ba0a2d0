#include "picture/orientation.h"

#include <string.h>

#include "base/interrupt.h"

typedef struct tiff {
    const uint8_t *data;
    size_t bytes;
    bool big; /* most significant byte first */
} tiff;

static uint32_t number(const tiff *t, size_t at, size_t bytes)
{
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint32_t)t->data[at + i] << 8 * (t->big ? bytes - 1 - i : i);
    }
    return value;
}

int mo_exif_orientation(const uint8_t *exif, size_t bytes)
{
    enum { HEADER = 8, ENTRY = 12, TAG = 0x0112, SHORT = 3 };
    if (bytes < HEADER || (memcmp(exif, "II*\0", 4) != 0 && memcmp(exif, "MM\0*", 4) != 0)) {
        return 1;
    }
    const tiff t = {exif, bytes, exif[0] == 'M'};
    const size_t directory = number(&t, 4, 4);
    if (directory < HEADER || directory > bytes - 2) {
        return 1;
    }
    const size_t count = number(&t, directory, 2);
    for (size_t i = 0; i < count && bytes - directory - 2 >= (i + 1) * ENTRY; i++) {
        const size_t at = directory + 2 + i * ENTRY;
        if (number(&t, at, 2) == TAG && number(&t, at + 2, 2) == SHORT) {
            const uint32_t value = number(&t, at + 8, 2);
            return value >= 1 && value <= 8 ? (int)value : 1;
        }
    }
    return 1;
}

mo_status mo_picture_orient(mo_picture *p, int orientation, mo_error *err)
{
    const bool turned = orientation >= 5; /* rows become columns */
    const bool flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    mo_picture out;
    if (orientation <= 1 || orientation > 8) {
        return MO_OK;
    }
    mo_status status =
        mo_picture_make(turned ? p->height : p->width, turned ? p->width : p->height, &out, err);
    if (status != MO_OK) {
        return status;
    }
    for (int64_t y = 0; y < out.height; y++) {
        uint8_t *to = mo_picture_row(&out, y);
        if (mo_interrupted((size_t)out.width)) {
            mo_picture_free(&out);
            return mo_interrupt_fail(err);
        }
        for (int64_t x = 0; x < out.width; x++) {
            const int64_t column = turned ? y : x, row = turned ? x : y;
            const uint8_t *from = mo_picture_row(p, flip_y ? p->height - 1 - row : row);
            memcpy(to + x * 3, from + 3 * (flip_x ? p->width - 1 - column : column), 3);
        }
    }
    mo_picture_free(p);
    *p = out;
    return MO_OK;
}
