#include "picture/picture.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

const mo_picture_limits mo_picture_limits_default = {20000000, 16384, (int64_t)64 << 20};

mo_status mo_picture_check(int64_t width, int64_t height, const mo_picture_limits *limits, mo_error *err)
{
    if (width <= 0 || height <= 0) {
        return mo_fail(err, MO_EFORMAT, "the picture has no pixels (%lld x %lld)", (long long)width,
                       (long long)height);
    }
    if (width > limits->side || height > limits->side || width > limits->pixels / height) {
        return mo_fail(err, MO_ENOSPC,
                       "the picture has %lld x %lld pixels; at most %lld on a side and %lld together are "
                       "accepted: make it smaller",
                       (long long)width, (long long)height, (long long)limits->side,
                       (long long)limits->pixels);
    }
    return MO_OK;
}

mo_status mo_picture_make(int64_t width, int64_t height, mo_picture *out, mo_error *err)
{
    memset(out, 0, sizeof *out);
    out->rgb = calloc((size_t)height, (size_t)width * 3);
    if (!out->rgb) {
        return mo_fail(err, MO_ENOMEM, "no memory for a picture of %lld x %lld pixels", (long long)width,
                       (long long)height);
    }
    out->width = width;
    out->height = height;
    return MO_OK;
}

void mo_picture_free(mo_picture *p)
{
    free(p->rgb);
    memset(p, 0, sizeof *p);
}
