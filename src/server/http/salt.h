/* Salt: a random salt for hashes of keys. */
#ifndef SRV_SALT_H
#define SRV_SALT_H

#include <stdint.h>

enum { SRV_SALT_BYTES = 32 };

/* The salt (SRV_SALT_BYTES) of a directory, created if missing, so that clients keep their identity across
 * restarts. A new salt if directory is NULL or not writable (logged). */
void srv_salt_get(const char *directory, uint8_t *salt);

#endif
