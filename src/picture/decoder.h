/* Decoder: reads one image format. All bytes are untrusted. Every decoder checks the size in the header
   before it allocates memory, reads only the first frame, and drops alpha without blending. Long loops call
   mo_interrupted(). */
#ifndef MO_PICTURE_DECODER_H
#define MO_PICTURE_DECODER_H

#include "picture/picture.h"

typedef struct mo_picture_file {
    const uint8_t *data;
    size_t bytes;
    const mo_picture_limits *limits;
} mo_picture_file;

/* Creates a picture of the size in the header, if the limits allow it. */
static inline mo_status mo_picture_begin(const mo_picture_file *file, int64_t width, int64_t height,
                                         mo_picture *out, mo_error *err)
{
    mo_status status = mo_picture_check(width, height, file->limits, err);
    return status == MO_OK ? mo_picture_make(width, height, out, err) : status;
}

/* Fills *out, which the caller owns, and sets *orientation to EXIF's (1 to 8) if the file has one. The caller
   frees *out on failure too. MO_EFORMAT: damaged or incomplete; MO_EUNSUPPORTED: a variant of the format that
   is not supported. */
typedef mo_status mo_picture_decoder(const mo_picture_file *file, mo_picture *out, int *orientation,
                                     mo_error *err);

mo_picture_decoder mo_png_decode;  /* MO_PNG: libpng */
mo_picture_decoder mo_jpeg_decode; /* MO_JPEG: libjpeg-turbo */
mo_picture_decoder mo_webp_decode; /* MO_WEBP: libwebp */
mo_picture_decoder mo_gif_decode;  /* MO_GIF: giflib */
mo_picture_decoder mo_bmp_decode;

#endif
