/* Orientation: how the camera was held, by EXIF's numbers: 1 is upright. */
#ifndef MO_PICTURE_ORIENTATION_H
#define MO_PICTURE_ORIENTATION_H

#include "picture/picture.h"

/* Reads an EXIF block that begins with the TIFF header. 1 if it is missing or invalid. */
int mo_exif_orientation(const uint8_t *exif, size_t bytes);

/* Rotates and mirrors the picture upright. Rotating needs memory for a second picture. */
mo_status mo_picture_orient(mo_picture *p, int orientation, mo_error *err);

#endif
