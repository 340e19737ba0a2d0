/* Tensor: what a GGUF file says about one of its tensors; and the name of what it says besides. */
#ifndef MO_GGUF_TENSOR_H
#define MO_GGUF_TENSOR_H

#include "moraine_tools.h"
#include "numeric/format.h"

typedef struct mo_gguf_entry mo_gguf_entry; /* one key and its value */

typedef struct mo_gguf_tensor {
    const char *name;
    const mo_format *format;
    int dims;        /* how many sizes the file gives, 0 to 4 */
    int64_t size[4]; /* first is fastest; missing ones are 1 */
    int64_t values;
    int64_t bytes;
    int64_t offset; /* from the beginning of the file that holds it */
    int part;       /* which file holds it */
} mo_gguf_tensor;

/* Longest tensor name a file may have, terminator included. */
#define MO_GGUF_NAME 64

#endif
