/* Salt: makes hashes of keys useless without it. */
#ifndef SRV_SALT_H
#define SRV_SALT_H

#include <stdint.h>

enum { SRV_SALT_BYTES = 32 };

/* The salt (of SRV_SALT_BYTES) of a directory, made where there is none, so that clients are the same ones after a restart. NULL, or a directory in
 * which it cannot be kept (which the log says): a new one. */
void srv_salt_get(const char *directory, uint8_t *salt);

#endif
