/* Resize: a picture in the size that an encoder reads: both sides are multiples of a number, and the number
   of pixels is within limits. The aspect ratio is kept and the rest is black. A picture whose short side is a
   single multiple may exceed the pixel limit. All in F32; docs/numerics.md describes the steps. */
#ifndef MO_PICTURE_RESIZE_H
#define MO_PICTURE_RESIZE_H

#include "picture/picture.h"

typedef struct mo_resize_rule {
    int64_t align;                  /* both sides are multiples of it */
    int64_t min_pixels, max_pixels; /* of width times height */
} mo_resize_rule;

typedef struct mo_resize_size {
    int64_t width, height;
    int64_t inner_width, inner_height; /* size of the scaled picture, which is centered */
} mo_resize_size;

/* The target size for a picture of width x height, both at least 1. */
mo_resize_size mo_resize_find(const mo_resize_rule *rule, int64_t width, int64_t height);

/* Resizes the picture; the caller owns *out. If the size is unchanged, so are the pixels. */
mo_status mo_resize_run(const mo_picture *in, const mo_resize_size *size, mo_picture *out, mo_error *err);

#endif
