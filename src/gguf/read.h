/* Read: a GGUF model (versions 2 and 3, split or not) opened for asking. Every count, length and offset
 * was checked against the file before it was used, so what is handed out here can be trusted: tensors
 * are inside their file, do not overlap, and have as many bytes as their type and sizes ask for.
 *
 * An opened model is constant: any thread may ask. Tensor data are not read here. */
#ifndef MO_GGUF_READ_H
#define MO_GGUF_READ_H

#include "gguf/tensor.h"
#include "moraine_tools.h"

typedef struct mo_gguf mo_gguf;

#define MO_GGUF_MAX_PARTS 1000

/* Opens path and, when it is the first part of a split model, the others next to it. On failure *out
 * is NULL and err names the file, the key or tensor, and the cure. Close with mo_gguf_close(). */
mo_status mo_gguf_open(const char *path, mo_gguf **out, mo_error *err);

/* The same for a file in memory, which is not kept; a part of a split model is refused. `name` is for
 * error messages. For tests and fuzzing. */
mo_status mo_gguf_open_memory(const uint8_t *bytes, size_t size, const char *name, mo_gguf **out,
                              mo_error *err);

void mo_gguf_close(mo_gguf *g); /* NULL is allowed */

/* ---- Files ---- */

int mo_gguf_parts(const mo_gguf *g);
const char *mo_gguf_part_path(const mo_gguf *g, int part); /* NULL when there is no such part */
int64_t mo_gguf_part_bytes(const mo_gguf *g, int part);    /* size of the whole file */
uint32_t mo_gguf_version(const mo_gguf *g);

/* Path of part `no` (from 0) of `count` with this prefix, as split models name them. MO_EINVAL when it
 * does not fit into size bytes. */
mo_status mo_gguf_part_name(const char *prefix, int no, int count, char *path, size_t size, mo_error *err);

/* ---- Tensors ---- */

int64_t mo_gguf_tensor_count(const mo_gguf *g);
const mo_gguf_tensor *mo_gguf_tensor_at(const mo_gguf *g,
                                        int64_t index); /* in file order; NULL past the end */
const mo_gguf_tensor *mo_gguf_tensor_find(const mo_gguf *g, const char *name); /* NULL when absent */

/* ---- Metadata ----
 * The typed getters accept any width of integer that holds the value, any real for a real (integers
 * too), and 0 and 1 for a flag. They fail with MO_ENOENT when the key is absent and MO_EFORMAT when its
 * value is of another kind; the _or forms give `otherwise` for an absent key. *out is untouched on
 * failure. Strings and texts belong to g. */

mo_status mo_gguf_u32_or(const mo_gguf *g, const char *key, uint32_t otherwise, uint32_t *out, mo_error *err);
mo_status mo_gguf_i64_or(const mo_gguf *g, const char *key, int64_t otherwise, int64_t *out, mo_error *err);
mo_status mo_gguf_f32(const mo_gguf *g, const char *key, float *out, mo_error *err);
mo_status mo_gguf_bool_or(const mo_gguf *g, const char *key, bool otherwise, bool *out, mo_error *err);
/* Terminated; a string with a NUL inside is refused here (mo_gguf_entry_value gives it whole). */
mo_status mo_gguf_string(const mo_gguf *g, const char *key, const char **out, mo_error *err);
mo_status mo_gguf_string_or(const mo_gguf *g, const char *key, const char *otherwise, const char **out,
                            mo_error *err);

/* For keys that hold one value for all layers or one per layer: the value for `index`. */
mo_status mo_gguf_i64_of(const mo_gguf *g, const char *key, uint64_t index, int64_t *out, mo_error *err);
mo_status mo_gguf_f32_of(const mo_gguf *g, const char *key, uint64_t index, float *out, mo_error *err);

/* The entry of an array of `type` elements: arrays of strings, of f32, ... For integers of any width
 * give MO_VALUE_I64. Elements by mo_gguf_entry_value(). */
mo_status mo_gguf_array(const mo_gguf *g, const char *key, mo_value_type type, const mo_gguf_entry **out,
                        mo_error *err);

/* Writes "{architecture}.suffix" into key (size bytes). MO_ENOENT when the file names no architecture. */
mo_status mo_gguf_arch_key(const mo_gguf *g, const char *suffix, char *key, size_t size, mo_error *err);

int64_t mo_gguf_entry_count(const mo_gguf *g);
const mo_gguf_entry *mo_gguf_entry_at(const mo_gguf *g, int64_t index); /* in file order; NULL past the end */
const mo_gguf_entry *mo_gguf_find(const mo_gguf *g, const char *key);   /* NULL when absent */
void mo_gguf_entry_info(const mo_gguf_entry *entry, mo_metadata_info *out);

/* Element `index` (0 for a value that is no array) without conversion. False past the end. */
bool mo_gguf_entry_value(const mo_gguf *g, const mo_gguf_entry *entry, uint64_t index, mo_value *out);

/* As mo_file_metadata_text() of moraine.h. */
size_t mo_gguf_entry_text(const mo_gguf *g, const mo_gguf_entry *entry, uint64_t max_elements, char *text,
                          size_t size);

#endif
