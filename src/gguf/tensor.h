/* Tensor: the description of a tensor in a GGUF file. Also the type of metadata entries. */
#ifndef MO_GGUF_TENSOR_H
#define MO_GGUF_TENSOR_H

#include "moraine_tools.h"
#include "numeric/format.h"

typedef struct mo_gguf_entry mo_gguf_entry; /* one key and its value */

typedef struct mo_gguf_tensor {
    const char *name;
    const mo_format *format;
    int dims;        /* number of sizes in the file, 0 to 4 */
    int64_t size[4]; /* first is fastest; missing ones are 1 */
    int64_t values;
    int64_t bytes;
    int64_t offset; /* from the beginning of the file that contains it */
    int part;       /* the file that contains it */
} mo_gguf_tensor;

/* Maximum length of a tensor name, including the terminator. */
#define MO_GGUF_NAME 64

#endif
