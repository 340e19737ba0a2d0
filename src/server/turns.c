/* Turns: see turns.h. */
#include "server/turns.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 8192, ID = 64 };

typedef struct turn {
    uint64_t conversation;
    char id[ID];
} turn;

struct srv_turns {
    pthread_mutex_t lock;
    turn places[PLACES]; /* used in turn */
    uint64_t count;      /* ever added */
};

srv_turns *srv_turns_open(void)
{
    srv_turns *t = calloc(1, sizeof *t);
    if (t) {
        pthread_mutex_init(&t->lock, NULL);
    }
    return t;
}

void srv_turns_close(srv_turns *t)
{
    if (t) {
        pthread_mutex_destroy(&t->lock);
        free(t);
    }
}

void srv_turns_add(srv_turns *t, const char *call_id, uint64_t conversation)
{
    const size_t length = strlen(call_id);
    if (length >= ID) {
        return;
    }
    pthread_mutex_lock(&t->lock);
    turn *place = &t->places[t->count++ % PLACES];
    place->conversation = conversation;
    memcpy(place->id, call_id, length + 1);
    pthread_mutex_unlock(&t->lock);
}

bool srv_turns_know(srv_turns *t, const char *call_id, uint64_t conversation)
{
    bool known = false;
    pthread_mutex_lock(&t->lock);
    const uint64_t first = t->count > PLACES ? t->count - PLACES : 0;
    for (uint64_t i = t->count; i-- > first && !known;) {
        const turn *place = &t->places[i % PLACES];
        known = place->conversation == conversation && strcmp(place->id, call_id) == 0;
    }
    pthread_mutex_unlock(&t->lock);
    return known;
}
