/* Picture model: whether a model has use for an encoder of pictures. */
#ifndef HUB_PICTURE_MODEL_H
#define HUB_PICTURE_MODEL_H

#include "moraine_tools.h"

/* Does a model of this family read pictures of the projector? NULL: of any. Models of text alone may have the same width. */
bool hub_reads_pictures(const mo_file *model, const char *projector);

#endif
