/* Wire: the messages between ranks of one model. Rank 0 leads; each other rank has the layers after those of
   the previous one. A head goes from rank to rank; the reply comes from the last rank, or from every rank.
   Rank 0 does not wait for steps whose rows are not needed (pieces of prompts): up to mo_wire_ahead() are in
   flight, so that all ranks work at once. All ranks have the same byte order and version, which the first
   words check. */
#ifndef MO_CLUSTER_WIRE_H
#define MO_CLUSTER_WIRE_H

#include "engine/image.h"
#include "moraine.h"

enum { MO_WIRE_PROTOCOL = 9, MO_WIRE_ORDER = 0x01020304, MO_WIRE_TEXT = 512, MO_WIRE_SLICES = 256 };

/* Number of steps in flight for this many ranks: one in each, and one more that travels. */
static inline int mo_wire_ahead(int ranks)
{
    return ranks > 3 ? ranks : 3;
}

typedef enum mo_wire_kind {
    MO_WIRE_OPEN = 1, /* opens a model: all reply with a hello, get their share and reply with a result */
    /* Followed by orders, slices, adapters, tokens, places of picture rows, their features, and the
       stream. The last rank replies with a result and rows. */
    MO_WIRE_STEP,
    MO_WIRE_SAVE, /* followed by orders; all reply with a result and their part of the snapshot */
    /* followed by orders, and from rank 0 each rank's bytes, preceded by their number; all reply with a
       result */
    MO_WIRE_LOAD,
    MO_WIRE_CLOSE, /* closes the model */
    MO_WIRE_END,   /* ends the run; all reply with a result */
} mo_wire_kind;

typedef struct mo_wire_head {
    uint32_t order, kind; /* MO_WIRE_ORDER; mo_wire_kind */
    uint64_t serial;      /* increases by one with each head */
    /* STEP: of the previous ranks; after a failure a result replaces the stream */
    int32_t status;
    int32_t order_count, slice_count;
    int32_t use_count; /* STEP: number of adapters of slices */
    int64_t tokens;    /* of all slices */
    int64_t number;    /* SAVE: the snapshot; LOAD: the state; STEP: number of features of a picture row */
    int64_t length;    /* LOAD: positions */
    int64_t work_ns;   /* STEP: compute time of the previous ranks, without rank 0 */
} mo_wire_head;

/* A change of sessions or snapshots since the previous head. */
typedef enum mo_wire_change {
    MO_WIRE_STATE_OPENS = 1,
    MO_WIRE_STATE_CLOSES,
    MO_WIRE_SNAPSHOT_OPENS,
    MO_WIRE_SNAPSHOT_CLOSES,
    MO_WIRE_RESTORES,
    MO_WIRE_ACCEPTS, /* drafts of the last step; one for each slice with drafts, in order */
} mo_wire_change;

typedef struct mo_wire_order {
    uint32_t change;
    int32_t kv;
    int64_t state, snapshot;
    /* OPEN: context of the state; positions to restore or keep; ACCEPTS: number of accepted drafts */
    int64_t length;
} mo_wire_order;

typedef struct mo_wire_slice {
    int64_t state, position, count;
    int64_t wanted;           /* number of its last tokens whose rows go back to rank 0 */
    int32_t prompt, drafts;   /* number of drafts at its end; a later order says how many stay */
    int32_t pictures, unused; /* 1: the sequence has pictures, so places of its tokens follow */
} mo_wire_slice;

/* An adapter of a slice. The adapters of a slice follow each other, in the order in which they are added. */
typedef struct mo_wire_use {
    int32_t slice, adapter; /* number of the adapter, the same in all ranks */
    float scale;
} mo_wire_use;

/* The reply to a head. */
typedef struct mo_wire_result {
    int32_t status;
    int32_t rank;       /* the rank with the error */
    int32_t forget;     /* its part of the states is lost */
    int32_t draft_rows; /* reply to a share: maximum rows of slices with drafts in a step */
    /* STEP: number of rows that follow; SAVE: bytes; reply to a share: a hash of its adapters */
    int64_t rows;
    int64_t work_ns;           /* STEP: compute time of ranks */
    char detail[MO_WIRE_TEXT]; /* text of the error */
} mo_wire_result;

/* Identity and resources of a rank. */
typedef struct mo_wire_hello {
    char magic[8]; /* "MORAINE" */
    uint32_t order, protocol;
    int32_t numerics, status;
    char version[32], host[64];
    uint64_t fingerprint, file_bytes;
    int32_t layers, local_ranks;
    int32_t devices, unused; /* a rank uses one device */
    int64_t ram_bytes, vram_bytes;
    double ram_bytes_s, vram_bytes_s, disk_bytes_s;
    char detail[MO_WIRE_TEXT]; /* if status is not MO_OK */
    char reserved[320];        /* the size never changes, so that a rank of another version is recognized */
} mo_wire_hello;

/* A rank's part of a model. count 0: none, the model is not opened. */
typedef struct mo_wire_share {
    int32_t first, count, kv, sessions;
    int32_t first_expert, expert_count; /* only these experts, of all layers; 0: whole layers */
    int64_t context, batch, positions, kept_bytes;
    int32_t drafts, speculate; /* maximum drafts of a session in a step, 0: none; mo_speculate of rank 0 */
} mo_wire_share;

/* Ranks may have different architectures, so structs must have no padding. */
_Static_assert(sizeof(mo_wire_head) == 64, "the layout of a message");
_Static_assert(sizeof(mo_wire_order) == 32, "the layout of a message");
_Static_assert(sizeof(mo_wire_slice) == 48, "the layout of a message");
_Static_assert(sizeof(mo_row_place) == 32, "the layout of a message");
_Static_assert(sizeof(mo_wire_use) == 12, "the layout of a message");
_Static_assert(sizeof(mo_wire_result) == 32 + MO_WIRE_TEXT, "the layout of a message");
_Static_assert(sizeof(mo_wire_hello) == 1024, "the layout of a message");
_Static_assert(sizeof(mo_wire_share) == 64, "the layout of a message");

#endif
