/* Piece: of a batch, what a device works with while it computes some of its tokens as a step of their own; and what the devices of a row have in common
 * for that (gpu/pieces.h). Private to the gpu's files. */
#ifndef MO_GPU_PIECE_H
#define MO_GPU_PIECE_H

#include <pthread.h>

#include "engine/forward.h"

enum { GPU_PIECE_SLICES = 64 }; /* a step of more sessions is not divided */

struct mo_gpu;

/* What the engine's workspace has once, and every device needs for itself. */
typedef struct mo_gpu_piece_space {
    int32_t *slice_of;       /* [batch] */
    int32_t *ids, *token_of; /* [batch * used] */
    int32_t *first, *count;  /* [experts + 1] */
    mo_need *needs;          /* [experts] */
} mo_gpu_piece_space;

/* A device's part of a piece that it computes now. */
typedef struct mo_gpu_piece {
    mo_forward forward;
    int64_t whole;      /* tokens of the step that it is a piece of */
    mo_workspace space; /* the engine's, from the piece's first token on, but for its own */
    mo_slice slices[GPU_PIECE_SLICES];
    mo_state states[GPU_PIECE_SLICES]; /* as they are when the pieces before are done */
    mo_gpu_piece_space own;
    void *memory; /* of that */
} mo_gpu_piece;

typedef mo_status (*mo_gpu_pass)(struct mo_gpu *gpu, mo_forward *forward, mo_error *err);

/* Of the head. */
typedef struct mo_gpu_pieces {
    int64_t tokens; /* of a piece at most; 0: batches go as a whole */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    uint64_t round; /* of steps that went in pieces */
    const mo_forward *step;
    mo_gpu_pass pass;
    int count;                                        /* of its pieces */
    int given[MO_BLOCK_KINDS], taken[MO_BLOCK_KINDS]; /* by device: pieces that it has done, or begun with */
    int working;                                      /* threads */
    mo_error failed;                                  /* status MO_OK: nothing has */
    bool closing;
    /* For tests: called by a device's thread when it has a piece's stream, before its layers, without the lock. NULL: none. */
    void (*watch)(void *user, int part, int piece);
    void *watcher;
} mo_gpu_pieces;

/* Bytes in RAM of one device's part. */
int64_t mo_gpu_piece_bytes(const mo_model_spec *spec, int64_t batch);
/* Makes it; NULL: there is no memory. Piece `number` of `count` of the step: fills everything but what mo_gpu_piece_open() made. */
mo_gpu_piece *mo_gpu_piece_open(const mo_model_spec *spec, int64_t batch);
void mo_gpu_piece_close(mo_gpu_piece *piece); /* NULL is allowed */
void mo_gpu_piece_cut(mo_gpu_piece *piece, const mo_forward *step, int number, int count);

#endif
