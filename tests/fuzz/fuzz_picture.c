/* Fuzzing one decoder of image files, MO_DECODER: any bytes give a picture within the limits, every byte of which can be read, or a reason. */
#include <stdlib.h>
#include <string.h>

#include "picture/decoder.h"
#include "picture/orientation.h"
#include "picture/resize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const mo_picture_limits limits = {1 << 20, 4096, 1 << 16};
    static const mo_resize_rule rule = {32, 8 * 1024, 64 * 1024};
    const mo_picture_file file = {data, size, &limits};
    mo_picture p = {0}, resized;
    mo_error err = {0};
    int orientation = 1;
    if (MO_DECODER(&file, &p, &orientation, &err) != MO_OK) {
        require(err.detail[0]);
        mo_picture_free(&p);
        return 0;
    }
    require(p.width > 0 && p.width <= limits.side && p.height > 0 && p.height <= limits.side);
    require(p.width * p.height <= limits.pixels && orientation >= 1 && orientation <= 8);
    require(mo_picture_orient(&p, orientation, &err) == MO_OK);
    const mo_resize_size to = mo_resize_find(&rule, p.width, p.height);
    require(to.width % rule.align == 0 && to.height % rule.align == 0 && to.width > 0 && to.height > 0);
    require(mo_resize_run(&p, &to, &resized, &err) == MO_OK);
    mo_picture_free(&resized);
    mo_picture_free(&p);
    return 0;
}
