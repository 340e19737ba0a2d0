/* Identity: the content of a finished file, as the hub described it when it was pulled. Stored in an extended
   attribute, so it moves with the file. It is valid until the file is modified. Without support in the file
   system nothing is stored. */
#ifndef HUB_IDENTITY_H
#define HUB_IDENTITY_H

#include "moraine.h"

enum { HUB_IDENTITY = 256 };

void hub_identity_keep(int fd, const char *identity);
/* Reads the stored identity. False: none, or the file was modified since. */
bool hub_identity_of(const char *path, char *identity, size_t size);

/* The SHA-256 of a file in hexadecimal. goes_on is called with the hashed bytes; false: MO_ECANCELLED. */
mo_status hub_identity_hash(const char *path, char sha256[65], bool (*goes_on)(void *user, int64_t done),
                            void *user, mo_error *err);
void hub_identity_digits(const uint8_t sum[32], char sha256[65]);

#endif
