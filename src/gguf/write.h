/* Write: making a GGUF file (version 3). Keys and tensors are collected first; the layout then fixes every
 * offset, so that tensor data can be written by several threads in any order.
 *
 * The collecting functions never fail at once: the first thing that goes wrong is kept and reported by
 * mo_gguf_writer_layout(); a writer that could not be created (NULL) is such a failure too. One thread
 * at a time until the layout is made; constant afterwards. */
#ifndef MO_GGUF_WRITE_H
#define MO_GGUF_WRITE_H

#include "gguf/read.h"

typedef struct mo_gguf_writer mo_gguf_writer;

/* alignment: 0 for the usual 32; any other power of two is stored in the file. NULL when out of memory,
 * which the collecting functions take and the layout reports. */
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
/* elements: count values of the type's C form (bool as uint8_t); not for strings. */
void mo_gguf_put_array(mo_gguf_writer *w, const char *key, mo_value_type type, const void *elements,
                       uint64_t count);
void mo_gguf_put_texts(mo_gguf_writer *w, const char *key, const mo_text *elements, uint64_t count);

/* An entry of an opened model under its own key, of any type. */
void mo_gguf_put_entry(mo_gguf_writer *w, const mo_gguf *g, const mo_gguf_entry *entry);
/* Of an array its first `count` elements, at most as many as there are; count 1 of what is none. */
void mo_gguf_put_first(mo_gguf_writer *w, const mo_gguf *g, const mo_gguf_entry *entry, uint64_t count);

/* Declares a tensor and returns its number, or -1 after a failure. */
int64_t mo_gguf_put_tensor(mo_gguf_writer *w, const char *name, mo_type type, int dims, const int64_t *size);

/* Fixes the layout; nothing may be put afterwards. Fails with what went wrong while collecting: a
 * name twice, a row that is no multiple of its block, memory. */
mo_status mo_gguf_writer_layout(mo_gguf_writer *w, mo_error *err);

/* ---- After the layout ---- */

/* Where a tensor goes (offset from the beginning of the file, bytes); NULL when there are fewer. */
const mo_gguf_tensor *mo_gguf_writer_tensor(const mo_gguf_writer *w, int64_t index);

typedef struct mo_gguf_layout {
    const uint8_t *header; /* belongs to the writer; padded, tensor data follow at header_bytes */
    size_t header_bytes;
    int64_t file_bytes; /* what lies between tensors is zero */
} mo_gguf_layout;

/* NULL when there is no layout. */
const mo_gguf_layout *mo_gguf_writer_file(const mo_gguf_writer *w);

#endif
