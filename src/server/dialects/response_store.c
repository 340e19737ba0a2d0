/* Response store: see response_store.h. A thread of its own writes files, since answers end on threads that have others to tell. */
#include "server/dialects/response_store.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/common/log.h"
#include "server/dialects/response_files.h"

/* JSON takes several times the memory of its text. Those not on disk yet may use WAITING_BYTES more. */
enum {
    RESPONSES_MAX = 1024,
    RESPONSES_BYTES = 64 << 20,
    WAITING_BYTES = 256 << 20,
    BYTES_OF_TEXT = 4,
    OWNER = 256
};

typedef struct entry {
    struct entry *newer, *older;
    char id[SRV_RESPONSE_ID], owner[OWNER];
    srv_kept_response kept;
    size_t bytes; /* in memory */
    bool unsaved; /* in memory until it is on disk */
    bool alone;   /* larger than all may be together: it goes to disk and does not count here */
} entry;

struct srv_response_store {
    pthread_mutex_t mutex; /* of all but `files` */
    pthread_cond_t changed;
    entry *newest, *oldest;
    int count, unsaved;
    size_t bytes, waiting;     /* of all; of those that are not on disk yet, also those that do not count */
    uint64_t removals;         /* files that were removed */
    bool told;                 /* that the disk is too slow */
    srv_response_files *files; /* NULL: memory alone */
    pthread_t writer;
    const char *writing; /* the id whose file is being written */
    bool closing;
};

/* ---- The list, with the mutex held ---- */

static entry *find(const srv_response_store *s, const char *id, const char *owner)
{
    entry *e = s->newest;
    while (e && (strcmp(e->id, id) != 0 || strcmp(e->owner, owner) != 0)) {
        e = e->older;
    }
    return e;
}

static void uncount(srv_response_store *s, const entry *e)
{
    s->count--;
    s->bytes -= e->alone ? 0 : e->bytes;
    s->unsaved -= e->unsaved;
    s->waiting -= e->unsaved ? e->bytes : 0;
}

static void unlink_entry(srv_response_store *s, entry *e)
{
    if (e->newer) {
        e->newer->older = e->older;
    } else {
        s->newest = e->older;
    }
    if (e->older) {
        e->older->newer = e->newer;
    } else {
        s->oldest = e->newer;
    }
    uncount(s, e);
}

static void free_entry(entry *e)
{
    json_decref(e->kept.response);
    json_decref(e->kept.input);
    free(e);
}

/* What is not on disk yet stays until it is. */
static void drop_oldest(srv_response_store *s)
{
    for (entry *next, *e = s->oldest; e && (s->count > RESPONSES_MAX || s->bytes > RESPONSES_BYTES);
         e = next) {
        next = e->newer;
        if (!e->unsaved) {
            unlink_entry(s, e);
            free_entry(e);
        }
    }
}

static void link_newest(srv_response_store *s, entry *e)
{
    e->newer = NULL;
    e->older = s->newest;
    if (s->newest) {
        s->newest->newer = e;
    } else {
        s->oldest = e;
    }
    s->newest = e;
    s->count++;
    s->bytes += e->alone ? 0 : e->bytes;
    s->unsaved += e->unsaved;
    s->waiting += e->unsaved ? e->bytes : 0;
}

static entry *make(const char *id, const char *owner, const srv_kept_response *kept)
{
    const bool fits = strlen(id) < SRV_RESPONSE_ID && strlen(owner) < OWNER;
    entry *e = fits ? calloc(1, sizeof *e) : NULL;
    if (e) {
        snprintf(e->id, sizeof e->id, "%s", id);
        snprintf(e->owner, sizeof e->owner, "%s", owner);
        e->kept = *kept;
        e->bytes = kept->bytes < SIZE_MAX / 2 / BYTES_OF_TEXT ? BYTES_OF_TEXT * kept->bytes : SIZE_MAX / 2;
        e->alone = e->bytes > RESPONSES_BYTES;
    }
    return e;
}

/* ---- Writing ---- */

/* With the mutex held, which is given up meanwhile: writes the oldest that is not on disk. */
static void save_one(srv_response_store *s)
{
    entry *e = s->oldest;
    while (e && !e->unsaved) {
        e = e->newer;
    }
    if (!e) {
        return;
    }
    s->writing = e->id; /* no other thread removes it meanwhile */
    pthread_mutex_unlock(&s->mutex);
    srv_response_files_write(s->files, e->id, e->owner, &e->kept);
    pthread_mutex_lock(&s->mutex);
    s->writing = NULL;
    s->unsaved--;
    s->waiting -= e->bytes;
    e->unsaved = false;
    if (e->alone) {
        unlink_entry(s, e);
        free_entry(e);
    }
    drop_oldest(s);
    pthread_cond_broadcast(&s->changed);
}

static void *run(void *user)
{
    srv_response_store *s = user;
    pthread_mutex_lock(&s->mutex);
    while (!s->closing || s->unsaved > 0) {
        if (s->unsaved > 0) {
            save_one(s);
        } else {
            pthread_cond_wait(&s->changed, &s->mutex);
        }
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- Open and close ---- */

srv_response_store *srv_response_store_open(const char *directory)
{
    srv_response_store *s = calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->files = directory ? srv_response_files_open(directory) : NULL;
    if (s->files && pthread_create(&s->writer, NULL, run, s) != 0) {
        srv_response_files_close(s->files);
        s->files = NULL;
    }
    return s;
}

void srv_response_store_close(srv_response_store *s)
{
    if (!s) {
        return;
    }
    if (s->files) {
        pthread_mutex_lock(&s->mutex);
        s->closing = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        pthread_join(s->writer, NULL);
        srv_response_files_close(s->files);
    }
    for (entry *next, *e = s->newest; e; e = next) {
        next = e->older;
        free_entry(e);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

/* ---- Responses ---- */

void srv_response_store_add(srv_response_store *s, const char *id, const char *owner,
                            const srv_kept_response *kept)
{
    entry *e = make(id, owner, kept);
    if (!e) {
        json_decref(kept->response);
        json_decref(kept->input);
        return;
    }
    pthread_mutex_lock(&s->mutex);
    const bool room = s->waiting <= WAITING_BYTES; /* then it may be more by one */
    const bool tell = s->files && !room && !s->told;
    e->unsaved = s->files && room;
    s->told |= tell;
    if (e->alone && !e->unsaved) {
        free_entry(e);
    } else {
        link_newest(s, e);
        drop_oldest(s);
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    if (tell) {
        srv_say(MO_LOG_WARN, "responses",
                "answers arrive faster than the disk can store them; some are not stored");
    }
}

/* Into memory from its file, unless one was removed since `removals`: it may have been this one, which must not come back. By two
 * at once it is there twice for a while, which does no harm. */
static bool read_file(srv_response_store *s, const char *id, const char *owner, uint64_t removals,
                      srv_kept_response *out)
{
    if (!s->files || !srv_response_files_read(s->files, id, owner, out)) {
        return false;
    }
    entry *e = make(id, owner, out);
    if (!e) {
        return true;
    }
    json_incref(out->response);
    json_incref(out->input);
    pthread_mutex_lock(&s->mutex);
    if (e->alone || s->removals != removals) {
        free_entry(e);
    } else {
        link_newest(s, e);
        drop_oldest(s);
    }
    pthread_mutex_unlock(&s->mutex);
    return true;
}

bool srv_response_store_get(srv_response_store *s, const char *id, const char *owner, srv_kept_response *out)
{
    pthread_mutex_lock(&s->mutex);
    const uint64_t removals = s->removals;
    entry *e = find(s, id, owner);
    if (e) {
        unlink_entry(s, e); /* used now */
        link_newest(s, e);
        *out = e->kept;
        json_incref(out->response);
        json_incref(out->input);
    }
    pthread_mutex_unlock(&s->mutex);
    return e || read_file(s, id, owner, removals, out);
}

/* With the mutex held, which is given up while one of that id is written. */
static bool remove_entries(srv_response_store *s, const char *id, const char *owner)
{
    bool found = false;
    while (s->writing && strcmp(s->writing, id) == 0) {
        pthread_cond_wait(&s->changed, &s->mutex);
    }
    for (entry *e; (e = find(s, id, owner));) {
        unlink_entry(s, e);
        free_entry(e);
        found = true;
    }
    return found;
}

bool srv_response_store_remove(srv_response_store *s, const char *id, const char *owner)
{
    srv_kept_response kept;
    pthread_mutex_lock(&s->mutex);
    bool found = remove_entries(s, id, owner);
    pthread_mutex_unlock(&s->mutex);
    if (s->files && !found && srv_response_files_read(s->files, id, owner, &kept)) {
        json_decref(kept.response);
        json_decref(kept.input);
        found = true;
    }
    if (s->files && found) {
        srv_response_files_remove(s->files, id);
        pthread_mutex_lock(&s->mutex);
        s->removals++;
        remove_entries(s, id, owner); /* read from the file before it went */
        pthread_mutex_unlock(&s->mutex);
    }
    return found;
}

static json_t *find_item(const json_t *list, const char *id)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        const char *its = json_string_value(json_object_get(item, "id"));
        if (its && strcmp(its, id) == 0) {
            return json_incref(item);
        }
    }
    return NULL;
}

json_t *srv_response_store_item(srv_response_store *s, const char *item_id, const char *owner)
{
    json_t *found = NULL;
    pthread_mutex_lock(&s->mutex);
    for (entry *e = s->newest; e && !found; e = e->older) {
        if (strcmp(e->owner, owner) == 0) {
            found = find_item(json_object_get(e->kept.response, "output"), item_id);
            found = found ? found : find_item(e->kept.input, item_id);
        }
    }
    pthread_mutex_unlock(&s->mutex);
    return found;
}
