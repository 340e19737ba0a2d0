/* Adapters that tests make: random pairs for tensors of a model, by name, as a GGUF file. The same bytes on every machine. */
#ifndef MO_TESTS_LORA_FILE_H
#define MO_TESTS_LORA_FILE_H

#include <math.h>

#include "gguf_file.h"
#include "numeric/half.h"
#include "random.h"

typedef struct lora_recipe {
    const char *const *parts; /* of names of tensors, ended by NULL: "attn_q.weight", ... */
    int64_t rank;
    float alpha; /* 0: the file has none */
    bool half;   /* F16, otherwise F32 */
    uint64_t seed;
    const char *architecture; /* NULL: the model's */
    float size;               /* of A's numbers; 0: as large as the model's weights are */
    int64_t experts;          /* of pairs for experts; 0: as many as the model has */
} lora_recipe;

static const char *const lora_attention[] = {"attn_q.",      "attn_k.",   "attn_v.",
                                             "attn_output.", "attn_qkv.", NULL};
static const char *const lora_experts[] = {"ffn_gate_exps.", "ffn_up_exps.", "ffn_down_exps.",
                                           "ffn_gate_up_exps.", NULL};
static const char *const lora_all[] = {"attn_q",    "attn_kv_a_mqa.", "attn_k.",  "attn_v.", "attn_output.",
                                       "ffn_gate",  "ffn_up",         "ffn_down", "ssm_in.", "ssm_out.",
                                       "attn_gate", "output.weight",  NULL};

static const char *const lora_beside_attention[] = {"attn_output.", "ffn_gate", "ffn_up", "ffn_down", NULL};

static inline bool lora_wants(const lora_recipe *r, const mo_gguf_tensor *t)
{
    bool wanted = false;
    for (const char *const *part = r->parts; *part; part++) {
        wanted |= strstr(t->name, *part) != NULL;
    }
    const size_t n = strlen(t->name);
    const bool matrix = t->size[1] > 1 && n > 7 && strcmp(t->name + n - 7, ".weight") == 0;
    return wanted && matrix && t->format->type != MO_I32 && !strstr(t->name, "norm");
}

static inline void *lora_numbers(const lora_recipe *r, int64_t count, float size, uint64_t *seed)
{
    const size_t each = r->half ? 2 : 4;
    uint8_t *data = malloc((size_t)count * each);
    for (int64_t i = 0; data && i < count; i++) {
        const float x = random_normal(seed) * size;
        const uint16_t h = mo_f32_to_f16(x);
        memcpy(data + (size_t)i * each, r->half ? (const void *)&h : (const void *)&x, each);
    }
    return data;
}

/* False when the model cannot be read or the file not written. */
static inline bool lora_file_make(const char *model, const char *path, const lora_recipe *r)
{
    mo_gguf *g = NULL;
    if (mo_gguf_open(model, &g, NULL) != MO_OK) {
        return false;
    }
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    const int64_t all = mo_gguf_tensor_count(g);
    void **data = calloc((size_t)(2 * all + 1), sizeof *data);
    int64_t count = 0;
    uint64_t seed = r->seed;
    const char *architecture = r->architecture;
    if (!architecture) {
        mo_gguf_string(g, "general.architecture", &architecture, NULL);
    }
    mo_gguf_put_string(w, "general.type", "adapter");
    mo_gguf_put_string(w, "general.architecture", architecture);
    mo_gguf_put_string(w, "general.name", "made for a test");
    mo_gguf_put_string(w, "adapter.type", "lora");
    if (r->alpha != 0.0f) {
        mo_gguf_put_f32(w, "adapter.lora.alpha", r->alpha);
    }
    for (int64_t i = 0; data && i < all; i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(g, i);
        char name[128];
        if (!lora_wants(r, t)) {
            continue;
        }
        const int64_t experts = t->size[2] > 1 && r->experts ? r->experts : t->size[2];
        const int64_t a[3] = {t->size[0], r->rank, experts}, b[3] = {r->rank, t->size[1], experts};
        const int dims = t->size[2] > 1 ? 3 : 2;
        const mo_type type = r->half ? MO_F16 : MO_F32;
        snprintf(name, sizeof name, "%s.lora_a", t->name);
        mo_gguf_put_tensor(w, name, type, dims, a);
        data[count++] = lora_numbers(r, a[0] * a[1] * a[2],
                                     r->size != 0.0f ? r->size : 0.5f / sqrtf((float)t->size[0]), &seed);
        snprintf(name, sizeof name, "%s.lora_b", t->name);
        mo_gguf_put_tensor(w, name, type, dims, b);
        data[count++] = lora_numbers(r, b[0] * b[1] * b[2], 0.5f, &seed);
    }
    const bool good = data && gguf_save(w, path, (const void *const *)data);
    for (int64_t i = 0; data && i < count; i++) {
        free(data[i]);
    }
    free(data);
    mo_gguf_writer_destroy(w);
    mo_gguf_close(g);
    return good;
}

#endif
