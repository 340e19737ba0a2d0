/* Snapshot: a saved session state, to rewind to or to fork from. It refers to blocks of the session's pool,
 * or is bytes made by mo_snapshot_write(). Private to snapshot.c, snapshot_bytes.c and snapshot_delta.c,
 * which have the public functions. */
#ifndef MO_ENGINE_SNAPSHOT_H
#define MO_ENGINE_SNAPSHOT_H

#include "engine/session.h"

struct mo_snapshot {
    mo_kv_type kv;
    int64_t vocab; /* of its model, like the next two */
    int64_t layers;
    uint64_t fingerprint;
    mo_precision precision; /* of the engine that computed it */
    uint64_t adapters;      /* adapters it was computed with, as in mo_session_adapters() */
    mo_state_mark mark;     /* mark.length: number of positions */
    int64_t least;          /* fewest positions that can be restored */
    int32_t *tokens;
    float *logits; /* NULL: the session had none */
    /* As blocks: */
    mo_engine *engine; /* owner of the blocks; NULL: bytes */
    mo_blocks blocks;
    bool on_device; /* the blocks are on a device */
    /* on a device: the engine's losses when they were written; if it has more now, they are gone */
    unsigned losses;
    int64_t context; /* of the session's tables */
    int64_t number;  /* its number on other ranks; 0: none */
    /* Delta (snapshot_delta.c): the blocks have only the positions before rows_from. */
    uint8_t *rows; /* the other positions, in RAM; NULL: not a delta */
    size_t rows_bytes;
    int64_t rows_from;
    /* As bytes: */
    uint8_t *state;
    size_t state_bytes;
};

/* The caller fills in tokens and logits; NULL: out of memory. */
mo_snapshot *mo_snapshot_new(int64_t length, int64_t vocab, bool logits);

/* Copies blocks between RAM and the engine's device. */
mo_status mo_snapshot_copy(const mo_engine *engine, mo_blocks *to, const mo_blocks *from, int64_t length,
                           bool to_device, mo_error *err);
/* MO_OK if its data on devices are still there; they may be lost with a device. */
mo_status mo_snapshot_check(const mo_snapshot *s, mo_error *err);

/* MO_EINVAL: it belongs to another model. */
mo_status mo_snapshot_check_model(const mo_snapshot *s, const mo_engine *engine, mo_error *err);
/* From bytes of mo_snapshot_write(), for the engine's model. */
mo_status mo_engine_snapshot_read(const mo_engine *engine, const uint8_t *bytes, size_t size,
                                  mo_snapshot **out, mo_error *err);

/* Number of positions in its blocks. */
static inline int64_t mo_snapshot_in_blocks(const mo_snapshot *s)
{
    return s->rows ? s->rows_from : s->mark.length;
}
/* For a delta snapshot. whole: tables with all positions, where its blocks are. tail: the unshared blocks in
 * RAM that its rows go into, including the positions before them in those blocks. */
mo_status mo_snapshot_whole(const mo_snapshot *s, mo_blocks *out, mo_error *err);
mo_status mo_snapshot_tail(const mo_snapshot *s, mo_blocks *out, mo_error *err);
/* Drops the rows, which are invalid or now in its blocks. */
void mo_snapshot_drop_rows(mo_snapshot *s);

/* The bytes as in mo_state_save(). The caller frees them, unless they are the snapshot's own. */
mo_status mo_snapshot_state(const mo_snapshot *s, uint8_t **bytes, size_t *size, mo_error *err);

/* Sets the session's state to the first `length` of the `all` positions saved in these bytes: of all layers,
 * or of a follower rank's own. On failure the state is unchanged, or empty. */
mo_status mo_session_restore_bytes(mo_session *session, const uint8_t *bytes, size_t size, int64_t all,
                                   int64_t length, mo_error *err);

#endif
