/* State: the memory of a conversation in a model's layers: the KV cache (of all positions, or of a window) in
 * blocks of 128 positions behind a table (numeric/kv.h), and the recurrent state of other layers, in one
 * block. Blocks are taken from a pool as positions are written. States and snapshots of a pool share blocks:
 * a shared block is copied before it is written.
 *
 * Compressed attention has two tables. The layer's own table is a window, with the compressor inputs of its
 * positions. Another table, after those of all layers, has the keys of whole blocks of tokens, for every 128
 * positions. */
#ifndef MO_KV_STATE_H
#define MO_KV_STATE_H

#include "kv/blocks.h"
#include "model/parts.h"
#include "numeric/kernels.h"

/* Shape of the cache of an attention layer. */
static inline mo_kv_shape mo_attention_cache(const mo_attention *a, mo_kv_type kv)
{
    return (mo_kv_shape){.type = kv,
                         .heads = a->kv_heads,
                         .k_len = (int)a->k_len,
                         .v_len = (int)a->v_len,
                         .index = (int)mo_attention_index(a),
                         .tail = (int)mo_attention_tail(a),
                         .shared = a->compressed.groups > 0};
}

typedef struct mo_state_layer {
    uint8_t **blocks; /* addresses of the layer's blocks in RAM; NULL: none yet */
    int64_t length;   /* entries of the table */
    bool recurrent;
    /* Attention: */
    mo_kv_shape kv;
    int64_t window; /* positions kept before a token; 0: all */
    bool circular;  /* fewer positions than the context: older ones are overwritten */
    int compressed; /* index of the table of its compressed keys; 0: none */
    /* Compressed keys: positions per key; 0: not such a table. kv is that of the layer, with the indexer's
     * keys. */
    int64_t ratio;
    /* Other mixers: both are in the layer's only block; NULL before the first step. */
    float *conv;  /* [taps - 1][channels], oldest first */
    float *delta; /* [v_heads][head][head]; Mamba: as in numeric/mamba.h; short convolution: none */
    int64_t conv_values, delta_values;
    int64_t delta_at; /* offset of delta in the block, bytes */
} mo_state_layer;

typedef struct mo_state {
    const mo_model_spec *spec;
    mo_kv_type kv;
    int64_t context; /* maximum positions */
    int64_t batch;   /* maximum tokens of a step */
    int64_t length;  /* positions held */
    /* one past the last position written since the last reset: older ones may be lost from circular tables */
    int64_t written;
    int64_t restored; /* length at the last restore: a window has nothing older than what it saw there */
    bool recurrent;   /* some layer, local or remote, cannot be trimmed */
    bool anew;        /* its contents were dropped or replaced since the last step */
    mo_blocks here;   /* in RAM; with a device only layers that the CPU computes */
    mo_blocks there;  /* on the device; its pool is NULL if the state is in RAM */
    struct mo_gpu_session *gpu_session;       /* its part on the device; NULL: none */
    const struct mo_accelerator *accelerator; /* owner of gpu_session */
    unsigned losses; /* of the engine when its contents began: with more losses since then, they are gone */
    mo_state_layer *layers; /* [count]: all layers, then compressed keys */
    int count;
    uint8_t **tables; /* the tables of all layers */
    int64_t number;   /* its number on other ranks (engine/remote_layers.h); 0: none */
} mo_state;

/* Dimensions of a model's states. */
typedef struct mo_state_size {
    mo_kv_type kv;
    int64_t context, batch;
    int64_t sessions;   /* maximum open sessions; 0: 1 */
    int64_t positions;  /* maximum positions of all together; 0: the sum of their contexts */
    int64_t kept_bytes; /* for snapshots; without this and positions, more is allocated for them */
} mo_state_size;

/* Bytes of all blocks, INT64_MAX: overflow; entries in all tables of one state. */
int64_t mo_state_pool_bytes(const mo_model_spec *spec, const mo_state_size *size);
int64_t mo_state_entries(const mo_model_spec *spec, int64_t context, int64_t batch);
/* Bytes of a layer's blocks, without the share of snapshots. */
int64_t mo_state_layer_share(const mo_model_spec *spec, const mo_state_size *size, int layer);
/* The same for a layer whose blocks may be in other memory: 0 unless it attends to all positions, and 0 for
 * the first layer, so that one remains. */
int64_t mo_state_layer_bytes(const mo_model_spec *spec, const mo_state_size *size, int layer);
/* Bytes of the KV cache that a token at the end of the context reads in the layer; 0: not an attention
 * layer. */
int64_t mo_state_read_bytes(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int layer);
/* Bytes of the blocks of one state. */
int64_t mo_state_bytes(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch);

/* Opens a pool for states. planned: memory for all is allocated with the first state; otherwise each state
 * brings its own. Close it with mo_block_pool_close(). */
mo_status mo_state_pool(const mo_model_spec *spec, const mo_state_size *size, bool planned,
                        const mo_block_source *source, mo_block_pool **out, mo_error *err);

/* Opens tables of the state in such a pool, of the same model and format: for `here`, for `there`, and for
 * snapshots of `length` positions (MO_KEEPS; otherwise length is ignored). */
mo_status mo_state_blocks(const mo_state *s, mo_block_pool *pool, mo_block_holder who, int64_t length,
                          mo_blocks *out, mo_error *err);

/* Opens a state with its own pool, or in a pool in RAM. */
mo_status mo_state_init(mo_state *s, const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch,
                        mo_error *err);
mo_status mo_state_init_in(mo_state *s, mo_block_pool *pool, const mo_model_spec *spec, mo_kv_type kv,
                           int64_t context, int64_t batch, mo_error *err);
void mo_state_drop(mo_state *s); /* a zeroed state is allowed */

/* Opens a read-only view of blocks in RAM that belong to a state with these dimensions at `length`: only for
 * saving. */
mo_status mo_state_view(mo_state *s, const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch,
                        const mo_blocks *blocks, int64_t length, mo_error *err);

/* Replaces blocks first .. end - 1 of the sequence in the view by those of `tail`. */
void mo_state_view_tail(mo_state *s, const mo_blocks *tail, int64_t first, int64_t end);

/* The location of its newest blocks. */
static inline mo_blocks *mo_state_place(mo_state *s)
{
    return s->gpu_session ? &s->there : &s->here;
}

/* Drops all contents. */
void mo_state_reset(mo_state *s);

/* A step has written `written` positions after the existing ones; the first `kept` of them stay. */
void mo_state_extend(mo_state *s, int64_t kept, int64_t written);

/* Drops positions from `length` on. False: impossible (recurrent layers, or a window has lost positions that
 * the shorter sequence sees), and the state is unchanged. */
bool mo_state_trim(mo_state *s, int64_t length);

/* What must be known about a sequence whose blocks are shared or saved. */
typedef struct mo_state_mark {
    int64_t length, written, restored;
} mo_state_mark;
mo_state_mark mo_state_mark_of(const mo_state *s);
/* The fewest positions, other than 0, to which such a state can be trimmed. */
int64_t mo_state_least(const mo_state *s, mo_state_mark mark);

/* Makes the state hold these blocks of its pool, in RAM. */
void mo_state_adopt(mo_state *s, mo_blocks *from, mo_state_mark mark);
/* The same after the caller has filled mo_state_place(). same: the source had tables of the same length. */
void mo_state_take_mark(mo_state *s, mo_state_mark mark, bool same);

/* In RAM, before positions begin .. end - 1 are written: makes all their blocks unshared; a new recurrent
 * part is zero. only: [layers] limits the layers; NULL: all. MO_ENOMEM: no free block, and the state is
 * unchanged. */
mo_status mo_state_own(mo_state *s, int64_t begin, int64_t end, const bool *only, mo_error *err);

/* A layer's blocks of `there` are in RAM, and the CPU computes with them: sets the layer's table to them. */
void mo_state_see_there(mo_state *s, int layer);

/* One KV head of an attention layer, for the kernels. */
mo_kv_head mo_state_head(const mo_state *s, int layer, int kv_head);

/* The keys of a layer's indexer from position u on, to the end of the block. */
float *mo_state_index(const mo_state *s, int layer, int64_t u);

/* Compressed key n of a layer: its row, mo_kv_bytes() bytes, and the indexer's key. The following keys are
 * contiguous to the end of the block: mo_state_compressed_run() keys in all. */
uint8_t *mo_state_compressed(const mo_state *s, int layer, int64_t n);
float *mo_state_compressed_index(const mo_state *s, int layer, int64_t n);
int64_t mo_state_compressed_run(const mo_attention *a);

/* Saved bytes of a position of the KV cache in an attention layer; and copies positions begin .. end - 1 from
 * blocks in RAM to `rows` (out) or back, head by head, then the indexer's keys. Returns the bytes. */
int64_t mo_state_row_bytes(const mo_kv_shape *kv);
int64_t mo_state_move_rows(const mo_kv_shape *kv, uint8_t *const *blocks, int64_t length, int64_t begin,
                           int64_t end, uint8_t *rows, bool out);

/* Bytes of the saved state at its length, without unused parts. The layout depends on spec, kv and length,
 * not on context or batch. Saving and restoring work in RAM. */
size_t mo_state_saved_bytes(const mo_state *s);
/* Bytes of layers first .. end - 1 of the whole model in a saved state at `length`, if some layers are
 * remote: the saved parts follow each other. */
int64_t mo_state_saved_part(const mo_state *s, int first, int end, int64_t length);
void mo_state_save(const mo_state *s, uint8_t *out);
/* Restores the first `length` of `all` saved positions; fewer than all only if every layer has all of them,
 * otherwise all are restored. MO_EINVAL: bytes does not match this many positions, and the state is
 * unchanged. MO_ENOMEM: the state is empty. */
mo_status mo_state_restore(mo_state *s, const uint8_t *saved, size_t bytes, int64_t all, int64_t length,
                           mo_error *err);

#endif
