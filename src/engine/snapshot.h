/* Snapshot: what a session held, to go back to or to fork from. It refers to blocks of the session's pool, or it is bytes, as
 * mo_snapshot_write() makes them. For snapshot.c, snapshot_bytes.c and snapshot_lean.c, which have the public
 * functions. */
#ifndef MO_ENGINE_SNAPSHOT_H
#define MO_ENGINE_SNAPSHOT_H

#include "engine/session.h"

struct mo_snapshot {
    mo_kv_type kv;
    int64_t vocab; /* of the model it belongs to, as the next two */
    int64_t layers;
    uint64_t fingerprint;
    mo_precision precision; /* of the engine that computed it */
    uint64_t adapters;      /* those it was computed with, as mo_session_adapters() */
    mo_state_mark mark;     /* mark.length: its positions */
    int64_t least;          /* the fewest that can be restored */
    int32_t *tokens;
    float *logits; /* NULL when the session had none */
    /* In blocks: */
    mo_engine *engine; /* whose they are; NULL: it is bytes */
    mo_blocks blocks;
    bool on_device;  /* so are they */
    unsigned losses; /* then, of the engine when they were written: with more since then, they are gone */
    int64_t context; /* of the session's tables */
    int64_t number;  /* by which other ranks know it; 0: none does */
    /* Lean (snapshot_lean.c): the blocks have the positions before rows_from alone. */
    uint8_t *rows; /* of the others, in RAM; NULL: not a delta */
    size_t rows_bytes;
    int64_t rows_from;
    /* As bytes: */
    uint8_t *state;
    size_t state_bytes;
};

/* With its tokens and logits to be filled; NULL: no memory. */
mo_snapshot *mo_snapshot_new(int64_t length, int64_t vocab, bool logits);

/* Between RAM and the engine's device. */
mo_status mo_snapshot_copy(const mo_engine *engine, mo_blocks *to, const mo_blocks *from, int64_t length,
                           bool to_device, mo_error *err);
/* What it keeps on the engine's devices is there, or was lost with one of them. */
mo_status mo_snapshot_check(const mo_snapshot *s, mo_error *err);

/* MO_EINVAL: it belongs to another model than the engine's. */
mo_status mo_snapshot_check_model(const mo_snapshot *s, const mo_engine *engine, mo_error *err);
/* From bytes as mo_snapshot_write() makes them, of the engine's model. */
mo_status mo_engine_snapshot_read(const mo_engine *engine, const uint8_t *bytes, size_t size,
                                  mo_snapshot **out, mo_error *err);

/* The positions that its blocks have. */
static inline int64_t mo_snapshot_in_blocks(const mo_snapshot *s)
{
    return s->rows ? s->rows_from : s->mark.length;
}
/* For a delta snapshot: tables with all its positions, where its blocks are; and the unshared blocks in RAM that its rows go
 * into, with what lies before them there. */
mo_status mo_snapshot_whole(const mo_snapshot *s, mo_blocks *out, mo_error *err);
mo_status mo_snapshot_tail(const mo_snapshot *s, mo_blocks *out, mo_error *err);
/* Forgets the rows, which are not there or are in its blocks. */
void mo_snapshot_drop_rows(mo_snapshot *s);

/* What mo_state_save() would say. The caller's to free(), unless it is the snapshot's own. */
mo_status mo_snapshot_state(const mo_snapshot *s, uint8_t **bytes, size_t *size, mo_error *err);

/* The session's state is the first `length` of the `all` positions that were saved so: of all layers, or of a rank that follows, its own. On
 * failure it is as it was, or empty. */
mo_status mo_session_restore_bytes(mo_session *session, const uint8_t *bytes, size_t size, int64_t all,
                                   int64_t length, mo_error *err);

#endif
