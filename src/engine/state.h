/* State: what a conversation leaves in a model's layers: keys and values (all positions, or a window's ring)
 * and the recurrent state of delta layers. Sized when it is made; nothing grows while decoding. */
#ifndef MO_ENGINE_STATE_H
#define MO_ENGINE_STATE_H

#include "model/parts.h"
#include "numeric/kernels.h"

typedef struct mo_state_layer {
    /* Attention: [kv_heads][capacity][bytes of a key or value]. */
    uint8_t *k, *v;
    int64_t k_bytes, v_bytes; /* of one position of one head */
    int64_t capacity;         /* positions held */
    bool ring;                /* position u lies at u mod capacity */
    /* Delta rule. */
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
    int64_t written; /* one past the last position ever written since the last reset: what rings have lost */
    bool recurrent;  /* some layer cannot be trimmed */
    /* On a device, laid out alike: then `memory` is only for saving. NULL: it is in `memory`. */
    struct mo_gpu_session *gpu_session;
    const struct mo_accelerator *accelerator; /* whose gpu_session it is */
    bool cleared;                             /* the gpu_session's recurrent parts are still to be cleared */
    mo_state_layer *layers;
    void *memory;
    size_t bytes;
} mo_state;

/* Bytes that mo_state_init() will take. */
size_t mo_state_bytes(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch);

mo_status mo_state_init(mo_state *s, const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch,
                        mo_error *err);
void mo_state_drop(mo_state *s); /* a zeroed state is allowed */

/* Forgets everything. */
void mo_state_reset(mo_state *s);

/* Forgets positions from `length` on. False when that cannot be done (recurrent layers, or a window's ring has
 * already lost what the shorter sequence would see): the state is then unchanged. */
bool mo_state_trim(mo_state *s, int64_t length);

/* One KV head of an attention layer, for the kernels. */
mo_kv_head mo_state_head(const mo_state *s, int layer, int kv_head);

/* Where position u of a KV head is written. */
uint8_t *mo_state_key(const mo_state *s, int layer, int kv_head, int64_t u);
uint8_t *mo_state_value(const mo_state *s, int layer, int kv_head, int64_t u);

/* The bytes that stand for the state at its length, for saving and forking: only what is filled. The
 * layout depends on spec, kv and length, not on context or batch. */
size_t mo_state_saved_bytes(const mo_state *s);
void mo_state_save(const mo_state *s, uint8_t *out);
/* MO_EINVAL when bytes does not fit `length` positions of this state. */
mo_status mo_state_restore(mo_state *s, const uint8_t *saved, size_t bytes, int64_t length, mo_error *err);

#endif
