/* Dialects: the tables of the generation endpoints, and what their files share. */
#ifndef SRV_DIALECTS_H
#define SRV_DIALECTS_H

#include "server/requests/generation.h"

extern const srv_route srv_openai_routes[], srv_anthropic_routes[], srv_ollama_routes[], srv_llama_routes[];
extern const srv_route srv_response_routes[]; /* kept_responses.c: /v1/responses/ID */

/* ---- OpenAI ---- */
void srv_chat(srv_server *server, srv_request *q);
void srv_text(srv_server *server, srv_request *q);
void srv_responses(srv_server *server, srv_request *q);
/* Read a request's fields into a generation, without rendering it. */
bool srv_chat_read(srv_generation *g);
bool srv_responses_read(srv_generation *g);
/* A stream that cannot go on. */
void srv_openai_fail(srv_generation *g, const srv_fault *fault, srv_writer *w);

/* ---- The others ---- */
void srv_messages(srv_server *server, srv_request *q);
bool srv_messages_read(srv_generation *g);
void srv_completion(srv_server *server, srv_request *q);
void srv_ollama_generate(srv_server *server, srv_request *q);
void srv_ollama_chat(srv_server *server, srv_request *q);

#endif
