/* Orientation: how a camera was held, as EXIF says it: 1 is upright. */
#ifndef MO_PICTURE_ORIENTATION_H
#define MO_PICTURE_ORIENTATION_H

#include "picture/picture.h"

/* Of an EXIF block that begins with the TIFF header; 1 where it has none or makes no sense. */
int mo_exif_orientation(const uint8_t *exif, size_t bytes);

/* Turns and mirrors the picture so that it is upright. Needs its size once more where it has to be turned. */
mo_status mo_picture_orient(mo_picture *p, int orientation, mo_error *err);

#endif
