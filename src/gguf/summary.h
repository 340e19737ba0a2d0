/* Summary: a model's size and the bytes that a token reads of it, computed from names, sizes and types. */
#ifndef MO_GGUF_SUMMARY_H
#define MO_GGUF_SUMMARY_H

#include "gguf/read.h"

/* What a tensor is counted as. */
typedef enum mo_tensor_role {
    MO_ROLE_OTHER, /* each token reads all of it */
    /* all experts of a layer, one after the other: a token reads only its chosen experts */
    MO_ROLE_EXPERTS,
    MO_ROLE_EXPERT,    /* one expert of the older layout */
    MO_ROLE_OUTPUT,    /* the output matrix */
    MO_ROLE_EMBEDDING, /* a token reads one row */
    MO_ROLE_UNUSED,    /* never read while decoding */
} mo_tensor_role;

/* The role of a tensor by its name; *layer is -1 outside layers. layers > 0: layers from this number on
   predict further tokens and are not used. */
mo_tensor_role mo_tensor_role_of(const char *name, int layers, int *layer);

/* Fills *out and formats [MO_TYPE_LIMIT], which *out points to; strings belong to g. MO_EFORMAT if metadata
   and tensors contradict each other. */
mo_status mo_gguf_summarize(const mo_gguf *g, mo_file_info *out, mo_file_format *formats, mo_error *err);

#endif
