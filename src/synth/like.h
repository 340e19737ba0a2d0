/* Like: what a model's header says of its shape, for a file of the same shape with random weights: its metadata, and its tensors with what
 * they are for. One thread; the model outlives it. */
#ifndef MO_SYNTH_LIKE_H
#define MO_SYNTH_LIKE_H

#include "gguf/read.h"
#include "synth/shapes.h"

typedef struct mo_like {
    const mo_gguf *g;
    mo_shape
        shape; /* what random values depend on: architecture, layers, width, experts; the rest is in the header */
} mo_like;

/* Fails where the header names no architecture or no layers, or has tensors of more than three sizes. */
mo_status mo_like_read(const mo_gguf *g, const char *name, mo_like *out, mo_error *err);

/* Writes the tensors of the first `layers` layers and their formats, in file order (at most capacity; out and types may be NULL when that is
 * 0). Returns how many there are. */
int64_t mo_like_tensors(const mo_like *like, int layers, mo_shape_tensor *out, mo_type *types,
                        int64_t capacity);

/* Puts the metadata of a model with this many layers into w, tokenizer included. */
void mo_like_keys(const mo_like *like, int layers, mo_gguf_writer *w);

#endif
