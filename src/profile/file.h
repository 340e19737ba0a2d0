/* Profile files: what was learned about a model, kept between runs in $XDG_CACHE_HOME/moraine or
   ~/.cache/moraine under the model's fingerprint. A file is replaced completely or not at all, also after a
   crash. Processes that save concurrently do not lose each other's counts. A file that cannot be used is
   renamed, never overwritten. */
#ifndef MO_PROFILE_FILE_H
#define MO_PROFILE_FILE_H

#include "profile/profile.h"

/* The path of a model's file: DIRECTORY/FINGERPRINT.json. Creates nothing. MO_ENOENT if neither
   XDG_CACHE_HOME nor HOME is an absolute directory. */
mo_status mo_profile_file_path(uint64_t fingerprint, char *path, size_t size, mo_error *err);

/* Reads any profile file, for example one named by the user; never renames it. MO_ENOENT, MO_EIO, MO_EFORMAT
   (err names path and fault), MO_ENOMEM. */
mo_status mo_profile_file_read(const char *path, mo_profile **out, mo_error *err);

/* Reads a model's own file. MO_ENOENT: there is none yet. MO_EFORMAT: it was damaged or another model's, and
   was renamed; err has the new name. The run continues without it. */
mo_status mo_profile_file_load(const char *path, uint64_t fingerprint, mo_profile **out, mo_error *err);

/* Adds the counts since the last save to a model's own file, ages old counts, and creates the directory if
   needed. A file that is damaged or another model's is renamed first: *moved (may be NULL) then has status
   MO_EFORMAT and the new name, otherwise MO_OK. On failure the old file is unchanged: keep the counts and try
   again. MO_EIO also if another process holds the lock for more than ten seconds. */
mo_status mo_profile_file_add(const char *path, const mo_profile *counted, mo_error *moved, mo_error *err);

/* Writes a profile to any file, atomically and synced to the disk. For files named by the user. */
mo_status mo_profile_file_write(const char *path, const mo_profile *p, mo_error *err);

#endif
