/* Decode: an image file of any format to pixels. */
#ifndef MO_PICTURE_DECODE_H
#define MO_PICTURE_DECODE_H

#include "picture/picture.h"

/* The format is recognized by the bytes; names and headers are ignored. EXIF orientation is applied, alpha is
   dropped, of 16 bits the upper 8 are used, grey becomes three equal channels, and only the first frame of an
   animation is read. limits NULL: the default. The caller frees *out with mo_picture_free(); it is all zeros
   after a failure. MO_EFORMAT: not a picture, or damaged; MO_EUNSUPPORTED names a format that this build does
   not read; MO_ENOSPC: too large; MO_ECANCELLED: see base/interrupt.h. */
mo_status mo_picture_decode(const uint8_t *data, size_t bytes, const mo_picture_limits *limits,
                            mo_picture *out, mo_error *err);

/* The formats that this build reads, such as "PNG, JPEG, BMP". */
const char *mo_picture_formats(void);

#endif
