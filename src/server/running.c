/* Running: see running.h. */
#include "server/running.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer {
    struct answer *next;
    void (*stop)(void *user);
    void *user;
    char id[];
} answer;

struct srv_running {
    pthread_mutex_t mutex;
    answer *first; /* a few hundred at most */
};

srv_running *srv_running_open(void)
{
    srv_running *r = calloc(1, sizeof *r);
    if (r) {
        pthread_mutex_init(&r->mutex, NULL);
    }
    return r;
}

void srv_running_close(srv_running *r)
{
    if (r) {
        for (answer *next; r->first; r->first = next) {
            next = r->first->next;
            free(r->first);
        }
        pthread_mutex_destroy(&r->mutex);
        free(r);
    }
}

bool srv_running_add(srv_running *r, const char *id, void (*stop)(void *user), void *user)
{
    answer *a = malloc(sizeof *a + strlen(id) + 1);
    if (!a) {
        return false;
    }
    *a = (answer){.stop = stop, .user = user};
    memcpy(a->id, id, strlen(id) + 1);
    pthread_mutex_lock(&r->mutex);
    a->next = r->first;
    r->first = a;
    pthread_mutex_unlock(&r->mutex);
    return true;
}

/* With the mutex held. */
static answer **find(srv_running *r, const char *id)
{
    for (answer **at = &r->first; *at; at = &(*at)->next) {
        if (strcmp((*at)->id, id) == 0) {
            return at;
        }
    }
    return NULL;
}

void srv_running_remove(srv_running *r, const char *id)
{
    pthread_mutex_lock(&r->mutex);
    answer **at = find(r, id), *a = at ? *at : NULL;
    if (a) {
        *at = a->next;
    }
    pthread_mutex_unlock(&r->mutex);
    free(a);
}

bool srv_running_stop(srv_running *r, const char *id)
{
    pthread_mutex_lock(&r->mutex);
    answer **at = find(r, id);
    if (at && (*at)->stop) {
        (*at)->stop((*at)->user);
        (*at)->stop = NULL;
    }
    pthread_mutex_unlock(&r->mutex);
    return at != NULL;
}
