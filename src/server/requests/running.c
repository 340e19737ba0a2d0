/* Running: see running.h. */
#include "server/requests/running.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer {
    struct answer *next;
    void (*stop)(void *user, bool ending);
    void *user;
    char owner[65];
    char id[];
} answer;

struct srv_running {
    pthread_mutex_t mutex;
    answer *first; /* a few hundred at most */
    bool ending;
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

/* With the mutex held. */
static void stop(answer *a, bool ending)
{
    if (a->stop) {
        a->stop(a->user, ending);
        a->stop = NULL;
    }
}

bool srv_running_add(srv_running *r, const char *id, const char *owner,
                     void (*stop_it)(void *user, bool ending), void *user)
{
    answer *a = malloc(sizeof *a + strlen(id) + 1);
    if (!a) {
        return false;
    }
    *a = (answer){.stop = stop_it, .user = user};
    memcpy(a->id, id, strlen(id) + 1);
    snprintf(a->owner, sizeof a->owner, "%s", owner);
    pthread_mutex_lock(&r->mutex);
    a->next = r->first;
    r->first = a;
    if (r->ending) {
        stop(a, true);
    }
    pthread_mutex_unlock(&r->mutex);
    return true;
}

void srv_running_remove(srv_running *r, const void *user)
{
    pthread_mutex_lock(&r->mutex);
    answer **at = &r->first;
    while (*at && (*at)->user != user) {
        at = &(*at)->next;
    }
    answer *a = *at;
    if (a) {
        *at = a->next;
    }
    pthread_mutex_unlock(&r->mutex);
    free(a);
}

static bool belongs(const answer *a, const char *owner)
{
    return !owner || strcmp(a->owner, owner) == 0;
}

bool srv_running_stop(srv_running *r, const char *id, const char *owner)
{
    pthread_mutex_lock(&r->mutex);
    answer *a = *id ? r->first : NULL;
    while (a && (strcmp(a->id, id) != 0 || !belongs(a, owner))) {
        a = a->next;
    }
    if (a) {
        stop(a, false);
    }
    pthread_mutex_unlock(&r->mutex);
    return a != NULL;
}

int srv_running_list(srv_running *r, const char *owner, char (*ids)[SRV_RUNNING_ID], int limit)
{
    int found = 0;
    pthread_mutex_lock(&r->mutex);
    for (const answer *a = r->first; a; a = a->next) {
        if (!*a->id || !belongs(a, owner)) {
            continue;
        }
        if (found < limit) {
            snprintf(ids[found], SRV_RUNNING_ID, "%s", a->id);
        }
        found++;
    }
    pthread_mutex_unlock(&r->mutex);
    return found;
}

void srv_running_end(srv_running *r)
{
    pthread_mutex_lock(&r->mutex);
    r->ending = true;
    for (answer *a = r->first; a; a = a->next) {
        stop(a, true);
    }
    pthread_mutex_unlock(&r->mutex);
}
