/* Pieces: the data to read from a model's files, in pieces of a few MiB, sorted by file position. The pool's
 * threads claim them in that order, so the disk sees one nearly sequential stream with several requests in
 * flight. A piece has whole groups of rows, so that it can be rearranged separately. Private to the
 * loader. */
#ifndef MO_MODEL_PIECES_H
#define MO_MODEL_PIECES_H

#include "base/input.h"
#include "base/pool.h"
#include "model/bind.h"

/* One read of the file. */
typedef struct mo_load_piece {
    const mo_binding *binding;
    const mo_weights *view; /* NULL: a vector */
    int64_t row, rows;      /* of the view */
    int64_t at;             /* position in its file, for sorting */
    uint8_t *to;            /* NULL: it stays mapped and is only checked */
} mo_load_piece;

typedef struct mo_pieces {
    mo_load_piece *list;
    size_t count, limit;
    uint64_t total;      /* bytes of all */
    int64_t stage_bytes; /* size of the largest piece that is rearranged */
} mo_pieces;

/* Add matrix i of a binding, whose interleaving is set, or a vector. False: out of memory. */
bool mo_pieces_add_matrix(mo_pieces *p, const mo_binding *w, int64_t i, uint8_t *to);
bool mo_pieces_add_vector(mo_pieces *p, const mo_binding *w, uint8_t *to);

typedef struct mo_pieces_source {
    const char *path;        /* of the model, for messages */
    mo_input *const *inputs; /* [parts] its files */
    int parts;
    mo_pool *pool;           /* NULL: on the calling thread */
    mo_progress_fn progress; /* as in mo_load_options */
    void *user;
} mo_pieces_source;

/* Reads all pieces, validates formats that can hold invalid values, and rearranges. Stops at the first
 * failure. */
mo_status mo_pieces_read(mo_pieces *p, const mo_pieces_source *source, mo_error *err);
void mo_pieces_free(mo_pieces *p); /* a zeroed struct is allowed */

#endif
