/* Model JSON: a model as OpenAI, llama-server and Ollama describe it. */
#ifndef SRV_MODEL_JSON_H
#define SRV_MODEL_JSON_H

#include <jansson.h>

#include "moraine_tools.h"
#include "server/models/models.h"

/* With llama-server's meta and fields that other clients look for. */
json_t *srv_model_json_openai(srv_models *models, int index, const srv_model_report *r);
/* What llama-server calls so: completion, and multimodal where it reads pictures. */
json_t *srv_model_json_capabilities(const srv_model_report *r);
/* As in /api/tags. */
json_t *srv_model_json_ollama(const srv_model_report *r);
/* Ollama's "details". */
json_t *srv_model_json_details(const srv_model_report *r);

const char *srv_file_name(const char *path);

/* Metadata: the header of a model file as JSON. */

/* A value; arrays as lists if `arrays`, otherwise as empty lists. Invalid UTF-8 is replaced. */
json_t *srv_metadata_json(const mo_file *file, int64_t index, bool arrays);
/* A text; NULL: missing. A new reference. */
json_t *srv_metadata_text(const mo_file *file, const char *key);
/* The text of the token whose id is in a key such as "tokenizer.ggml.bos_token_id"; "" if missing. */
json_t *srv_metadata_token(const mo_file *file, const char *key);

/* The model requested by ?model=, or the first. */

/* Its index; negative: not found, and the request was answered. */
int srv_asked_index(srv_models *models, srv_request *q);

/* The model if it is loaded, referenced, with its index (or NULL); NULL: the request was answered. */
srv_model *srv_asked_model(srv_models *models, srv_request *q, int *index);

#endif
