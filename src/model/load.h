/* Load: a model file in memory, ready for computing. Owns the description and the bytes. */
#ifndef MO_MODEL_LOAD_H
#define MO_MODEL_LOAD_H

#include "base/pool.h"
#include "model/family.h"

typedef struct mo_checkpoint mo_checkpoint;

/* Consecutive layers of a model. */
typedef struct mo_layer_range {
    int first, count; /* count 0: all from `first` on */
} mo_layer_range;

typedef struct mo_load_options {
    /* Map the file instead of reading it: it starts at once and reads while computing. MXFP4 tensors are
     * still read once, to check their exponents. If a mapped file changes, steps fail:
     * mo_checkpoint_check(). */
    bool map;
    /* rows per group for matrices that are loaded; 0: keep the file's layout. A mapped file keeps its
     * layout */
    int interleave;
    /* Parts that are not loaded: their views have no data, and mo_checkpoint_homes() gives their file
     * positions. */
    bool leave_experts;
    bool leave_table; /* the embedding, unless it is also the output matrix */
    /* [layers] whose core stays on disk, if it is stored as read; routers and matrices with gathered rows are
     * always loaded. NULL: none */
    const bool *leave_layer;
    /* positions of a session, which select factors for short or long contexts; 0: short */
    int64_t context;
    mo_layer_range range;    /* only these layers are here; the embedding and the output with the first */
    mo_expert_range experts; /* only these routed experts are here */
    bool head;               /* load the file's MTP head instead of the model */
    bool head_used;          /* of the model: do not report that its head is not loaded with it */
    /* Load nothing: for planning. Vectors of the file are not NULL but must not be read; matrices say how
     * their rows would be interleaved. */
    bool describe;
    mo_pool *pool; /* reads and rearranges on all threads; not kept. NULL: on the calling thread */
    /* Called on the calling thread with bytes done and total; returning false cancels (MO_ECANCELLED). It
     * must not use the pool. NULL: none. */
    mo_progress_fn progress;
    void *user;
} mo_load_options;

/* Opens, describes and loads. Every failure (a missing or misshapen tensor, an unknown architecture, a short
 * file, out of memory) names its cause and leaves nothing behind. */
mo_status mo_checkpoint_load(const char *path, const mo_load_options *options, mo_checkpoint **out,
                             mo_error *err);
void mo_checkpoint_free(mo_checkpoint *checkpoint); /* NULL is allowed */

/* Whether the file is mapped: then check after computing that the weights were intact. MO_EIO: the file has
 * become shorter, was written to or could not be read (base/mapped.h). MO_OK for other models. */
bool mo_checkpoint_mapped(const mo_checkpoint *checkpoint);
mo_status mo_checkpoint_check(const mo_checkpoint *checkpoint, mo_error *err);

/* For a head, before computing with it (mo_head_borrow()); the model must outlive it. For a draft model:
 * fails if it cannot draft for the model, and borrows nothing. */
mo_status mo_checkpoint_borrow(mo_checkpoint *head, const mo_checkpoint *model, mo_error *err);

const mo_gguf *mo_checkpoint_gguf(const mo_checkpoint *checkpoint);
const mo_model_spec *mo_checkpoint_spec(const mo_checkpoint *checkpoint);
const char *mo_checkpoint_path(const mo_checkpoint *checkpoint);

/* The tensor of each matrix and vector of the description; owned by the checkpoint. */
const mo_binding *mo_checkpoint_bindings(const mo_checkpoint *checkpoint, size_t *count);

/* A matrix that was left on disk. */
typedef struct mo_home {
    mo_weights *matrix;    /* its view in the spec */
    int32_t layer, expert; /* expert -1: the layer's core; layer -1: the embedding */
    int part;              /* index of the file */
    int64_t offset, bytes;
} mo_home;

/* Experts by layer and number (gate, up, down), then the layers' cores, then the embedding; the matrices of
 * an expert are consecutive. Owned by the checkpoint. */
const mo_home *mo_checkpoint_homes(const mo_checkpoint *checkpoint, size_t *count);

/* Bytes of weights in memory, by place, including those of a mapped file. A tied output counts once. */
typedef struct mo_checkpoint_bytes {
    uint64_t core, experts, table, vectors;
} mo_checkpoint_bytes;
mo_checkpoint_bytes mo_checkpoint_resident(const mo_checkpoint *checkpoint);

/* The memory of the loaded weights and its size; NULL: none. For a description: what would be loaded with
 * everything possible left on disk. */
uint8_t *mo_checkpoint_region(const mo_checkpoint *checkpoint, size_t *bytes);

/* Memory for a matrix of this many bytes. */
int64_t mo_load_bytes(int64_t bytes);

/* Bytes of weights that one token reads if tokens share nothing. */
uint64_t mo_checkpoint_bytes_per_token(const mo_checkpoint *checkpoint);

#endif
