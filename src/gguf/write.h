/* Write: creates a GGUF file (version 3). First keys and tensors are added. Then the layout fixes all
   offsets, so that several threads can write tensor data in any order.

   Functions that add never return an error: the first error is stored, and mo_gguf_writer_layout() reports
   it, also if the writer is NULL because it could not be created. One thread at a time until the layout is
   made; constant afterwards. */
#ifndef MO_GGUF_WRITE_H
#define MO_GGUF_WRITE_H

#include "gguf/read.h"

typedef struct mo_gguf_writer mo_gguf_writer;

/* alignment: 0 for the default of 32; any other power of two is written to the file. NULL when out of memory;
   the other functions accept it and the layout reports it. */
mo_gguf_writer *mo_gguf_writer_create(uint32_t alignment);
void mo_gguf_writer_destroy(mo_gguf_writer *w); /* NULL is allowed */

/* Keys and values, written in the order of the calls. Everything is copied. */
void mo_gguf_put_u8(mo_gguf_writer *w, const char *key, uint8_t value);
void mo_gguf_put_i8(mo_gguf_writer *w, const char *key, int8_t value);
void mo_gguf_put_u16(mo_gguf_writer *w, const char *key, uint16_t value);
void mo_gguf_put_i16(mo_gguf_writer *w, const char *key, int16_t value);
void mo_gguf_put_u32(mo_gguf_writer *w, const char *key, uint32_t value);
void mo_gguf_put_i32(mo_gguf_writer *w, const char *key, int32_t value);
void mo_gguf_put_u64(mo_gguf_writer *w, const char *key, uint64_t value);
void mo_gguf_put_i64(mo_gguf_writer *w, const char *key, int64_t value);
void mo_gguf_put_f32(mo_gguf_writer *w, const char *key, float value);
void mo_gguf_put_f64(mo_gguf_writer *w, const char *key, double value);
void mo_gguf_put_bool(mo_gguf_writer *w, const char *key, bool value);
void mo_gguf_put_string(mo_gguf_writer *w, const char *key, const char *value);
void mo_gguf_put_text(mo_gguf_writer *w, const char *key, mo_text value);
/* elements: count values of the type's C form (bool as uint8_t). Not for strings. */
void mo_gguf_put_array(mo_gguf_writer *w, const char *key, mo_value_type type, const void *elements,
                       uint64_t count);
void mo_gguf_put_texts(mo_gguf_writer *w, const char *key, const mo_text *elements, uint64_t count);

/* Copies an entry of an open model with its key. Any type. */
void mo_gguf_put_entry(mo_gguf_writer *w, const mo_gguf *g, const mo_gguf_entry *entry);
/* Copies the first `count` elements of an array, at most all; count must be 1 if the entry is not an
   array. */
void mo_gguf_put_first(mo_gguf_writer *w, const mo_gguf *g, const mo_gguf_entry *entry, uint64_t count);

/* Declares a tensor. Returns its number, or -1 after a failure. */
int64_t mo_gguf_put_tensor(mo_gguf_writer *w, const char *name, mo_type type, int dims, const int64_t *size);

/* Fixes the layout; nothing can be added afterwards. Reports the first error: a repeated name, a row that is
   not a multiple of its block, or memory. */
mo_status mo_gguf_writer_layout(mo_gguf_writer *w, mo_error *err);

/* ---- After the layout ---- */

/* The position of a tensor (offset in the file, bytes). NULL: no tensor with this number. */
const mo_gguf_tensor *mo_gguf_writer_tensor(const mo_gguf_writer *w, int64_t index);

typedef struct mo_gguf_layout {
    const uint8_t *header; /* belongs to the writer; padded; tensor data begin at header_bytes */
    size_t header_bytes;
    int64_t file_bytes; /* gaps between tensors are zero */
} mo_gguf_layout;

/* NULL before mo_gguf_writer_layout(). */
const mo_gguf_layout *mo_gguf_writer_file(const mo_gguf_writer *w);

#endif
