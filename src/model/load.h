/* Load: a model file in memory, ready to be computed with. Owns the description and the bytes. */
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
    bool map;       /* map the file instead of reading it: starts at once, reads while computing. MXFP4
                       tensors are still read once, because their exponents must be checked first. A file
                       that changes while it is mapped fails the steps: mo_checkpoint_check() */
    int interleave; /* rows per group for matrices that are loaded once; 0: keep the file's layout. A mapped
                       file keeps its layout */
    /* What is not loaded: its views stay without data, and mo_checkpoint_homes() says where the bytes are. */
    bool leave_experts;
    bool leave_table;        /* the embedding, unless the output matrix is the same */
    const bool *leave_layer; /* [layers] whose core stays on disk, as far as it is read as it is; routers and
                                matrices whose rows are gathered are loaded all the same. NULL: none */
    int64_t
        context; /* positions of a session, which decide between factors for short and for long texts; 0: short */
    mo_layer_range range;    /* these layers alone are here; the embedding and the output with the first */
    mo_expert_range experts; /* of their routed experts these alone */
    bool head;               /* the file's MTP head instead of the model */
    bool head_used;          /* of the model: nobody needs to be told that its head is not loaded with it */
    bool describe; /* load nothing at all: for planning. Vectors that a file has are not NULL, and must not be
                         read; matrices say how their rows would be interleaved */
    mo_pool *pool; /* reads and rearranges on all threads; not kept. NULL: on the calling thread */
    /* Called with bytes done and in all, from the calling thread; returning false cancels (MO_ECANCELLED).
     * It must not use the pool. NULL: none. */
    mo_progress_fn progress;
    void *user;
} mo_load_options;

/* Opens, describes and loads. Any failure (a missing or misshapen tensor, an unknown architecture, a short
 * file, no memory) names its cause and leaves nothing behind. */
mo_status mo_checkpoint_load(const char *path, const mo_load_options *options, mo_checkpoint **out,
                             mo_error *err);
void mo_checkpoint_free(mo_checkpoint *checkpoint); /* NULL is allowed */

/* Is its file mapped? Then check after computing with the weights whether they were complete: MO_EIO when the file has
 * become shorter, was written to or could not be read (base/mapped.h). Of other models MO_OK. */
bool mo_checkpoint_mapped(const mo_checkpoint *checkpoint);
mo_status mo_checkpoint_check(const mo_checkpoint *checkpoint, mo_error *err);

/* Of a head: before it is computed with (mo_head_borrow()). The model outlives it. Of a draft model: fails where it cannot guess for the
 * model, and borrows nothing. */
mo_status mo_checkpoint_borrow(mo_checkpoint *head, const mo_checkpoint *model, mo_error *err);

const mo_gguf *mo_checkpoint_gguf(const mo_checkpoint *checkpoint);
const mo_model_spec *mo_checkpoint_spec(const mo_checkpoint *checkpoint);
const char *mo_checkpoint_path(const mo_checkpoint *checkpoint);

/* Which tensor each matrix and vector of the description came from; the checkpoint's. */
const mo_binding *mo_checkpoint_bindings(const mo_checkpoint *checkpoint, size_t *count);

/* One matrix that was left on disk. */
typedef struct mo_home {
    mo_weights *matrix;    /* its view, in the spec */
    int32_t layer, expert; /* expert -1: of the layer's core; layer -1: the embedding */
    int part;              /* file */
    int64_t offset, bytes;
} mo_home;

/* Experts by layer and number (gate, up, down), then layers' cores, then the embedding; matrices of an expert
 * together. Belongs to the checkpoint. */
const mo_home *mo_checkpoint_homes(const mo_checkpoint *checkpoint, size_t *count);

/* Bytes held for weights, by place; those of a mapped file count as held. A tied output counts once. */
typedef struct mo_checkpoint_bytes {
    uint64_t core, experts, table, vectors;
} mo_checkpoint_bytes;
mo_checkpoint_bytes mo_checkpoint_resident(const mo_checkpoint *checkpoint);

/* The memory that holds what was loaded, and its bytes; NULL when there is none. Of a description: what would be loaded
 * if everything were left on disk that can be. */
uint8_t *mo_checkpoint_region(const mo_checkpoint *checkpoint, size_t *bytes);

/* Memory of a matrix of this many bytes. */
int64_t mo_load_bytes(int64_t bytes);

/* Bytes of weights that one token reads when nothing is shared between tokens. */
uint64_t mo_checkpoint_bytes_per_token(const mo_checkpoint *checkpoint);

#endif
