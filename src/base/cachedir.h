/* Cache directory: where the program keeps what it has learned about this machine and its models:
 * $XDG_CACHE_HOME/moraine, or ~/.cache/moraine. */
#ifndef MO_BASE_CACHEDIR_H
#define MO_BASE_CACHEDIR_H

#include "moraine.h"

/* Path of the file `name` there; creates nothing. MO_ENOENT when neither XDG_CACHE_HOME nor HOME names an absolute
 * directory, MO_EINVAL when the path does not fit into size bytes. Any thread. */
mo_status mo_cachedir_path(const char *name, char *path, size_t size, mo_error *err);

/* Makes the directories above `path`, as private as XDG asks for. MO_EINVAL, MO_ENOSPC or MO_EIO. */
mo_status mo_cachedir_make(const char *path, mo_error *err);

#endif
