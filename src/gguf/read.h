/* Read: an open GGUF model (versions 2 and 3, split or not). All counts, lengths and offsets are checked
   against the file, so callers can trust them: tensors are inside their file, do not overlap, and have the
   number of bytes that type and sizes require.

   An open model is constant: any thread may read it. Tensor data are not read here. */
#ifndef MO_GGUF_READ_H
#define MO_GGUF_READ_H

#include "gguf/tensor.h"
#include "moraine_tools.h"

typedef struct mo_gguf mo_gguf;

#define MO_GGUF_MAX_PARTS 1000

/* Opens path and, if it is the first part of a split model, the other parts next to it. On failure *out is
   NULL and err names the file, the key or tensor, and what to do. Close with mo_gguf_close(). */
mo_status mo_gguf_open(const char *path, mo_gguf **out, mo_error *err);

/* The same for a file in memory, which is not used after the call. Parts of split models are refused. `name`
   is for error messages. For tests and fuzzing. */
mo_status mo_gguf_open_memory(const uint8_t *bytes, size_t size, const char *name, mo_gguf **out,
                              mo_error *err);

void mo_gguf_close(mo_gguf *g); /* NULL is allowed */

/* ---- Files ---- */

int mo_gguf_parts(const mo_gguf *g);
const char *mo_gguf_part_path(const mo_gguf *g, int part); /* NULL if there is no such part */
int64_t mo_gguf_part_bytes(const mo_gguf *g, int part);    /* size of the whole file */
uint32_t mo_gguf_version(const mo_gguf *g);

/* The path of part `no` (from 0) of `count` with this prefix. MO_EINVAL if it does not fit size bytes. */
mo_status mo_gguf_part_name(const char *prefix, int no, int count, char *path, size_t size, mo_error *err);

/* ---- Tensors ---- */

int64_t mo_gguf_tensor_count(const mo_gguf *g);
const mo_gguf_tensor *mo_gguf_tensor_at(const mo_gguf *g,
                                        int64_t index); /* in file order; NULL past the end */
const mo_gguf_tensor *mo_gguf_tensor_find(const mo_gguf *g, const char *name); /* NULL when absent */

/* ---- Metadata ----

   Typed getters accept any integer type that holds the value, integers for reals, and 0 and 1 for flags. They
   fail with MO_ENOENT if the key is missing and with MO_EFORMAT if its value has another type; the _or
   functions return `otherwise` for a missing key. On failure *out is unchanged. Strings and texts belong to
   g. */

mo_status mo_gguf_u32_or(const mo_gguf *g, const char *key, uint32_t otherwise, uint32_t *out, mo_error *err);
mo_status mo_gguf_i64_or(const mo_gguf *g, const char *key, int64_t otherwise, int64_t *out, mo_error *err);
mo_status mo_gguf_f32(const mo_gguf *g, const char *key, float *out, mo_error *err);
mo_status mo_gguf_bool_or(const mo_gguf *g, const char *key, bool otherwise, bool *out, mo_error *err);
/* Terminated. A string that contains a NUL is refused (mo_gguf_entry_value() returns it). */
mo_status mo_gguf_string(const mo_gguf *g, const char *key, const char **out, mo_error *err);
mo_status mo_gguf_string_or(const mo_gguf *g, const char *key, const char *otherwise, const char **out,
                            mo_error *err);

/* For keys with one value for all layers or one for each: the value for `index`. */
mo_status mo_gguf_i64_of(const mo_gguf *g, const char *key, uint64_t index, int64_t *out, mo_error *err);
mo_status mo_gguf_f32_of(const mo_gguf *g, const char *key, uint64_t index, float *out, mo_error *err);

/* An array with elements of `type`: strings, f32, ... MO_VALUE_I64 stands for integers of any width. Read
   elements with mo_gguf_entry_value(). */
mo_status mo_gguf_array(const mo_gguf *g, const char *key, mo_value_type type, const mo_gguf_entry **out,
                        mo_error *err);

/* Writes "{architecture}.suffix" into key (size bytes). MO_ENOENT if the file has no architecture. */
mo_status mo_gguf_arch_key(const mo_gguf *g, const char *suffix, char *key, size_t size, mo_error *err);

int64_t mo_gguf_entry_count(const mo_gguf *g);
const mo_gguf_entry *mo_gguf_entry_at(const mo_gguf *g, int64_t index); /* in file order; NULL past the end */
const mo_gguf_entry *mo_gguf_find(const mo_gguf *g, const char *key);   /* NULL when absent */
void mo_gguf_entry_info(const mo_gguf_entry *entry, mo_metadata_info *out);

/* Element `index` (0 for a value that is not an array) without conversion. False past the end. */
bool mo_gguf_entry_value(const mo_gguf *g, const mo_gguf_entry *entry, uint64_t index, mo_value *out);

/* As mo_file_metadata_text() of moraine.h. */
size_t mo_gguf_entry_text(const mo_gguf *g, const mo_gguf_entry *entry, uint64_t max_elements, char *text,
                          size_t size);

#endif
