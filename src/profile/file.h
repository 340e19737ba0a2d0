/* Profile files: what was learned about a model, kept from run to run in $XDG_CACHE_HOME/moraine or
 * ~/.cache/moraine under the model's fingerprint. A file is replaced whole or not at all, whatever happens
 * to the process or the disk; processes that save at the same time do not lose each other's counts. A file
 * that cannot be used is moved aside, never overwritten. */
#ifndef MO_PROFILE_FILE_H
#define MO_PROFILE_FILE_H

#include "profile/profile.h"

/* The file of a model: path becomes DIRECTORY/FINGERPRINT.json. Creates nothing. MO_ENOENT when neither
 * XDG_CACHE_HOME nor HOME names an absolute directory. */
mo_status mo_profile_file_path(uint64_t fingerprint, char *path, size_t size, mo_error *err);

/* Reads any profile file, such as one the user names; it is never moved. MO_ENOENT, MO_EIO, MO_EFORMAT
 * (err names the path and what is wrong), MO_ENOMEM. */
mo_status mo_profile_file_read(const char *path, mo_profile **out, mo_error *err);

/* Reads a model's own file. MO_ENOENT: there is none yet. MO_EFORMAT: it is damaged or of another model
 * and was moved aside; err says where to, and the run goes on without. */
mo_status mo_profile_file_load(const char *path, uint64_t fingerprint, mo_profile **out, mo_error *err);

/* Adds what was counted since the last save to a model's own file, lets old counts fade, and makes its
 * directory when needed. A damaged file or one of another model is moved aside first: *moved (may be NULL)
 * then has status MO_EFORMAT and says where to, otherwise its status is MO_OK. On failure the old file is
 * untouched: keep the counts and try again later. MO_EIO as well when another process holds the lock for
 * more than ten seconds. */
mo_status mo_profile_file_add(const char *path, const mo_profile *counted, mo_error *moved, mo_error *err);

/* Writes a profile over any file, atomically and through to the disk; for files the user names. */
mo_status mo_profile_file_write(const char *path, const mo_profile *p, mo_error *err);

#endif
