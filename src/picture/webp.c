/* WebP, by libwebp. Of an animation the first frame is decoded: libwebp accepts its chunks as a picture. */
#include <string.h>

#include <webp/decode.h>

#include "base/interrupt.h"
#include "base/status.h"
#include "picture/decoder.h"
#include "picture/orientation.h"

enum { FILE_HEADER = 12, CHUNK_HEADER = 8, FRAME_HEADER = 16 };

typedef struct chunk {
    const uint8_t *data;
    size_t bytes;
} chunk;

static uint32_t little_endian(const uint8_t *b, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint32_t)b[i] << 8 * i;
    }
    return value;
}

static bool find(const mo_picture_file *file, const char *name, chunk *out)
{
    for (size_t at = FILE_HEADER; file->bytes - at >= CHUNK_HEADER;) {
        const size_t bytes = little_endian(file->data + at + 4, 4);
        const bool found = memcmp(file->data + at, name, 4) == 0;
        at += CHUNK_HEADER;
        if (bytes > file->bytes - at) {
            return false;
        }
        if (found) {
            *out = (chunk){file->data + at, bytes};
            return true;
        }
        at += bytes;
        at += bytes % 2 && at < file->bytes;
    }
    return false;
}

static mo_status damaged(VP8StatusCode code, mo_error *err)
{
    if (code == VP8_STATUS_OUT_OF_MEMORY) {
        return mo_fail(err, MO_ENOMEM, "no memory to decode the WebP picture");
    }
    return mo_fail(err, MO_EFORMAT, "the WebP picture is damaged%s",
                   code == VP8_STATUS_NOT_ENOUGH_DATA || code == VP8_STATUS_SUSPENDED ? ": it ends early"
                                                                                      : "");
}

/* Decodes a picture of width x height into the canvas at x, y. The caller has checked that it fits. */
static mo_status decode_at(chunk c, const mo_picture *canvas, int64_t x, int64_t y, mo_error *err)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "libwebp is of another version than this program was built with");
    }
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = mo_picture_row(canvas, y) + x * 3;
    config.output.u.RGBA.stride = (int)(canvas->width * 3);
    config.output.u.RGBA.size = (size_t)(((canvas->height - y) * canvas->width - x) * 3);
    const VP8StatusCode code = WebPDecode(c.data, c.bytes, &config);
    WebPFreeDecBuffer(&config.output);
    return code == VP8_STATUS_OK ? MO_OK : damaged(code, err);
}

static mo_status decode_frame(const mo_picture_file *file, const mo_picture *canvas, mo_error *err)
{
    WebPBitstreamFeatures inner;
    chunk frame;
    if (!find(file, "ANMF", &frame) || frame.bytes < FRAME_HEADER) {
        return mo_fail(err, MO_EFORMAT, "the WebP picture is damaged: it has no frame");
    }
    const int64_t x = 2 * (int64_t)little_endian(frame.data, 3),
                  y = 2 * (int64_t)little_endian(frame.data + 3, 3);
    const chunk picture = {frame.data + FRAME_HEADER, frame.bytes - FRAME_HEADER};
    const VP8StatusCode code = WebPGetFeatures(picture.data, picture.bytes, &inner);
    if (code != VP8_STATUS_OK) {
        return damaged(code, err);
    }
    if (x + inner.width > canvas->width || y + inner.height > canvas->height) {
        return mo_fail(err, MO_EFORMAT, "the WebP picture is damaged: its first frame is larger than it");
    }
    return decode_at(picture, canvas, x, y, err);
}

mo_status mo_webp_decode(const mo_picture_file *file, mo_picture *out, int *orientation, mo_error *err)
{
    WebPBitstreamFeatures features;
    chunk exif;
    const VP8StatusCode code = WebPGetFeatures(file->data, file->bytes, &features);
    if (code != VP8_STATUS_OK) {
        return damaged(code, err);
    }
    mo_status status = mo_picture_begin(file, features.width, features.height, out, err);
    if (status != MO_OK) {
        return status;
    }
    if (mo_interrupted((size_t)features.width)) {
        return mo_interrupt_fail(err);
    }
    if (find(file, "EXIF", &exif)) {
        const bool prefixed = exif.bytes > 6 && memcmp(exif.data, "Exif\0\0", 6) == 0;
        *orientation = prefixed ? mo_exif_orientation(exif.data + 6, exif.bytes - 6)
                                : mo_exif_orientation(exif.data, exif.bytes);
    }
    return features.has_animation ? decode_frame(file, out, err)
                                  : decode_at((chunk){file->data, file->bytes}, out, 0, 0, err);
}
