/* Turns: see turns.h. */
#include "server/requests/call_index.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 8192, ID = 64 };

typedef struct call_entry {
    uint64_t conversation;
    char id[ID];
} call_entry;

struct srv_call_index {
    pthread_mutex_t lock;
    call_entry entries[ENTRIES]; /* used in turn */
    uint64_t count;              /* ever added */
};

srv_call_index *srv_call_index_open(void)
{
    srv_call_index *t = calloc(1, sizeof *t);
    if (t) {
        pthread_mutex_init(&t->lock, NULL);
    }
    return t;
}

void srv_call_index_close(srv_call_index *t)
{
    if (t) {
        pthread_mutex_destroy(&t->lock);
        free(t);
    }
}

void srv_call_index_add(srv_call_index *t, const char *call_id, uint64_t conversation)
{
    const size_t length = strlen(call_id);
    if (length >= ID) {
        return;
    }
    pthread_mutex_lock(&t->lock);
    call_entry *entry = &t->entries[t->count++ % ENTRIES];
    entry->conversation = conversation;
    memcpy(entry->id, call_id, length + 1);
    pthread_mutex_unlock(&t->lock);
}

bool srv_call_index_has(srv_call_index *t, const char *call_id, uint64_t conversation)
{
    bool known = false;
    pthread_mutex_lock(&t->lock);
    const uint64_t first = t->count > ENTRIES ? t->count - ENTRIES : 0;
    for (uint64_t i = t->count; i-- > first && !known;) {
        const call_entry *entry = &t->entries[i % ENTRIES];
        known = entry->conversation == conversation && strcmp(entry->id, call_id) == 0;
    }
    pthread_mutex_unlock(&t->lock);
    return known;
}
