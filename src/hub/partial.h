/* Partial: a file on its way: FILE.part of the whole size, and FILE.part.json, which says which pieces of it are there and of which
 * file they are (its size and identity). A download of another file is not resumed. The file gets its name when every
 * byte is there and the checksum, where one is known, is right. One process at a time: a lock says so. One thread. */
#ifndef HUB_PARTIAL_H
#define HUB_PARTIAL_H

#include "moraine.h"

typedef struct hub_partial hub_partial;

typedef struct hub_partial_spec {
    const char *path; /* the file's own, in a folder that exists */
    int64_t bytes;    /* at least 1 */
    const char *
        identity; /* of its content, as far as the server tells: a checksum or an entity tag; "": what an earlier
                             run left is not resumed, as its source is unknown */
    const char *sha256; /* in hexadecimal digits; "": not known */
    int64_t piece;      /* bytes of a piece; a resumed download keeps its own */
} hub_partial_spec;

/* *begun_anew: something existed and could not be resumed. MO_ENOSPC: not enough disk space. MO_EINVAL: another process
 * has it. */
mo_status hub_partial_open(const hub_partial_spec *spec, hub_partial **out, bool *begun_anew, mo_error *err);
/* Keeps what is there, unless it was named or discarded. NULL is allowed. */
void hub_partial_close(hub_partial *partial);

int64_t hub_partial_done(const hub_partial *partial); /* bytes of pieces that are there */
int64_t hub_partial_piece(const hub_partial *partial);
bool hub_partial_complete(const hub_partial *partial);
/* The first piece from `from` on that is not there: its first byte, or -1. */
int64_t hub_partial_missing(const hub_partial *partial, int64_t from);

mo_status hub_partial_write(hub_partial *partial, int64_t at, const void *bytes, size_t count, mo_error *err);
/* Nothing of it is there any more, and nothing is hashed: all of it comes anew. */
mo_status hub_partial_forget(hub_partial *partial, mo_error *err);
/* All bytes of this range have been written: the pieces wholly in it are there. */
void hub_partial_mark(hub_partial *partial, int64_t from, int64_t to);
/* Writes down what is there, after the bytes themselves. */
mo_status hub_partial_save(hub_partial *partial, mo_error *err);

/* Continues the checksum over the bytes without a gap, at most this many. How many are through, or -1: they cannot
 * be read. */
int64_t hub_partial_hash(hub_partial *partial, int64_t most);
/* Of a complete file that has been hashed: is it what it should be? MO_EFORMAT: it is not. */
mo_status hub_partial_check(hub_partial *partial, mo_error *err);

/* The complete and checked file is on the disk, and says itself what it is: all that can take long before it gets its name. */
mo_status hub_partial_settle(hub_partial *partial, mo_error *err);
const char *
hub_partial_path(const hub_partial *partial); /* FILE.part, until it is given its name (naming.h) */
/* The file is renamed: removes its state file. */
void hub_partial_named(hub_partial *partial);
/* Removes what is there. */
void hub_partial_discard(hub_partial *partial);

#endif
