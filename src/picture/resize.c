#include "picture/resize.h"

#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "picture/span.h"

static int64_t at_least(int64_t least, int64_t x)
{
    return x < least ? least : x;
}

static int64_t at_most(int64_t most, int64_t x)
{
    return x > most ? most : x;
}

mo_resize_size mo_resize_find(const mo_resize_rule *rule, int64_t width, int64_t height)
{
    const float a = (float)rule->align, w = (float)width, h = (float)height;
    const float pixels = (float)(width * height);
    mo_resize_size s = {0};
    s.width = at_least(rule->align, (int64_t)roundf(w / a) * rule->align);
    s.height = at_least(rule->align, (int64_t)roundf(h / a) * rule->align);
    if (s.width * s.height > rule->max_pixels) {
        const float by = sqrtf(pixels / (float)rule->max_pixels);
        s.width = at_least(rule->align, (int64_t)floorf(w / by / a) * rule->align);
        s.height = at_least(rule->align, (int64_t)floorf(h / by / a) * rule->align);
    } else if (s.width * s.height < rule->min_pixels) {
        const float by = sqrtf((float)rule->min_pixels / pixels);
        s.width = (int64_t)ceilf(w * by / a) * rule->align;
        s.height = (int64_t)ceilf(h * by / a) * rule->align;
    }
    const float by_width = (float)s.width / w, by_height = (float)s.height / h;
    const float scale = by_width < by_height ? by_width : by_height;
    s.inner_width = at_most(s.width, (int64_t)ceilf(w * scale));
    s.inner_height = at_most(s.height, (int64_t)ceilf(h * scale));
    return s;
}

mo_status mo_resize_run(const mo_picture *in, const mo_resize_size *size, mo_picture *out, mo_error *err)
{
    mo_status status = mo_picture_make(size->width, size->height, out, err);
    if (status != MO_OK) {
        return status;
    }
    if (in->width == size->width && in->height == size->height) {
        memcpy(out->rgb, in->rgb, (size_t)(in->width * in->height * 3));
        return MO_OK;
    }
    const float ratio_x = mo_span_ratio(in->width, size->inner_width);
    const float ratio_y = mo_span_ratio(in->height, size->inner_height);
    const int64_t left = (size->width - size->inner_width) / 2, top = (size->height - size->inner_height) / 2;
    for (int64_t y = 0; y < size->inner_height; y++) {
        const mo_span v = mo_span_find(y, ratio_y, in->height);
        const uint8_t *low = mo_picture_row(in, v.low), *high = mo_picture_row(in, v.high);
        uint8_t *to = mo_picture_row(out, top + y) + left * 3;
        if (mo_interrupted((size_t)size->inner_width)) {
            mo_picture_free(out);
            return mo_interrupt_fail(err);
        }
        for (int64_t x = 0; x < size->inner_width; x++) {
            const mo_span u = mo_span_find(x, ratio_x, in->width);
            for (int64_t c = 0; c < 3; c++) {
                const float upper = mo_span_mix(low[u.low * 3 + c], low[u.high * 3 + c], u.t);
                const float lower = mo_span_mix(high[u.low * 3 + c], high[u.high * 3 + c], u.t);
                to[x * 3 + c] = (uint8_t)mo_span_mix(upper, lower, v.t);
            }
        }
    }
    return MO_OK;
}
