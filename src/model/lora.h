/* Lora: an adapter in a GGUF file: pairs of small matrices, A with rank rows and B with rank columns, for
 * matrices W of a model, whose product becomes W x + f B (A x). Loaded in addition to the model, whose
 * weights do not change. Owns its bytes. */
#ifndef MO_MODEL_LORA_H
#define MO_MODEL_LORA_H

#include "model/load.h"

/* Maximum rank of a file: larger ranks are full matrices. */
enum { MO_LORA_RANK_MAX = 4096 };

typedef struct mo_lora_pair {
    const mo_linear *linear; /* in the model's description; for an expert, in that expert */
    mo_linear a;           /* [rank] rows of linear->w.cols values, in a float format, in the file's layout */
    const float *b;        /* [rank][linear->w.rows]: by column */
    int32_t layer, expert; /* as in mo_home; layer -1: none */
    /* an expert's with its own tensors: those of other experts of the layer may be anywhere, or missing */
    bool alone;
} mo_lora_pair;

/* Bytes of a layer's pairs; of its experts' pairs. */
typedef struct mo_lora_share {
    int64_t bytes, expert_bytes;
} mo_lora_share;

typedef struct mo_lora {
    char *path, *name, *task, *prefix; /* name: general.name; task, prefix: for clients. NULL: none */
    float alpha;                       /* 0: factors are not divided by the rank */
    int64_t rank;                      /* the largest rank */
    int64_t tensors;                   /* number of model tensors it changes */
    bool experts;                      /* has pairs for matrices of experts */
    uint64_t identity;                 /* hash of its names, numbers and alpha; never 0 */
    /* [count]; pairs of a layer's experts are consecutive, and so are their A and their B */
    mo_lora_pair *pairs;
    int64_t count;
    int64_t bytes;         /* bytes in memory; for a part of a model, of that part */
    mo_lora_share *layers; /* [local layers] shares of bytes */
    uint8_t *region;
    size_t region_bytes;
    int32_t *table; /* hash table of pairs by the address of their matrix, -1: none */
    int64_t table_size;
} mo_lora;

/* Reads the file for that model. describe: reads only the sizes; the result has no pairs. MO_EINVAL: an
 * adapter of another architecture or other shapes. MO_EUNSUPPORTED: it changes a matrix that cannot be
 * changed here. On failure *out is empty. */
mo_status mo_lora_load(const mo_checkpoint *model, const char *path, bool describe, mo_lora *out,
                       mo_error *err);
/* Reads the whole file to get `identity` and `experts` for a whole model, and keeps nothing. Fails
 * likewise. */
mo_status mo_lora_identify(const mo_checkpoint *whole, const char *path, uint64_t *identity, bool *experts,
                           mo_error *err);
void mo_lora_drop(mo_lora *lora); /* a zeroed struct is allowed */

/* The pair for a matrix; NULL: none. */
const mo_lora_pair *mo_lora_find(const mo_lora *lora, const mo_linear *linear);

/* The factor f of a pair, with the user's scale. */
float mo_lora_factor(const mo_lora *lora, const mo_lora_pair *pair, float scale);

#endif
