/* Resize: a picture in the size that an encoder reads: sides that are multiples of a number, and no more and no fewer pixels than its limits.
 * The aspect ratio is kept, and what is left of the size is black. A picture so long that its short side is one such number may have more
 * pixels than the limit. All in F32; docs/numerics.md has the steps. */
#ifndef MO_PICTURE_RESIZE_H
#define MO_PICTURE_RESIZE_H

#include "picture/picture.h"

typedef struct mo_resize_rule {
    int64_t align;                  /* of both sides */
    int64_t min_pixels, max_pixels; /* of width times height */
} mo_resize_rule;

typedef struct mo_resize_size {
    int64_t width, height;
    int64_t inner_width, inner_height; /* of the picture in it; it is centered */
} mo_resize_size;

/* The size for a picture of width x height, both at least 1. */
mo_resize_size mo_resize_find(const mo_resize_rule *rule, int64_t width, int64_t height);

/* The picture in that size; the caller owns *out. Where it has that size already, its pixels stay as they are. */
mo_status mo_resize_run(const mo_picture *in, const mo_resize_size *size, mo_picture *out, mo_error *err);

#endif
