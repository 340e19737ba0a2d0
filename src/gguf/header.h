/* Header: one GGUF file's header, parsed and checked. Others use read.h; hub/ reads headers of remote files. */
#ifndef MO_GGUF_HEADER_H
#define MO_GGUF_HEADER_H

#include "base/arena.h"
#include "gguf/tensor.h"

/* The source of a header's bytes. */
typedef struct mo_gguf_source {
    const char *name; /* for error messages */
    int64_t bytes;    /* size of the whole file */
    /* Reads exactly `bytes` from `offset`, inside the file. */
    mo_status (*read)(void *ctx, int64_t offset, void *to, size_t bytes, mo_error *err);
    void *ctx;
} mo_gguf_source;

struct mo_gguf_entry {
    const char *key;
    mo_value_type type; /* of the value, or of each element */
    bool is_array;
    uint64_t count;      /* 1 if the value is not an array */
    size_t at;           /* offset of the first value in `bytes` (for a string: of its length) */
    uint32_t *string_at; /* arrays of strings: offset of each string's length; otherwise NULL */
    const char *text;    /* for a single string: a terminated copy, owned by the arena */
};

typedef struct mo_gguf_header {
    uint32_t version;
    uint32_t alignment;
    int64_t data_start; /* offset of the tensor data in the file */
    int64_t file_bytes;

    uint8_t *bytes; /* the header as in the file; array elements are read from it */
    size_t size;

    mo_gguf_entry *entries;
    const mo_gguf_entry **by_key; /* sorted */
    int64_t entry_count;

    mo_gguf_tensor *tensors; /* part is 0; offsets are from the beginning of the file */
    int64_t tensor_count;

    mo_arena *arena; /* keys, names, texts */
} mo_gguf_header;

/* Reads and checks a header. On failure *out is empty and nothing is left to free. */
mo_status mo_gguf_header_parse(const mo_gguf_source *source, mo_gguf_header *out, mo_error *err);
void mo_gguf_header_free(mo_gguf_header *header);

/* The entry of a key, or NULL. */
const mo_gguf_entry *mo_gguf_header_find(const mo_gguf_header *header, const char *key);

/* Element `index` of an entry, which must be below its count. */
void mo_gguf_header_value(const mo_gguf_header *header, const mo_gguf_entry *entry, uint64_t index,
                          mo_value *out);

/* Bytes of one value of a type; 0 for strings. */
size_t mo_value_type_bytes(mo_value_type type);

/* The value as an integer. False if it is not one or does not fit. */
bool mo_value_integer(const mo_value *value, int64_t *out);

#endif
