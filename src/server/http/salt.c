/* Salt: see salt.h. */
#include "server/http/salt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/common/identity.h"
#include "server/common/log.h"

static const char name[] = "salt";

static bool read_it(int dir, uint8_t *salt)
{
    struct stat info;
    const int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const bool good = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                      info.st_size == SRV_SALT_BYTES && read(fd, salt, SRV_SALT_BYTES) == SRV_SALT_BYTES;
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

/* Under its name only when it is whole. Another server may have been first: then that one's stays. */
static bool write_it(int dir, const uint8_t *salt)
{
    char draft[48];
    snprintf(draft, sizeof draft, "%s-%ld.part", name, (long)getpid());
    unlinkat(dir, draft, 0); /* of a process that was killed and had this number */
    const int fd = openat(dir, draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool written = fd >= 0 && write(fd, salt, SRV_SALT_BYTES) == SRV_SALT_BYTES && fsync(fd) == 0;
    const bool named = written && (linkat(dir, draft, dir, name, 0) == 0 || errno == EEXIST);
    const int number = errno;
    if (fd >= 0) {
        close(fd);
        unlinkat(dir, draft, 0);
    }
    errno = number;
    return named;
}

void srv_salt_get(const char *directory, uint8_t *salt)
{
    int dir = -1;
    if (directory) {
        mkdir(directory, 0700); /* what is wrong shows when it is opened */
        dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (dir >= 0 && read_it(dir, salt)) {
        close(dir);
        return;
    }
    srv_identity_bytes(salt, SRV_SALT_BYTES);
    if (directory && (dir < 0 || !write_it(dir, salt) || !read_it(dir, salt))) {
        srv_say(MO_LOG_WARN, "keys",
                "%s/%s: cannot be used (%s); what is cached for keys will not be found after a restart",
                directory, name, strerror(errno));
    }
    if (dir >= 0) {
        close(dir);
    }
}
