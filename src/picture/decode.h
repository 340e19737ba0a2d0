/* Decode: an image file of any format to pixels. */
#ifndef MO_PICTURE_DECODE_H
#define MO_PICTURE_DECODE_H

#include "picture/picture.h"

/* The format is that of the bytes, whatever a name or a header says of them. EXIF's orientation is applied; alpha is dropped; of 16 bits
 * the upper 8 are taken; grey becomes three equal channels; of animations the first frame is read. limits NULL: the default. The caller
 * owns *out and frees it with mo_picture_free(); it is all zeros after a failure.
 * MO_EFORMAT: no picture, or a damaged one; MO_EUNSUPPORTED names a format that this build does not read; MO_ENOSPC: too large;
 * MO_ECANCELLED: see base/interrupt.h. */
mo_status mo_picture_decode(const uint8_t *data, size_t bytes, const mo_picture_limits *limits,
                            mo_picture *out, mo_error *err);

/* The formats that this build reads, such as "PNG, JPEG, BMP". */
const char *mo_picture_formats(void);

#endif
