#include "hub/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/status.h"

#define ATTRIBUTE "user.moraine.identity"

enum { BLOCK = 1 << 20, ASK_BLOCKS = 32 };

/* "1763290000.123456789 12345 ": identifies the state of the file that the attribute describes. */
static int write_state(const struct stat *st, char *text, size_t size)
{
    return snprintf(text, size, "%lld.%09ld %lld ", (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
                    (long long)st->st_size);
}

void hub_identity_keep(int fd, const char *identity)
{
    char text[HUB_IDENTITY + 96];
    struct stat st;
    if (identity[0] && fstat(fd, &st) == 0) {
        const int used = write_state(&st, text, sizeof text);
        snprintf(text + used, sizeof text - (size_t)used, "%s", identity);
        (void)fsetxattr(fd, ATTRIBUTE, text, strlen(text),
                        0); /* without the attribute the file is hashed when needed */
    }
}

bool hub_identity_of(const char *path, char *identity, size_t size)
{
    char text[HUB_IDENTITY + 96], state[96];
    struct stat st;
    const ssize_t length = getxattr(path, ATTRIBUTE, text, sizeof text - 1);
    if (length <= 0 || stat(path, &st) != 0) {
        return false;
    }
    text[length] = '\0';
    const size_t used = (size_t)write_state(&st, state, sizeof state);
    return strncmp(text, state, used) == 0 && snprintf(identity, size, "%s", text + used) < (int)size;
}

void hub_identity_digits(const uint8_t sum[32], char sha256[65])
{
    for (size_t i = 0; i < 32; i++) {
        snprintf(sha256 + 2 * i, 3, "%02x", sum[i]);
    }
}

mo_status hub_identity_hash(const char *path, char sha256[65], bool (*goes_on)(void *user, int64_t done),
                            void *user, mo_error *err)
{
    struct sha256_ctx hash;
    uint8_t sum[SHA256_DIGEST_SIZE];
    uint8_t *block = malloc(BLOCK);
    const int fd = block ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    mo_status s = block ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory while reading %s", path);
    ssize_t got = fd < 0 ? -1 : 0;
    int64_t done = 0;
    sha256_init(&hash);
    for (int i = 0; s == MO_OK && fd >= 0 && (got = read(fd, block, BLOCK)) > 0; i++) {
        sha256_update(&hash, (size_t)got, block);
        done += got;
        if (i % ASK_BLOCKS == ASK_BLOCKS - 1 && goes_on && !goes_on(user, done)) {
            s = mo_fail(err, MO_ECANCELLED, "cancelled");
        }
    }
    if (s == MO_OK && got < 0) {
        s = mo_fail(err, MO_EIO, "cannot read %s: %s", path, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    free(block);
    sha256_digest(&hash, sizeof sum, sum);
    hub_identity_digits(sum, sha256);
    return s;
}
