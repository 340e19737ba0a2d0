/* Save pictures: those of a saved generation, as their encoder reads them: their sizes as JSON, and behind everything else their pixels. The rows are
 * made again where they are needed. */
#ifndef MO_GENERATION_SAVE_PICTURES_H
#define MO_GENERATION_SAVE_PICTURES_H

#include <jansson.h>

#include "generation/generation.h"

/* Null where there are none. NULL: out of memory. */
json_t *mo_saved_pictures_json(const mo_generation *g);
/* Of their pixels; and these, one after the other. */
size_t mo_saved_pictures_bytes(const mo_generation *g);
void mo_saved_pictures_write(const mo_generation *g, uint8_t *out);

/* How many bytes of pixels `pictures` names. MO_EFORMAT: none that can be, or more than `most`. */
mo_status mo_saved_pictures_size(const json_t *pictures, size_t most, size_t *bytes, mo_error *err);
/* The generation, which is for the same encoder, gets the pictures. */
mo_status mo_saved_pictures_open(mo_generation *g, const json_t *pictures, const uint8_t *pixels,
                                 mo_error *err);

#endif
