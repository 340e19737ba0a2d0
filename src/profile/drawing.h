/* Drawing: an SVG being written to a file, readable on light and dark pages and in print. */
#ifndef MO_PROFILE_DRAWING_H
#define MO_PROFILE_DRAWING_H

#include <stdio.h>

#include "moraine.h"

typedef struct mo_drawing {
    FILE *out; /* a memory buffer; elements are printed to it */
    char *text;
    size_t bytes;
} mo_drawing;

/* After MO_OK call mo_drawing_finish(). `path` is for messages. */
mo_status mo_drawing_begin(mo_drawing *d, const char *path, int width, int height, mo_error *err);

/* Writes text inside an element: escapes XML's special characters and replaces control characters, which XML
   does not allow, by blanks. */
void mo_drawing_text(mo_drawing *d, const char *text);

/* class NULL: none; "title": of the chart. */
void mo_drawing_label(mo_drawing *d, double x, double y, const char *anchor, const char *class,
                      const char *text);

/* Writes the file, which appears when it is complete. */
mo_status mo_drawing_finish(mo_drawing *d, const char *path, mo_error *err);

#endif
