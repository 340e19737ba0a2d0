/* Device work: the memory of a device while it encodes a picture, and the weights of one layer, which pass through it. */
#ifndef MO_VISION_DEVICE_WORK_H
#define MO_VISION_DEVICE_WORK_H

#include "device/device.h"
#include "numeric/kv.h"
#include "vision/spec.h"

typedef struct mo_vision_device_work {
    const mo_vision_spec *spec;
    int64_t columns, lines, patches, batch, rows;
    int64_t block_count;
    mo_daddr x;                 /* float[patches][width], the residual stream */
    mo_daddr q;                 /* float[patches][heads][head_len] */
    mo_daddr k, v;              /* float[batch][heads][head_len] */
    mo_daddr blocks, table;     /* of keys and values, and where they are */
    mo_daddr state, places;     /* mo_dstate, mo_dplace[patches] */
    mo_daddr rope;              /* float[2][patches][head_len / 2] */
    mo_daddr pixels, positions; /* float[patches][3 * patch * patch], float[patches][width] */
    mo_daddr in, mixed, hidden; /* activations of `batch` rows */
    mo_daddr up, y;             /* float[batch][...] */
    mo_daddr ones;              /* float[batch][widest that is activated] */
    mo_daddr partial, out;      /* of attention; float[rows][mo_vision_row()] */
    mo_daddr weights;           /* of the layer, or of what comes before or after them */
} mo_vision_device_work;

/* Lays it out from an address on, 0 to learn how many bytes it takes, without the weights, which come last. */
int64_t mo_vision_device_lay(mo_vision_device_work *w, mo_daddr base);

mo_kv_shape mo_vision_device_cache(const mo_vision_spec *s);

/* Uploads to weights of a device, one behind the other. stream NULL: only counts. */
typedef struct mo_vision_upload {
    mo_dstream *stream;
    mo_daddr base;
    int64_t used;
    mo_error *err;
    mo_status status;
} mo_vision_upload;

/* NULL gives 0. */
mo_daddr mo_vision_upload_bytes(mo_vision_upload *u, const void *from, int64_t bytes);
mo_daddr mo_vision_upload_floats(mo_vision_upload *u, const float *from, int64_t count);
mo_dmatrix mo_vision_upload_linear(mo_vision_upload *u, const mo_vision_linear *l);

#endif
