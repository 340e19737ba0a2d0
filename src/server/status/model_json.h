/* Model JSON: a model as OpenAI, llama-server and Ollama describe it. */
#ifndef SRV_MODEL_JSON_H
#define SRV_MODEL_JSON_H

#include <jansson.h>

#include "moraine_tools.h"
#include "server/models/models.h"

/* With llama-server's meta and what others are known to look for. */
json_t *srv_model_json_openai(srv_models *models, int index, const srv_model_report *r);
/* As /api/tags lists it. */
json_t *srv_model_json_ollama(const srv_model_report *r);
/* Its "details". */
json_t *srv_model_json_details(const srv_model_report *r);

const char *srv_file_name(const char *path);

/* Metadata: what the header of a model's file says, as JSON. */

/* The value: arrays as lists where `arrays`, otherwise as empty ones. Bytes that are no UTF-8 are replaced. */
json_t *srv_metadata_json(const mo_file *file, int64_t index, bool arrays);
/* A text; NULL: there is none. A new reference. */
json_t *srv_metadata_text(const mo_file *file, const char *key);
/* The text of the token whose number a key gives, as "tokenizer.ggml.bos_token_id"; "" where there is none. */
json_t *srv_metadata_token(const mo_file *file, const char *key);

/* The model that a request asks about by ?model=, or the first. */

/* Its index; negative after answering that there is none. */
int srv_asked_index(srv_models *models, srv_request *q);

/* The model itself if it is loaded, held, and its index (or NULL); NULL after answering. */
srv_model *srv_asked_model(srv_models *models, srv_request *q, int *index);

#endif
