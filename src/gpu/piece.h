/* Piece: the state of a device while it computes some tokens of a batch as a separate step, and what the
 * devices of a row share for that (gpu/pieces.h). Private to gpu/. */
#ifndef MO_GPU_PIECE_H
#define MO_GPU_PIECE_H

#include <pthread.h>

#include "engine/forward.h"

enum { GPU_PIECE_SLICES = 64 }; /* a step of more sessions is not divided */

struct mo_gpu;

/* Memory that the engine's workspace has once, but every device needs for itself. */
typedef struct mo_gpu_piece_space {
    int32_t *slice_of;       /* [batch] */
    int32_t *ids, *token_of; /* [batch * used] */
    int32_t *first, *count;  /* [experts + 1] */
    mo_need *needs;          /* [experts] */
} mo_gpu_piece_space;

/* A device's part of the piece that it computes now. */
typedef struct mo_gpu_piece {
    mo_forward forward;
    int64_t whole;      /* tokens of the whole step */
    mo_workspace space; /* the engine's from the piece's first token on, except `own` */
    mo_slice slices[GPU_PIECE_SLICES];
    mo_state states[GPU_PIECE_SLICES]; /* as after the previous pieces */
    mo_gpu_piece_space own;
    void *memory; /* memory of own */
} mo_gpu_piece;

typedef mo_status (*mo_gpu_pass)(struct mo_gpu *gpu, mo_forward *forward, mo_error *err);

/* Shared by the devices; the head's. */
typedef struct mo_gpu_pieces {
    int64_t tokens; /* maximum tokens per piece; 0: batches are not divided */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    uint64_t round; /* number of divided steps */
    const mo_forward *step;
    mo_gpu_pass pass;
    int count;                                        /* number of pieces */
    int given[MO_BLOCK_KINDS], taken[MO_BLOCK_KINDS]; /* by device: pieces done; pieces begun */
    int working;                                      /* working threads */
    mo_error failed;                                  /* status MO_OK: no failure */
    bool closing;
    /* For tests: a device's thread calls it without the lock when it has a piece's stream, before its layers.
     * NULL: none. */
    void (*watch)(void *user, int part, int piece);
    void *watcher;
} mo_gpu_pieces;

/* Bytes in RAM for one device. */
int64_t mo_gpu_piece_bytes(const mo_model_spec *spec, int64_t batch);
/* open: NULL: out of memory. cut: fills in piece `number` of `count` of the step, except what open has
 * allocated. */
mo_gpu_piece *mo_gpu_piece_open(const mo_model_spec *spec, int64_t batch);
void mo_gpu_piece_close(mo_gpu_piece *piece); /* NULL is allowed */
void mo_gpu_piece_cut(mo_gpu_piece *piece, const mo_forward *step, int number, int count);

#endif
