/* Like: the shape of a model by its header: metadata and tensors with their roles, for a file of the same
   shape with random weights. One thread; the model outlives it. */
#ifndef MO_SYNTH_LIKE_H
#define MO_SYNTH_LIKE_H

#include "gguf/read.h"
#include "synth/shapes.h"

typedef struct mo_like {
    const mo_gguf *g;
    /* what random values depend on: architecture, layers, width, experts */
    mo_shape shape;
} mo_like;

/* Fails if the header has no architecture or no layers, or a tensor with more than three dimensions. */
mo_status mo_like_read(const mo_gguf *g, const char *name, mo_like *out, mo_error *err);

/* Writes the tensors of the first `layers` layers and their formats, in file order (at most capacity; out and
   types may be NULL if that is 0). Returns the total number. */
int64_t mo_like_tensors(const mo_like *like, int layers, mo_shape_tensor *out, mo_type *types,
                        int64_t capacity);

/* Adds the metadata of a model with this many layers to w, including the tokenizer. */
void mo_like_keys(const mo_like *like, int layers, mo_gguf_writer *w);

#endif
