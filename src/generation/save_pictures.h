/* Save pictures: the pictures of a saved generation, as its encoder reads them: sizes as JSON, and the pixels
 * at the end. Rows are computed again when needed. */
#ifndef MO_GENERATION_SAVE_PICTURES_H
#define MO_GENERATION_SAVE_PICTURES_H

#include <jansson.h>

#include "generation/generation.h"

/* JSON null: no pictures. NULL: out of memory. */
json_t *mo_saved_pictures_json(const mo_generation *g);
/* Bytes of the pixels of all pictures; and these pixels, picture by picture. */
size_t mo_saved_pictures_bytes(const mo_generation *g);
void mo_saved_pictures_write(const mo_generation *g, uint8_t *out);

/* Bytes of pixels that `pictures` describes. MO_EFORMAT: invalid, or more than `most`. */
mo_status mo_saved_pictures_size(const json_t *pictures, size_t most, size_t *bytes, mo_error *err);
/* Gives the pictures to the generation, which must have the same encoder. */
mo_status mo_saved_pictures_open(mo_generation *g, const json_t *pictures, const uint8_t *pixels,
                                 mo_error *err);

#endif
