/* Picture: pixels in memory, decoded from an image file. Owned by its caller; any thread may read it. */
#ifndef MO_PICTURE_PICTURE_H
#define MO_PICTURE_PICTURE_H

#include "moraine.h"

typedef struct mo_picture {
    int64_t width, height;
    uint8_t *rgb; /* [height][width][3] */
} mo_picture;

/* Limits for decoding, checked by the file's header before memory is allocated. */
typedef struct mo_picture_limits {
    int64_t bytes;  /* of the file */
    int64_t side;   /* pixels of width or height */
    int64_t pixels; /* of width times height */
} mo_picture_limits;

/* 20 MB, 16384 pixels on a side, 64 Mi pixels. */
extern const mo_picture_limits mo_picture_limits_default;

/* MO_EFORMAT: a side is not positive; MO_ENOSPC: larger than the limits. */
mo_status mo_picture_check(int64_t width, int64_t height, const mo_picture_limits *limits, mo_error *err);

/* Creates a black picture of a positive size; untouched pages use no memory. All zeros after a failure. */
mo_status mo_picture_make(int64_t width, int64_t height, mo_picture *out, mo_error *err);

void mo_picture_free(mo_picture *p); /* sets all zeros, which are also allowed as input */

static inline uint8_t *mo_picture_row(const mo_picture *p, int64_t y)
{
    return p->rgb + y * p->width * 3;
}

#endif
