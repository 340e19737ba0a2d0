#include "picture/decode.h"

#include <string.h>

#include "base/status.h"
#include "picture/decoder.h"
#include "picture/orientation.h"

#ifndef MO_PNG
#define mo_png_decode NULL
#endif
#ifndef MO_JPEG
#define mo_jpeg_decode NULL
#endif
#ifndef MO_WEBP
#define mo_webp_decode NULL
#endif
#ifndef MO_GIF
#define mo_gif_decode NULL
#endif

/* Signature of a format: text in which ? matches any byte. */
typedef struct format {
    const char *begins;
    size_t length;
    const char *name;
    mo_picture_decoder *decode; /* NULL: not supported */
    const char *library;        /* the library for it; NULL: none */
} format;

static const format formats[] = {
    {"\x89PNG\r\n\x1a\n", 8, "PNG", mo_png_decode, "libpng"},
    {"\xff\xd8\xff", 3, "JPEG", mo_jpeg_decode, "libjpeg-turbo"},
    {"RIFF????WEBP", 12, "WebP", mo_webp_decode, "libwebp"},
    {"GIF87a", 6, "GIF", mo_gif_decode, "giflib"},
    {"GIF89a", 6, "GIF", mo_gif_decode, "giflib"},
    {"BM", 2, "BMP", mo_bmp_decode, NULL},
    {"????ftypavi", 11, "AVIF", NULL, NULL},
    {"????ftyp", 8, "HEIC", NULL, NULL},
    {"II*\0", 4, "TIFF", NULL, NULL},
    {"MM\0*", 4, "TIFF", NULL, NULL},
    {"%PDF", 4, "PDF", NULL, NULL},
    {"<svg", 4, "SVG", NULL, NULL},
    {"<?xml", 5, "SVG", NULL, NULL},
};

enum { FORMATS = sizeof formats / sizeof formats[0] };

static bool begins(const format *f, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < f->length; i++) {
        if (i >= bytes || (f->begins[i] != '?' && (uint8_t)f->begins[i] != data[i])) {
            return false;
        }
    }
    return true;
}

const char *mo_picture_formats(void)
{
    return ""
#ifdef MO_PNG
           "PNG, "
#endif
#ifdef MO_JPEG
           "JPEG, "
#endif
#ifdef MO_WEBP
           "WebP, "
#endif
#ifdef MO_GIF
           "GIF, "
#endif
           "BMP";
}

static mo_status unread(const format *f, mo_error *err)
{
    if (!f) {
        return mo_fail(err, MO_EFORMAT, "this is not a picture of a known format (known: %s)",
                       mo_picture_formats());
    }
    if (f->library) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "this is a %s picture, and the program was built without %s; convert it to %s",
                       f->name, f->library, mo_picture_formats());
    }
    return mo_fail(err, MO_EUNSUPPORTED, "%s files are not read; convert it to %s", f->name,
                   mo_picture_formats());
}

mo_status mo_picture_decode(const uint8_t *data, size_t bytes, const mo_picture_limits *limits,
                            mo_picture *out, mo_error *err)
{
    const mo_picture_file file = {data, bytes, limits ? limits : &mo_picture_limits_default};
    const format *found = NULL;
    int orientation = 1;
    memset(out, 0, sizeof *out);
    if (bytes == 0) {
        return mo_fail(err, MO_EFORMAT, "the picture is empty");
    }
    if (bytes > (size_t)file.limits->bytes) {
        return mo_fail(err, MO_ENOSPC,
                       "the picture's file has %lld bytes; at most %lld are accepted: make it smaller",
                       (long long)bytes, (long long)file.limits->bytes);
    }
    for (int i = 0; i < FORMATS && !found; i++) {
        found = begins(&formats[i], data, bytes) ? &formats[i] : NULL;
    }
    if (!found || !found->decode) {
        return unread(found, err);
    }
    mo_status status = found->decode(&file, out, &orientation, err);
    if (status == MO_OK) {
        status = mo_picture_orient(out, orientation, err);
    }
    if (status != MO_OK) {
        mo_picture_free(out);
    }
    return status;
}
