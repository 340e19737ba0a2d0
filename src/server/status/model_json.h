/* Model JSON: a model as OpenAI, llama-server and Ollama describe it. */
#ifndef SRV_MODEL_JSON_H
#define SRV_MODEL_JSON_H

#include <jansson.h>

#include "server/models/models.h"

/* With llama-server's meta and what others are known to look for. */
json_t *srv_model_json_openai(srv_models *models, int index, const srv_model_report *r);
/* As /api/tags lists it. */
json_t *srv_model_json_ollama(const srv_model_report *r);
/* Its "details". */
json_t *srv_model_json_details(const srv_model_report *r);

/* RFC 3339 with nanoseconds, as Go writes times; at least 40 bytes. */
const char *srv_time_text(int64_t seconds, int64_t nanoseconds, char *text, size_t size);
const char *srv_file_name(const char *path);

#endif
