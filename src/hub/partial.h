/* Partial: an incomplete file: FILE.part in full size, and FILE.part.json with the list of pieces received
   and the identity and size of the file. A partial of another file is not resumed. The file gets its name
   when all bytes are received and the checksum, if known, is correct. A lock allows one process at a time.
   One thread. */
#ifndef HUB_PARTIAL_H
#define HUB_PARTIAL_H

#include "moraine.h"

typedef struct hub_partial hub_partial;

typedef struct hub_partial_spec {
    const char *path; /* final path, in an existing folder */
    int64_t bytes;    /* at least 1 */
    /* of its content, if the server gives one: a checksum or an entity tag; "": a partial of an earlier
       run is not resumed, because its source is unknown */
    const char *identity;
    const char *sha256; /* in hexadecimal digits; "": unknown */
    int64_t piece;      /* bytes of a piece; a resumed download keeps its size */
} hub_partial_spec;

/* *begun_anew: a partial existed and could not be resumed. MO_ENOSPC: not enough disk space. MO_EINVAL:
   another process uses it. */
mo_status hub_partial_open(const hub_partial_spec *spec, hub_partial **out, bool *begun_anew, mo_error *err);
/* Keeps the partial, unless it was renamed or discarded. NULL is allowed. */
void hub_partial_close(hub_partial *partial);

int64_t hub_partial_done(const hub_partial *partial); /* bytes of complete pieces */
int64_t hub_partial_piece(const hub_partial *partial);
bool hub_partial_complete(const hub_partial *partial);
/* The first byte of the first missing piece from `from` on, or -1. */
int64_t hub_partial_missing(const hub_partial *partial, int64_t from);

mo_status hub_partial_write(hub_partial *partial, int64_t at, const void *bytes, size_t count, mo_error *err);
/* Forgets all pieces and the hash: everything is fetched again. */
mo_status hub_partial_forget(hub_partial *partial, mo_error *err);
/* All bytes of this range are written: marks the pieces completely inside it. */
void hub_partial_mark(hub_partial *partial, int64_t from, int64_t to);
/* Saves the state, after syncing the bytes. */
mo_status hub_partial_save(hub_partial *partial, mo_error *err);

/* Continues the hash over consecutive received bytes, at most this many. Returns the number of hashed bytes,
   or -1 if they cannot be read. */
int64_t hub_partial_hash(hub_partial *partial, int64_t most);
/* Checks a complete, hashed file. MO_EFORMAT: wrong checksum or length. */
mo_status hub_partial_check(hub_partial *partial, mo_error *err);

/* Syncs the complete, checked file and stores its identity: the slow work before it is renamed. */
mo_status hub_partial_settle(hub_partial *partial, mo_error *err);
const char *hub_partial_path(const hub_partial *partial); /* FILE.part until it is renamed (naming.h) */
/* Call after the file was renamed: removes its state file. */
void hub_partial_named(hub_partial *partial);
/* Removes the partial. */
void hub_partial_discard(hub_partial *partial);

#endif
