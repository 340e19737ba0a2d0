/* State: what a conversation leaves in a model's layers: keys and values (all positions, or a window's) in blocks of
 * 128 positions behind a table (numeric/kv.h), and the recurrent state of delta layers, which is one block. Sized
 * when it is made; nothing grows while decoding. States of one pool can share blocks: a shared block is copied
 * before it is written. */
#ifndef MO_ENGINE_STATE_H
#define MO_ENGINE_STATE_H

#include "engine/block_pool.h"
#include "model/parts.h"
#include "numeric/kernels.h"

typedef struct mo_state_layer {
    uint8_t **blocks; /* the layer's table */
    int64_t length;   /* of the table */
    /* Attention: */
    mo_kv_shape kv;
    bool circular; /* fewer positions than the context: older ones are overwritten */
    /* Delta rule: both in the layer's only block. */
    float *conv;  /* [taps - 1][channels], oldest first */
    float *delta; /* [v_heads][head][head] */
    int64_t conv_values, delta_values;
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
    bool recurrent;   /* some layer cannot be trimmed */
    bool sharing;     /* some of its blocks may have other holders */
    /* On a device, laid out alike: then `memory` is only for saving. NULL: it is in `memory`. */
    struct mo_gpu_session *gpu_session;
    const struct mo_accelerator *accelerator; /* whose gpu_session it is */
    bool cleared;                             /* the gpu_session's recurrent parts are still to be cleared */
    mo_state_layer *layers;
    uint8_t **tables;    /* of all layers */
    mo_block_pool *pool; /* the blocks' */
    bool owns_pool;
    uint8_t
        *memory; /* all blocks, layer after layer and in order, where the pool is its own; otherwise NULL */
    size_t bytes;
} mo_state;

/* Bytes that the blocks of a state take, and the entries of all its tables together. */
size_t mo_state_bytes(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch);
int64_t mo_state_entries(const mo_model_spec *spec, int64_t context, int64_t batch);

/* A pool for so many states that can share blocks; it must outlive them. Closed with mo_block_pool_close(). */
mo_status mo_state_pool(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch, int states,
                        mo_block_pool **out, mo_error *err);

/* With blocks of its own; or of such a pool, made with the same four numbers. */
mo_status mo_state_init(mo_state *s, const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch,
                        mo_error *err);
mo_status mo_state_init_in(mo_state *s, mo_block_pool *pool, const mo_model_spec *spec, mo_kv_type kv,
                           int64_t context, int64_t batch, mo_error *err);
void mo_state_drop(mo_state *s); /* a zeroed state is allowed */

/* Forgets everything. */
void mo_state_reset(mo_state *s);

/* Forgets positions from `length` on. False when that cannot be done (recurrent layers, or a window has already lost
 * what the shorter sequence would see): the state is then unchanged. */
bool mo_state_trim(mo_state *s, int64_t length);

/* Makes `to` hold what `from` holds, both of one pool and in RAM: keys and values by sharing their blocks, recurrent
 * layers by a copy. What `to` held is forgotten. */
void mo_state_share(mo_state *to, mo_state *from);

/* Copies what is shared of the blocks where positions begin .. end - 1 are about to be written. */
void mo_state_own(mo_state *s, int64_t begin, int64_t end);

/* One KV head of an attention layer, for the kernels. */
mo_kv_head mo_state_head(const mo_state *s, int layer, int kv_head);

/* The bytes that stand for the state at its length, for saving and forking: only what is filled. The
 * layout depends on spec, kv and length, not on context or batch. */
size_t mo_state_saved_bytes(const mo_state *s);
void mo_state_save(const mo_state *s, uint8_t *out);
/* MO_EINVAL when bytes does not fit `length` positions of this state. */
mo_status mo_state_restore(mo_state *s, const uint8_t *saved, size_t bytes, int64_t length, mo_error *err);

#endif
