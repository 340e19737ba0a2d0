/* Trace: see trace.h. */
#include "server/requests/trace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moraine_server.h"

enum { TRACES = 32, TOKENS_MAX = 2048, BYTES_MAX = 4 << 20, ID = 64, OWNER = 256 };

struct srv_trace {
    /* Written when it begins: */
    char id[ID], owner[OWNER];
    char *model;
    int experts, used;
    int layers, rows; /* of the model; those with experts */
    int *row;         /* [layers] -1: it has none */
    int64_t most;     /* tokens */

    pthread_mutex_t mutex;
    /* Under it: */
    int holders;
    int64_t first; /* position of the first token; -1: none yet */
    int64_t count, capacity;
    int32_t *tokens; /* [count] */
    uint16_t *ids;   /* [count][rows][used] */
    bool cut, ended;
};

struct srv_traces {
    pthread_mutex_t mutex;
    srv_trace *list[TRACES];
    uint64_t begun;
};

/* ---- One answer's ---- */

static void free_trace(srv_trace *t)
{
    if (t) {
        pthread_mutex_destroy(&t->mutex);
        free(t->model);
        free(t->row);
        free(t->tokens);
        free(t->ids);
        free(t);
    }
}

static srv_trace *make(const char *id, const char *owner, const char *model_id, const mo_model *model)
{
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    const bool fits = strlen(id) < ID && strlen(owner) < OWNER;
    srv_trace *t = fits ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        return NULL;
    }
    pthread_mutex_init(&t->mutex, NULL);
    memcpy(t->id, id, strlen(id) + 1);
    memcpy(t->owner, owner, strlen(owner) + 1);
    t->experts = info.experts;
    t->used = info.experts_used;
    t->layers = info.layers;
    t->first = -1;
    t->model = strdup(model_id);
    t->row = calloc((size_t)info.layers + 1, sizeof *t->row);
    if (!t->model || !t->row) {
        free_trace(t);
        return NULL;
    }
    for (int i = 0; i < info.layers; i++) {
        t->row[i] = mo_model_layer_experts(model, i) > 0 ? t->rows++ : -1;
    }
    const int64_t each = (int64_t)sizeof *t->ids * t->rows * t->used;
    t->most = each > 0 && BYTES_MAX / each < TOKENS_MAX ? BYTES_MAX / each : TOKENS_MAX;
    return t;
}

static size_t cells(const srv_trace *t, int64_t tokens)
{
    return (size_t)(tokens * t->rows * t->used);
}

/* Makes space for this many tokens; false: it is full, or out of memory. */
static bool reach(srv_trace *t, int64_t count)
{
    if (count <= t->capacity) {
        return true;
    }
    const int64_t capacity = 2 * count < t->most ? 2 * count : t->most;
    if (count > t->most) {
        return false;
    }
    int32_t *tokens = realloc(t->tokens, sizeof *tokens * (size_t)capacity);
    if (!tokens) {
        return false;
    }
    t->tokens = tokens;
    uint16_t *ids = realloc(t->ids, sizeof *ids * (cells(t, capacity) + 1));
    if (!ids) {
        return false;
    }
    t->ids = ids;
    t->capacity = capacity;
    return true;
}

void srv_trace_note(void *trace, int layer, int64_t position, int32_t token, const int32_t *ids, int used)
{
    srv_trace *t = trace;
    pthread_mutex_lock(&t->mutex);
    t->first = t->first < 0 ? position : t->first;
    const int64_t at = position - t->first;
    if (layer < 0 || layer >= t->layers || t->row[layer] < 0 || used > t->used || at < 0 || at > t->count ||
        !reach(t, at + 1)) {
        t->cut = true;
    } else {
        if (at == t->count) {
            memset(t->ids + cells(t, at), 0xff, sizeof *t->ids * cells(t, 1));
            t->count++;
        }
        uint16_t *to = t->ids + cells(t, at) + (size_t)(t->row[layer] * t->used);
        t->tokens[at] = token;
        for (int i = 0; i < used; i++) {
            to[i] = (uint16_t)ids[i];
        }
    }
    pthread_mutex_unlock(&t->mutex);
}

void srv_trace_end(srv_trace *t)
{
    pthread_mutex_lock(&t->mutex);
    t->ended = true;
    pthread_mutex_unlock(&t->mutex);
}

const char *srv_trace_model(const srv_trace *t)
{
    return t->model;
}

void srv_trace_release(srv_trace *t)
{
    if (t) {
        pthread_mutex_lock(&t->mutex);
        const bool last = --t->holders == 0;
        pthread_mutex_unlock(&t->mutex);
        if (last) {
            free_trace(t);
        }
    }
}

/* ---- The last ones ---- */

srv_traces *srv_traces_open(void)
{
    srv_traces *s = calloc(1, sizeof *s);
    if (s) {
        pthread_mutex_init(&s->mutex, NULL);
    }
    return s;
}

void srv_traces_close(srv_traces *s)
{
    if (s) {
        for (int i = 0; i < TRACES; i++) {
            srv_trace_release(s->list[i]);
        }
        pthread_mutex_destroy(&s->mutex);
        free(s);
    }
}

srv_trace *srv_traces_begin(srv_traces *s, const char *id, const char *owner, const char *model_id,
                            const mo_model *model)
{
    srv_trace *t = make(id, owner, model_id, model);
    if (t) {
        t->holders = 2;
        pthread_mutex_lock(&s->mutex);
        srv_trace **entry = &s->list[s->begun++ % TRACES];
        srv_trace *old = *entry;
        *entry = t;
        pthread_mutex_unlock(&s->mutex);
        srv_trace_release(old);
    }
    return t;
}

srv_trace *srv_traces_find(srv_traces *s, const char *id, const char *owner)
{
    srv_trace *found = NULL;
    pthread_mutex_lock(&s->mutex);
    for (int i = 0; i < TRACES && !found; i++) {
        srv_trace *t = s->list[i];
        if (t && strcmp(t->id, id) == 0 && strcmp(t->owner, owner) == 0) {
            pthread_mutex_lock(&t->mutex);
            t->holders++;
            pthread_mutex_unlock(&t->mutex);
            found = t;
        }
    }
    pthread_mutex_unlock(&s->mutex);
    return found;
}

/* ---- JSON ---- */

/* What changes of a trace, as it was at one time. */
typedef struct moment {
    int64_t first, count;
    int32_t *tokens;
    uint16_t *ids;
    bool cut, ended;
} moment;

/* To be freed. The engine's thread notes under the mutex and must not wait for anything longer than this. */
static bool copy_moment(srv_trace *t, moment *out)
{
    pthread_mutex_lock(&t->mutex);
    const int64_t count = t->count; /* it only grows */
    pthread_mutex_unlock(&t->mutex);
    *out = (moment){.count = count,
                    .tokens = malloc(sizeof *out->tokens * (size_t)(count + 1)),
                    .ids = malloc(sizeof *out->ids * (cells(t, count) + 1))};
    if (!out->tokens || !out->ids) {
        return false;
    }
    pthread_mutex_lock(&t->mutex);
    out->first = t->first < 0 ? 0 : t->first;
    out->cut = t->cut;
    out->ended = t->ended && t->count == count;
    if (count > 0) {
        memcpy(out->tokens, t->tokens, sizeof *out->tokens * (size_t)count);
        memcpy(out->ids, t->ids, sizeof *out->ids * cells(t, count));
    }
    pthread_mutex_unlock(&t->mutex);
    return true;
}

static void put_tokens(const moment *m, const mo_model *model, srv_writer *w)
{
    for (int64_t i = 0; i < m->count; i++) {
        srv_puts(w, i ? ",{\"id\":" : "{\"id\":");
        srv_put_int(w, m->tokens[i]);
        if (model) {
            const mo_text text = mo_token_bytes(model, m->tokens[i]);
            srv_print(w, ",\"text\":%.*s", (int)text.length, text.data);
        }
        srv_put_literal(w, "}");
    }
}

/* [[expert,...],...] of a token: a list for each layer. */
static void put_route(const srv_trace *t, const uint16_t *ids, srv_writer *w)
{
    srv_put_literal(w, "[");
    for (int row = 0; row < t->rows; row++) {
        bool any = false;
        srv_puts(w, row ? ",[" : "[");
        for (int i = 0; i < t->used; i++) {
            const uint16_t id = ids[row * t->used + i];
            if (id != UINT16_MAX) {
                srv_puts(w, any ? "," : "");
                srv_put_int(w, id);
                any = true;
            }
        }
        srv_put_literal(w, "]");
    }
    srv_put_literal(w, "]");
}

static void put_trace(const srv_trace *t, const moment *m, const mo_model *model, srv_writer *w)
{
    srv_print(w, "{\"id\":%s,\"model\":%s,\"experts\":%d,\"experts_used\":%d,\"ended\":", t->id, t->model,
              t->experts, t->used);
    srv_put_bool(w, m->ended);
    srv_put_literal(w, ",\"truncated\":");
    srv_put_bool(w, m->cut);
    srv_print(w, ",\"position\":%ld,\"layers\":[", m->first);
    for (int i = 0, first = 1; i < t->layers; i++) {
        if (t->row[i] >= 0) {
            srv_puts(w, first ? "" : ",");
            srv_put_int(w, i);
            first = 0;
        }
    }
    srv_put_literal(w, "],\"tokens\":[");
    put_tokens(m, model, w);
    srv_put_literal(w, "],\"routes\":[");
    for (int64_t i = 0; i < m->count; i++) {
        srv_puts(w, i ? "," : "");
        put_route(t, m->ids + cells(t, i), w);
    }
    srv_put_literal(w, "]}");
}

void srv_trace_write(srv_trace *t, const mo_model *model, srv_writer *w)
{
    moment m;
    if (copy_moment(t, &m)) {
        put_trace(t, &m, model, w);
    } else {
        w->failed = true;
    }
    free(m.tokens);
    free(m.ids);
}
