/* Metadata: what the header of a model's file says, as JSON. */
#ifndef SRV_METADATA_H
#define SRV_METADATA_H

#include <jansson.h>

#include "moraine_tools.h"

/* The value: arrays as lists where `arrays`, otherwise as empty ones. Bytes that are no UTF-8 are replaced. */
json_t *srv_metadata_json(const mo_file *file, int64_t index, bool arrays);
/* A text; NULL: there is none. A new reference. */
json_t *srv_metadata_text(const mo_file *file, const char *key);
/* The text of the token whose number a key gives, as "tokenizer.ggml.bos_token_id"; "" where there is none. */
json_t *srv_metadata_token(const mo_file *file, const char *key);

#endif
