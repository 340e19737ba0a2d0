/* Identity: unguessable ids for answers, items and calls. */
#ifndef SRV_IDENTITY_H
#define SRV_IDENTITY_H

#include <stddef.h>

/* prefix plus 24 random letters and digits; size includes the terminator. */
void srv_identity(const char *prefix, char *out, size_t size);
void srv_identity_bytes(void *out, size_t count);

#endif
