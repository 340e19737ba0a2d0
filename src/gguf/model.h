/* Model: the contents of an opened GGUF model. Private to the module; others use read.h. */
#ifndef MO_GGUF_MODEL_H
#define MO_GGUF_MODEL_H

#include "gguf/header.h"

typedef struct mo_gguf_part {
    char *path;
    mo_gguf_header header;
} mo_gguf_part;

struct mo_gguf {
    mo_gguf_part *parts; /* at least one; the first has the model's metadata */
    int part_count;

    mo_gguf_tensor *tensors; /* of all parts, in order; the headers of the parts own the names */
    const mo_gguf_tensor **by_name;
    int64_t tensor_count;
};

#endif
