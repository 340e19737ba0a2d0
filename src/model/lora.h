/* Lora: an adapter in a GGUF file. It has pairs of small matrices, A of rank rows and B of rank columns, each for a matrix of a model, whose
 * product becomes W x + f B (A x). Loaded in addition to the model, whose weights are not changed; owns its bytes. */
#ifndef MO_MODEL_LORA_H
#define MO_MODEL_LORA_H

#include "model/load.h"

/* The most that a file may have: larger ranks are full matrices. */
enum { MO_LORA_RANK_MAX = 4096 };

typedef struct mo_lora_pair {
    const mo_linear *linear; /* of the model's description; that of an expert in its expert */
    mo_linear a;    /* [rank] rows of linear->w.cols values, floats of some format, in the file's layout */
    const float *b; /* [rank][linear->w.rows]: column after column */
    int32_t layer, expert; /* as in mo_home; layer -1: of none */
    bool alone; /* an expert's whose tensors are its own: others of its layer may be anywhere, or missing */
} mo_lora_pair;

/* Bytes of the pairs that belong to a layer; of these, to its experts. */
typedef struct mo_lora_share {
    int64_t bytes, expert_bytes;
} mo_lora_share;

typedef struct mo_lora {
    char *path, *name, *task, *prefix; /* name: general.name; task, prefix: for clients. None is NULL */
    float alpha;                       /* 0: factors are not divided by the rank */
    int64_t rank;                      /* the largest */
    int64_t tensors;                   /* of the model that it changes */
    bool experts;                      /* has pairs for matrices of experts */
    uint64_t identity;                 /* of its names, numbers and alpha; never 0 */
    mo_lora_pair
        *pairs; /* [count]; those of a layer's experts follow each other, as do their A and their B */
    int64_t count;
    int64_t bytes;         /* of what it holds in memory: of a part of a model, for that part */
    mo_lora_share *layers; /* [layers that are here] of it */
    uint8_t *region;
    size_t region_bytes;
    int32_t *table; /* pairs by the address of their matrix, -1: none */
    int64_t table_size;
} mo_lora;

/* Reads the file, for that model. describe: nothing of its numbers, only what they would take; such a one has no pairs. An adapter of another
 * architecture or other shapes is MO_EINVAL; one that changes what cannot be changed here, MO_EUNSUPPORTED. On failure *out holds nothing. */
mo_status mo_lora_load(const mo_checkpoint *model, const char *path, bool describe, mo_lora *out,
                       mo_error *err);
/* Reads all of it for what it is to a whole model, and keeps nothing: `identity`, and `experts`. Fails likewise. */
mo_status mo_lora_identify(const mo_checkpoint *whole, const char *path, uint64_t *identity, bool *experts,
                           mo_error *err);
void mo_lora_drop(mo_lora *lora); /* a zeroed one is allowed */

/* What it has for a matrix; NULL: nothing. */
const mo_lora_pair *mo_lora_find(const mo_lora *lora, const mo_linear *linear);

/* f of a pair, with the scale that the user gave. */
float mo_lora_factor(const mo_lora *lora, const mo_lora_pair *pair, float scale);

#endif
