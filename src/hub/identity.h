/* Identity: which content a finished file has, as the hub said when it was pulled: written down in an attribute of the file itself, which
 * goes where the file goes. It holds as long as the file is not written to. File systems without such attributes keep none. */
#ifndef HUB_IDENTITY_H
#define HUB_IDENTITY_H

#include "moraine.h"

enum { HUB_IDENTITY = 256 };

void hub_identity_keep(int fd, const char *identity);
/* What was kept of it. False: nothing, or it was written to since. */
bool hub_identity_of(const char *path, char *identity, size_t size);

/* The SHA-256 of a file in hexadecimal digits. goes_on is asked now and then, with the bytes that are through; false: MO_ECANCELLED. */
mo_status hub_identity_hash(const char *path, char sha256[65], bool (*goes_on)(void *user, int64_t done),
                            void *user, mo_error *err);
void hub_identity_digits(const uint8_t sum[32], char sha256[65]);

#endif
