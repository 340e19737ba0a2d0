#include "server/scheduler/calls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 4096 };              /* calls */
#define TOKENS_MAX ((size_t)16 << 20) /* of all sequences together */

typedef struct call {
    char *id; /* NULL: an empty place */
    int32_t *tokens;
    size_t count, prompt;
} call;

struct srv_calls {
    pthread_mutex_t lock;
    call entries[ENTRIES]; /* used in turn */
    size_t next, first;    /* counted from the beginning */
    size_t tokens;
};

srv_calls *srv_calls_open(void)
{
    srv_calls *c = calloc(1, sizeof *c);
    if (c) {
        pthread_mutex_init(&c->lock, NULL);
    }
    return c;
}

static void forget_first(srv_calls *c)
{
    call *oldest = &c->entries[c->first++ % ENTRIES];
    c->tokens -= oldest->count;
    free(oldest->id);
    free(oldest->tokens);
    *oldest = (call){0};
}

void srv_calls_close(srv_calls *calls)
{
    if (calls) {
        while (calls->first < calls->next) {
            forget_first(calls);
        }
        pthread_mutex_destroy(&calls->lock);
        free(calls);
    }
}

void srv_calls_add(srv_calls *c, const char *id, const int32_t *tokens, size_t count, size_t prompt)
{
    call new = {.id = strdup(id), .tokens = malloc(count * sizeof *tokens), .count = count, .prompt = prompt};
    if (!new.id || !new.tokens || count > TOKENS_MAX) {
        free(new.id);
        free(new.tokens);
        return;
    }
    memcpy(new.tokens, tokens, count * sizeof *tokens);
    pthread_mutex_lock(&c->lock);
    while (c->next > c->first && (c->next - c->first == ENTRIES || c->tokens + count > TOKENS_MAX)) {
        forget_first(c);
    }
    c->entries[c->next++ % ENTRIES] = new;
    c->tokens += count;
    pthread_mutex_unlock(&c->lock);
}

bool srv_calls_find(srv_calls *c, const char *id, int32_t **tokens, size_t *count, size_t *prompt)
{
    bool found = false;
    *tokens = NULL;
    pthread_mutex_lock(&c->lock);
    for (size_t i = c->next; i-- > c->first && !found;) { /* the newest of that name */
        const call *at = &c->entries[i % ENTRIES];
        if (strcmp(at->id, id) == 0) {
            *tokens = malloc(at->count * sizeof **tokens);
            if (!*tokens) {
                break;
            }
            memcpy(*tokens, at->tokens, at->count * sizeof **tokens);
            *count = at->count;
            *prompt = at->prompt;
            found = true;
        }
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}
