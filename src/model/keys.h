/* Keys: the numbers common to all architectures, read from the metadata with defaults and validated, so that
 * families and the engine can rely on them. */
#ifndef MO_MODEL_KEYS_H
#define MO_MODEL_KEYS_H

#include "gguf/read.h"

typedef struct mo_keys {
    const mo_gguf *gguf;
    const char *architecture;
    int layers;     /* of the trunk: block_count minus the MTP layers */
    int mtp_layers; /* MTP layers, after the others in the file */
    int64_t width, context, vocab;
    int64_t ffn_width;   /* dense feed-forward; 0: absent, or per layer */
    int heads, kv_heads; /* of layer 0; of others by mo_keys_int(). kv_heads 0: the layer has another mixer */
    int64_t k_len, v_len;
    float eps;
    bool centered; /* eps is that of LayerNorm: the file has none for RMSNorm */
    int64_t n_rot;
    double rope_base;
    int experts, experts_used;
    int64_t expert_width, shared_width;
    int64_t window;
} mo_keys;

/* Strings belong to g. Errors name the file and the key. */
mo_status mo_keys_read(const mo_gguf *g, mo_keys *out, mo_error *err);

/* "{architecture}.SUFFIX" as an integer or real; `otherwise` if absent; outside [low, high]: an error that
 * names the key. index: the layer, for keys that may be arrays (0 for others). */
mo_status mo_keys_int(const mo_keys *k, const char *suffix, int64_t index, int64_t otherwise, int64_t low,
                      int64_t high, int64_t *out, mo_error *err);
mo_status mo_keys_real(const mo_keys *k, const char *suffix, double otherwise, double *out, mo_error *err);
mo_status mo_keys_real_of(const mo_keys *k, const char *suffix, int64_t index, double otherwise, double *out,
                          mo_error *err);

/* Whether this layer has a window. attention.sliding_window_pattern is a flag per layer, or a period whose
 * last layer (with full_first the first) sees everything. If the key is absent, `period` is used; a negative
 * period is then an error. */
mo_status mo_keys_windowed(const mo_keys *k, int layer, int64_t period, bool full_first, bool *out,
                           mo_error *err);

#endif
