/* Texts: endpoints that need a model's vocabulary and template, but no engine: tokens and text, rendered conversations, counts. */
#include <stdlib.h>
#include <string.h>

#include "server/dialects/dialects.h"

/* An answer with the pieces of a text takes this many times the memory of its tokens alone. */
enum { PIECES_COST = 4 };

/* Answers with what was written. */
static void answer(srv_generation *g, srv_writer *w)
{
    srv_reply_writer(g->request, 200, w);
    srv_writer_free(w);
    srv_generation_close(g);
}

/* ---- Tokens ---- */

static bool is_text(mo_text bytes)
{
    json_t *value = json_stringn(bytes.data, bytes.length); /* NULL for what is no UTF-8 */
    const bool good = value != NULL;
    json_decref(value);
    return good;
}

static void put_piece(srv_writer *w, mo_text bytes)
{
    if (is_text(bytes)) {
        srv_put_string(w, bytes.data, bytes.length);
        return;
    }
    srv_put_literal(w, "[");
    for (size_t i = 0; i < bytes.length; i++) {
        srv_puts(w, i > 0 ? "," : "");
        srv_put_int(w, (unsigned char)bytes.data[i]);
    }
    srv_put_literal(w, "]");
}

static void put_tokens(srv_writer *w, const mo_model *model, const srv_tokens *tokens, bool pieces)
{
    srv_put_literal(w, "{\"tokens\":[");
    for (size_t i = 0; i < tokens->count; i++) {
        srv_puts(w, i > 0 ? "," : "");
        if (!pieces) {
            srv_put_int(w, tokens->ids[i]);
            continue;
        }
        srv_print(w, "{\"id\":%d,\"piece\":", tokens->ids[i]);
        put_piece(w, mo_token_bytes(model, tokens->ids[i]));
        srv_put_literal(w, "}");
    }
    srv_put_literal(w, "]}");
}

static void tokenize(void *owner, srv_request *q)
{
    srv_generation *g = srv_generation_open(owner, q, SRV_DIALECT_COMPLETION, NULL);
    if (!g) {
        return;
    }
    const srv_field root = srv_field_root(g->root, &g->fault), content = srv_member(&root, "content");
    bool ends = false, names = true, pieces = false;
    mo_text text = {"", 0};
    srv_tokens tokens = {0};
    const bool good = srv_read_text(content, &text) &&
                      srv_read_bool(srv_member(&root, "add_special"), &ends) &&
                      srv_read_bool(srv_member(&root, "parse_special"), &names) &&
                      srv_read_bool(srv_member(&root, "with_pieces"), &pieces) &&
                      srv_request_hold_text(q, (pieces ? PIECES_COST : 1) * text.length, &g->fault) &&
                      srv_tokens_append_text(&tokens, &content, srv_model_mo(g->model_ref), text,
                                             (ends ? MO_TOKEN_ENDS : 0) | (names ? MO_TOKEN_NAMES : 0));
    if (good) {
        srv_writer w = {0};
        put_tokens(&w, srv_model_mo(g->model_ref), &tokens, pieces);
        answer(g, &w);
    } else {
        srv_generation_refuse(g);
    }
    free(tokens.ids);
}

static void detokenize(void *owner, srv_request *q)
{
    srv_generation *g = srv_generation_open(owner, q, SRV_DIALECT_COMPLETION, NULL);
    if (!g) {
        return;
    }
    const srv_field root = srv_field_root(g->root, &g->fault), list = srv_member(&root, "tokens");
    mo_model_info info;
    mo_model_describe(srv_model_mo(g->model_ref), &info, sizeof info);
    srv_writer text = {0};
    bool good = list.value ? srv_is_list(list) : srv_missing(&list);
    for (size_t i = 0; i < srv_count(&list) && good; i++) {
        const srv_field element = srv_element(&list, i);
        int64_t id = -1;
        good = element.value ? srv_read_int(element, 0, info.vocab - 1, &id)
                             : srv_wrong_type(&element, "a token");
        const mo_text bytes = mo_token_bytes(srv_model_mo(g->model_ref), (int32_t)id);
        srv_put(&text, bytes.data, good ? bytes.length : 0);
    }
    if (good) {
        srv_writer w = {0};
        srv_print(&w, "{\"content\":%.*s}", (int)text.length, text.data);
        w.failed = w.failed || text.failed;
        answer(g, &w);
    } else {
        srv_generation_refuse(g);
    }
    srv_writer_free(&text);
}

/* ---- Conversations ---- */

static void apply_template(void *owner, srv_request *q)
{
    srv_generation *g = srv_generation_open(owner, q, SRV_DIALECT_CHAT, NULL);
    srv_rendering r = {0};
    if (!g) {
        return;
    }
    if (srv_chat_read(g) && srv_generation_render(g, &r) && srv_request_hold_text(q, r.length, &g->fault)) {
        srv_writer w = {0};
        srv_print(&w, "{\"prompt\":%.*s}", (int)r.length, r.text);
        answer(g, &w);
    } else {
        srv_generation_refuse(g);
    }
    srv_rendering_free(&r);
}

/* How many tokens a request's prompt has; `before` is what is written before the number. g may be NULL. */
static void count(srv_generation *g, bool (*read)(srv_generation *g), const char *before)
{
    srv_rendering r = {0};
    if (!g) {
        return;
    }
    if (read(g) && srv_generation_render(g, &r)) {
        srv_writer w = {0};
        srv_puts(&w, before);
        srv_print(&w, "%ld}", (int64_t)r.tokens.count);
        answer(g, &w);
    } else {
        srv_generation_refuse(g);
    }
    srv_rendering_free(&r);
}

static void count_chat(void *owner, srv_request *q)
{
    count(srv_generation_open(owner, q, SRV_DIALECT_CHAT, NULL), srv_chat_read,
          "{\"object\":\"response.input_tokens\",\"input_tokens\":");
}

static void count_responses(void *owner, srv_request *q)
{
    const srv_response_generator *shared = owner;
    srv_generation *g = srv_generation_open(shared->generator, q, SRV_DIALECT_RESPONSES, NULL);
    if (g) {
        g->history.kept = shared->kept;
    }
    count(g, srv_responses_read, "{\"object\":\"response.input_tokens\",\"input_tokens\":");
}

static void count_messages(void *owner, srv_request *q)
{
    count(srv_generation_open(owner, q, SRV_DIALECT_ANTHROPIC, NULL), srv_messages_read,
          "{\"input_tokens\":");
}

/* ---- What these models cannot do ---- */

/* Models that generate text have no embeddings that mean anything: there is no pooling they were trained with. */
static void embeddings(void *owner, srv_request *q)
{
    (void)owner;
    srv_fault fault = {0};
    srv_fault_set(&fault, SRV_FAULT_NOT_SUPPORTED, NULL,
                  "this model generates text and was not trained for embeddings; use an embedding model");
    srv_reply_fault(q, &fault);
    srv_request_end(q);
}

/* ---- Tables ---- */

const srv_route srv_openai_routes[] = {
    {"POST", "[/v1]/chat/completions", srv_chat, 0},
    {"POST", "[/v1]/chat/completions/input_tokens", count_chat, 0},
    {"POST", "/v1/completions", srv_text, 0},
    {"POST", "[/v1]/embeddings", embeddings, SRV_QUICK},
    {NULL, NULL, NULL, 0},
};

const srv_route srv_response_routes[] = {
    {"POST", "[/v1]/responses", srv_responses, 0},
    {"POST", "[/v1]/responses/input_tokens", count_responses, 0},
    {NULL, NULL, NULL, 0},
};

const srv_route srv_anthropic_routes[] = {
    {"POST", "/v1/messages", srv_messages, 0},
    {"POST", "/v1/messages/count_tokens", count_messages, 0},
    {NULL, NULL, NULL, 0},
};

const srv_route srv_ollama_routes[] = {
    {"POST", "/api/generate", srv_ollama_generate, 0},
    {"POST", "/api/chat", srv_ollama_chat, 0},
    {"POST", "/api/embed", embeddings, SRV_QUICK},
    {"POST", "/api/embeddings", embeddings, SRV_QUICK},
    {NULL, NULL, NULL, 0},
};

const srv_route srv_llama_routes[] = {
    {"POST", "/completion", srv_completion, 0},
    {"POST", "/completions", srv_completion, 0},
    {"POST", "/embedding", embeddings, SRV_QUICK},
    {"POST", "/tokenize", tokenize, 0},
    {"POST", "/detokenize", detokenize, 0},
    {"POST", "/apply-template", apply_template, 0},
    {NULL, NULL, NULL, 0},
};
