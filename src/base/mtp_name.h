/* MTP name: NAME-mtp.gguf is the MTP head of the model NAME.gguf in the same directory. */
#ifndef MO_BASE_MTP_NAME_H
#define MO_BASE_MTP_NAME_H

#include <stdbool.h>

/* Is the file an MTP head? A model may have such a name too, so the size decides: a head has one layer and is
   at most half as large as its model. */
bool mo_mtp_named(const char *path);

#endif
