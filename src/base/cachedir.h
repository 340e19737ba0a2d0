/* Cache directory: data learned about this machine and its models: $XDG_CACHE_HOME/moraine, or
   ~/.cache/moraine. */
#ifndef MO_BASE_CACHEDIR_H
#define MO_BASE_CACHEDIR_H

#include "moraine.h"

/* The path of the file `name` in it; creates nothing. MO_ENOENT if neither XDG_CACHE_HOME nor HOME is an
   absolute directory, MO_EINVAL if the path does not fit size bytes. Any thread. */
mo_status mo_cachedir_path(const char *name, char *path, size_t size, mo_error *err);

/* Creates the directories above `path` with XDG's permissions. MO_EINVAL, MO_ENOSPC or MO_EIO. */
mo_status mo_cachedir_make(const char *path, mo_error *err);

#endif
