/* MTP name: NAME-mtp.gguf is the MTP head of the model NAME.gguf beside it. */
#ifndef MO_BASE_MTP_NAME_H
#define MO_BASE_MTP_NAME_H

#include <stdbool.h>

/* Is the file such a head, and no model? A head has one layer, so it is at most half as large as its model: a model may have such a name too. */
bool mo_mtp_named(const char *path);

#endif
