/* Identity: unguessable names for answers, items and calls. */
#ifndef SRV_IDENTITY_H
#define SRV_IDENTITY_H

#include <stddef.h>

/* prefix and 24 random letters and digits; size counts the end. */
void srv_identity(const char *prefix, char *out, size_t size);
/* Random bytes. */
void srv_identity_bytes(void *out, size_t count);

#endif
