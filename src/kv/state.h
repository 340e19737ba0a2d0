/* State: what a conversation leaves in a model's layers: the KV cache (all positions, or a window's) in blocks of
 * 128 positions behind a table (numeric/kv.h), and the recurrent state of other layers, which is one block. Blocks are
 * taken from a pool as positions are written, and states and snapshots of a pool share them: a shared block is copied
 * before it is written.
 *
 * Compressed attention has two tables: that of the layer is a window, with what compressors read of its positions; another, behind those of
 * all layers, holds the keys of whole blocks of tokens, for every 128 positions. */
#ifndef MO_KV_STATE_H
#define MO_KV_STATE_H

#include "kv/blocks.h"
#include "model/parts.h"
#include "numeric/kernels.h"

/* What the cache of an attention layer holds. */
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
    uint8_t **blocks; /* the layer's table: where its blocks are in RAM; NULL: none yet */
    int64_t length;   /* of the table */
    bool recurrent;
    /* Attention: */
    mo_kv_shape kv;
    int64_t window; /* positions that are kept behind a token; 0: all */
    bool circular;  /* fewer positions than the context: older ones are overwritten */
    int compressed; /* the table of its compressed keys; 0: there is none */
    /* Compressed keys: of as many positions each; 0: the table is not theirs. kv is as that of the layer, with the indexer's keys. */
    int64_t ratio;
    /* Other mixers: both in the layer's only block, NULL before the first step. */
    float *conv;  /* [taps - 1][channels], oldest first */
    float *delta; /* [v_heads][head][head]; short convolution: none; Mamba: as in numeric/mamba.h */
    int64_t conv_values, delta_values;
    int64_t delta_at; /* bytes before it in the block */
} mo_state_layer;

typedef struct mo_state {
    const mo_model_spec *spec;
    mo_kv_type kv;
    int64_t context; /* positions it can hold */
    int64_t batch;   /* most tokens of one step */
    int64_t length;  /* positions it holds */
    int64_t
        written; /* one past the last position ever written since the last reset: what circular tables have lost */
    int64_t restored; /* the length it was restored with: a window has nothing older than it saw there */
    bool recurrent;   /* some layer, local or remote, cannot be trimmed */
    bool anew;        /* what it held was forgotten or replaced since the last step */
    mo_blocks here;   /* in RAM; with a device of those layers alone that the CPU computes */
    mo_blocks there;  /* on the device; its pool is NULL where the state is in RAM */
    struct mo_gpu_session *gpu_session;       /* its part on the device; NULL: it is in RAM */
    const struct mo_accelerator *accelerator; /* whose gpu_session it is */
    unsigned losses; /* of the engine when it began there: with more since then, what it holds is gone */
    mo_state_layer *layers; /* [count]: of all layers, then of compressed keys */
    int count;
    uint8_t **tables; /* of all of them */
    int64_t number;   /* by which other ranks know it (engine/remote_layers.h); 0: none does */
} mo_state;

/* What states of a model are made for. */
typedef struct mo_state_size {
    mo_kv_type kv;
    int64_t context, batch;
    int64_t sessions;   /* open at once; 0: 1 */
    int64_t positions;  /* that they hold together at most; 0: what they all can */
    int64_t kept_bytes; /* for snapshots; without this and positions, more is allocated for them */
} mo_state_size;

/* Bytes of all blocks; INT64_MAX: more than can be counted. The entries of the tables of one state together. */
int64_t mo_state_pool_bytes(const mo_model_spec *spec, const mo_state_size *size);
int64_t mo_state_entries(const mo_model_spec *spec, int64_t context, int64_t batch);
/* Those bytes of a layer, without the share of snapshots. */
int64_t mo_state_layer_share(const mo_model_spec *spec, const mo_state_size *size, int layer);
/* The same, of the layer's that may lie apart from the others: 0 unless it attends to all positions, and 0 for the first
 * layer, so that something is left. */
int64_t mo_state_layer_bytes(const mo_model_spec *spec, const mo_state_size *size, int layer);
/* Bytes of the KV cache that a token at the end of the context reads in the layer; 0: it does not attend. */
int64_t mo_state_read_bytes(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int layer);
/* Bytes of the blocks of one state. */
int64_t mo_state_bytes(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch);

/* A pool for them. planned: memory for all is taken with the first state; otherwise each brings its own.
 * Closed with mo_block_pool_close(). */
mo_status mo_state_pool(const mo_model_spec *spec, const mo_state_size *size, bool planned,
                        const mo_block_source *source, mo_block_pool **out, mo_error *err);

/* Its tables in such a pool, of the same model and format: for `here`, for `there` and for snapshots of `length`
 * positions (MO_KEEPS; otherwise length is not looked at). */
mo_status mo_state_blocks(const mo_state *s, mo_block_pool *pool, mo_block_holder who, int64_t length,
                          mo_blocks *out, mo_error *err);

/* With a pool of its own; or in a pool in RAM. */
mo_status mo_state_init(mo_state *s, const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch,
                        mo_error *err);
mo_status mo_state_init_in(mo_state *s, mo_block_pool *pool, const mo_model_spec *spec, mo_kv_type kv,
                           int64_t context, int64_t batch, mo_error *err);
void mo_state_drop(mo_state *s); /* a zeroed state is allowed */

/* Looks at blocks in RAM that a state with these numbers left, as they were at `length`: for saving alone. */
mo_status mo_state_view(mo_state *s, const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch,
                        const mo_blocks *blocks, int64_t length, mo_error *err);

/* Of blocks first .. end - 1 of the sequence it looks at those of `tail` instead. */
void mo_state_view_tail(mo_state *s, const mo_blocks *tail, int64_t first, int64_t end);

/* Where its newest blocks are. */
static inline mo_blocks *mo_state_place(mo_state *s)
{
    return s->gpu_session ? &s->there : &s->here;
}

/* Forgets everything. */
void mo_state_reset(mo_state *s);

/* A step has written `written` positions behind those it held, of which the first `kept` stay. */
void mo_state_extend(mo_state *s, int64_t kept, int64_t written);

/* Forgets positions from `length` on. False when that cannot be done (recurrent layers, or a window has already lost
 * what the shorter sequence would see): the state is then unchanged. */
bool mo_state_trim(mo_state *s, int64_t length);

/* What has to be known of a sequence whose blocks are shared or saved. */
typedef struct mo_state_mark {
    int64_t length, written, restored;
} mo_state_mark;
mo_state_mark mo_state_mark_of(const mo_state *s);
/* The fewest positions, but for none, to which such a state can be trimmed. */
int64_t mo_state_least(const mo_state *s, mo_state_mark mark);

/* Makes the state hold, in RAM, what these blocks of its pool have. */
void mo_state_adopt(mo_state *s, mo_blocks *from, mo_state_mark mark);
/* The same where something else has put it into mo_state_place(). same: the source had tables of the same length. */
void mo_state_take_mark(mo_state *s, mo_state_mark mark, bool same);

/* In RAM, before positions begin .. end - 1 are written: makes all blocks there unshared, a recurrent part that begins
 * is zero. only: [layers], of these; NULL: of all. MO_ENOMEM: no block is free, and the state as it was. */
mo_status mo_state_own(mo_state *s, int64_t begin, int64_t end, const bool *only, mo_error *err);

/* A layer's blocks of `there` are in RAM, and the CPU computes with them: afterwards the layer's table shows them. */
void mo_state_see_there(mo_state *s, int layer);

/* One KV head of an attention layer, for the kernels. */
mo_kv_head mo_state_head(const mo_state *s, int layer, int kv_head);

/* The keys of a layer's indexer from position u on, as far as its block goes. */
float *mo_state_index(const mo_state *s, int layer, int64_t u);

/* Compressed key n of a layer: its row, mo_kv_bytes() bytes, and the indexer's; those after it follow as far as a block of the table goes: for
 * mo_state_compressed_run() keys in all. */
uint8_t *mo_state_compressed(const mo_state *s, int layer, int64_t n);
float *mo_state_compressed_index(const mo_state *s, int layer, int64_t n);
int64_t mo_state_compressed_run(const mo_attention *a);

/* Bytes of a position of the KV cache in an attention layer, as they are saved; and those of positions begin .. end - 1 between
 * blocks in RAM and `rows`, to which out: they go. Head by head, then the indexer's; returns the bytes. */
int64_t mo_state_row_bytes(const mo_kv_shape *kv);
int64_t mo_state_move_rows(const mo_kv_shape *kv, uint8_t *const *blocks, int64_t length, int64_t begin,
                           int64_t end, uint8_t *rows, bool out);

/* The bytes that stand for the state at its length, for saving: only what is filled. The layout depends on spec, kv and
 * length, not on context or batch. Saving and restoring work in RAM. */
size_t mo_state_saved_bytes(const mo_state *s);
/* Of these bytes at `length`, those of layers first .. end - 1 of the whole model, of which some are remote: what each part of it
 * saves follows what the one before it does. */
int64_t mo_state_saved_part(const mo_state *s, int first, int end, int64_t length);
void mo_state_save(const mo_state *s, uint8_t *out);
/* Of what was saved at `all` positions the first `length`: fewer than all only where every layer has kept all of them, otherwise all are
 * taken. MO_EINVAL if bytes does not match this many positions of the state, which is then unchanged; MO_ENOMEM: it is empty. */
mo_status mo_state_restore(mo_state *s, const uint8_t *saved, size_t bytes, int64_t all, int64_t length,
                           mo_error *err);

#endif
