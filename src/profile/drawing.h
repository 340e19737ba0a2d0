/* Drawing: an SVG on its way to a file, in the style that all charts share: readable on light and dark pages, and in print. */
#ifndef MO_PROFILE_DRAWING_H
#define MO_PROFILE_DRAWING_H

#include <stdio.h>

#include "moraine.h"

typedef struct mo_drawing {
    FILE *out; /* into memory: elements are printed to it */
    char *text;
    size_t bytes;
} mo_drawing;

/* After MO_OK mo_drawing_finish() follows. `path` is for messages. */
mo_status mo_drawing_begin(mo_drawing *d, const char *path, int width, int height, mo_error *err);

/* Text inside an element: the few characters that mean something to XML are written out; control characters,
 * which it cannot hold, become blanks. */
void mo_drawing_text(mo_drawing *d, const char *text);

/* class NULL: none; "title": the chart's. */
void mo_drawing_label(mo_drawing *d, double x, double y, const char *anchor, const char *class,
                      const char *text);

/* Writes a file that appears when it is complete. */
mo_status mo_drawing_finish(mo_drawing *d, const char *path, mo_error *err);

#endif
