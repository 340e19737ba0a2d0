/* Picture model: whether a model can use an encoder of pictures. */
#ifndef HUB_PICTURE_MODEL_H
#define HUB_PICTURE_MODEL_H

#include "moraine_tools.h"

/* Can a model of this family use this projector? NULL: any. Text-only models may have the same width. */
bool hub_reads_pictures(const mo_file *model, const char *projector);

#endif
