/* Bind: from the names of a clip file's tensors to the parts of an encoder: shapes and types are checked, and bytes are read
 * into one region. It runs twice: first without a region, to learn how large it has to be. */
#ifndef MO_VISION_BIND_H
#define MO_VISION_BIND_H

#include "base/arena.h"
#include "base/input.h"
#include "gguf/read.h"
#include "vision/spec.h"

typedef struct mo_vision_binder {
    const mo_gguf *gguf;
    const mo_input *input; /* NULL: nothing is read */
    uint8_t *region;       /* NULL: likewise */
    int64_t used;          /* bytes of the region so far */
    mo_error *err;
    mo_status status; /* the first failure; later calls do nothing */
} mo_vision_binder;

/* Describes the encoder; the layers are in the arena. */
mo_status mo_vision_bind(mo_vision_binder *b, mo_arena *arena, mo_vision_spec *out);

#endif
