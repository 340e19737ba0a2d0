/* Wire: what ranks of one model say to each other. Rank 0 leads; the others follow, each with the layers behind those of the rank
 * before it. Heads go from each rank to the next; an answer goes from the last back to rank 0, or from each to rank 0 where all
 * have something to say. Steps whose rows are not needed, pieces of prompts, are not waited for: at most mo_wire_ahead() are in flight, so that
 * all ranks work at once. All ranks have the same byte order and version, which the first words check. */
#ifndef MO_CLUSTER_WIRE_H
#define MO_CLUSTER_WIRE_H

#include "engine/image.h"
#include "moraine.h"

enum { MO_WIRE_PROTOCOL = 9, MO_WIRE_ORDER = 0x01020304, MO_WIRE_TEXT = 512, MO_WIRE_SLICES = 256 };

/* Number of steps in flight for this many ranks: one in each, and one on its way to the slowest. */
static inline int mo_wire_ahead(int ranks)
{
    return ranks > 3 ? ranks : 3;
}

typedef enum mo_wire_kind {
    MO_WIRE_OPEN = 1, /* a model: all answer with a hello, get their share and answer with a result */
    /* Orders, slices, adapters, tokens, what is to be known of rows of pictures, their features and the stream follow; the last answers with a
     * result, and rows. */
    MO_WIRE_STEP,
    MO_WIRE_SAVE, /* orders follow; all answer with a result, and what they hold of the snapshot */
    MO_WIRE_LOAD, /* orders follow, and from rank 0 each rank's bytes, after their number; all answer with a result */
    MO_WIRE_CLOSE, /* the model */
    MO_WIRE_END,   /* the run; all answer with a result */
} mo_wire_kind;

typedef struct mo_wire_head {
    uint32_t order, kind; /* MO_WIRE_ORDER; mo_wire_kind */
    uint64_t serial;      /* grows by one with each */
    int32_t
        status; /* STEP: of the ranks before; where it failed a result follows in the place of the stream */
    int32_t order_count, slice_count;
    int32_t use_count; /* STEP: adapters of slices */
    int64_t tokens;    /* of all slices */
    int64_t number;  /* SAVE: of the snapshot; LOAD: of the state; STEP: of features of a row of a picture */
    int64_t length;  /* LOAD: positions */
    int64_t work_ns; /* STEP: that the ranks before have computed, but for rank 0 */
} mo_wire_head;

/* What befell sessions and snapshots since the head before. */
typedef enum mo_wire_change {
    MO_WIRE_STATE_OPENS = 1,
    MO_WIRE_STATE_CLOSES,
    MO_WIRE_SNAPSHOT_OPENS,
    MO_WIRE_SNAPSHOT_CLOSES,
    MO_WIRE_RESTORES,
    MO_WIRE_ACCEPTS, /* of the last step; for each of its slices with drafts, in their order */
} mo_wire_change;

typedef struct mo_wire_order {
    uint32_t change;
    int32_t kv;
    int64_t state, snapshot;
    int64_t
        length; /* context of a state that opens; positions that are restored or kept; drafts that were accepted */
} mo_wire_order;

typedef struct mo_wire_slice {
    int64_t state, position, count;
    int64_t wanted;           /* tokens of it, from the end, whose rows go back to rank 0 */
    int32_t prompt, drafts;   /* the last tokens are drafts: how many of them stay is told later */
    int32_t pictures, unused; /* 1: its sequence has some, so that places of its tokens follow */
} mo_wire_slice;

/* An adapter that a slice's tokens have; those of a slice follow each other, in the order in which they add. */
typedef struct mo_wire_use {
    int32_t slice, adapter; /* its number among those that all ranks have */
    float scale;
} mo_wire_use;

/* The answer to a head. */
typedef struct mo_wire_result {
    int32_t status;
    int32_t rank;       /* whose error it is */
    int32_t forget;     /* what it had of the states is lost */
    int32_t draft_rows; /* to a share: the most rows of slices with drafts in a step */
    int64_t rows;       /* STEP: that follow; SAVE: bytes; to a share: what its adapters are, as a number */
    int64_t work_ns;    /* STEP: that ranks have computed */
    char detail[MO_WIRE_TEXT]; /* of the error */
} mo_wire_result;

/* Who a rank is, and what it has. */
typedef struct mo_wire_hello {
    char magic[8]; /* "MORAINE" */
    uint32_t order, protocol;
    int32_t numerics, status;
    char version[32], host[64];
    uint64_t fingerprint, file_bytes;
    int32_t layers, local_ranks;
    int32_t devices, unused; /* a rank has one */
    int64_t ram_bytes, vram_bytes;
    double ram_bytes_s, vram_bytes_s, disk_bytes_s;
    char detail[MO_WIRE_TEXT]; /* where status is not MO_OK */
    char reserved[320];        /* its size never changes: a rank of another version is to be understood */
} mo_wire_hello;

/* What a rank is to have of a model. count 0: nothing, the model is not opened. */
typedef struct mo_wire_share {
    int32_t first, count, kv, sessions;
    int32_t first_expert, expert_count; /* these alone, of all layers; 0: whole layers */
    int64_t context, batch, positions, kept_bytes;
    int32_t drafts, speculate; /* of a session in a step at most, 0: none; mo_speculate of rank 0 */
} mo_wire_share;

/* Ranks may be of different architectures: no compiler puts anything between these fields. */
_Static_assert(sizeof(mo_wire_head) == 64, "the layout of a message");
_Static_assert(sizeof(mo_wire_order) == 32, "the layout of a message");
_Static_assert(sizeof(mo_wire_slice) == 48, "the layout of a message");
_Static_assert(sizeof(mo_row_place) == 32, "the layout of a message");
_Static_assert(sizeof(mo_wire_use) == 12, "the layout of a message");
_Static_assert(sizeof(mo_wire_result) == 32 + MO_WIRE_TEXT, "the layout of a message");
_Static_assert(sizeof(mo_wire_hello) == 1024, "the layout of a message");
_Static_assert(sizeof(mo_wire_share) == 64, "the layout of a message");

#endif
