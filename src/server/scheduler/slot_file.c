/* Slot file: see slot_file.h. */
#include "server/scheduler/slot_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"
#include "server/scheduler/cachedir.h"
#include "server/scheduler/engine.h"
#include "server/scheduler/kept.h"

/* What is done to a slot on the engine's thread, between two steps. */
typedef struct deed {
    srv_engine *engine;
    int slot;
    const srv_caller *caller;
    mo_snapshot *snapshot; /* taken of it, or to be put into it */
    int32_t *tokens;
    int64_t count;
    mo_error *err;
    mo_status status;
} deed;

/* The sequence, if it is there and free. */
static srv_sequence *free_slot(deed *d)
{
    if (d->slot < 0 || d->slot >= d->engine->parallel) {
        d->err->status = d->status = MO_EINVAL;
        snprintf(d->err->detail, sizeof d->err->detail, "slots are numbered 0 to %d",
                 d->engine->parallel - 1);
        return NULL;
    }
    srv_sequence *s = &d->engine->sequences[d->slot];
    if (s->held > 0 && !srv_caller_changes(d->caller, s->owner)) {
        d->status = mo_fail(d->err, MO_ENOENT, "the slot holds a session of another client");
        return NULL;
    }
    if (s->task) {
        d->status = mo_fail(d->err, MO_ECANCELLED, "the slot is busy; try again when its answer is finished");
        return NULL;
    }
    return s;
}

static void take(void *user)
{
    deed *d = user;
    const srv_sequence *s = free_slot(d);
    if (!s) {
        return;
    }
    if (s->held == 0) {
        d->status = mo_fail(d->err, MO_EINVAL, "the slot is empty");
        return;
    }
    d->count = s->held;
    d->tokens = malloc(sizeof *d->tokens * (size_t)d->count);
    if (!d->tokens) {
        d->status = mo_fail(d->err, MO_ENOMEM, "out of memory while saving the slot");
        return;
    }
    memcpy(d->tokens, s->tokens, sizeof *d->tokens * (size_t)d->count);
    d->status = mo_snapshot_open(s->session, &d->snapshot, d->err);
}

static void put(void *user)
{
    deed *d = user;
    srv_engine *e = d->engine;
    srv_sequence *s = free_slot(d);
    if (!s) {
        return;
    }
    if (d->count > e->context) {
        d->status = mo_fail(d->err, MO_EINVAL, "the session is longer than the context of a slot");
        return;
    }
    if (d->snapshot) { /* one with adapters is refused with the reason */
        mo_session_adapt(s->session, NULL, 0, NULL);
    }
    d->status = mo_session_restore(s->session, d->snapshot ? d->snapshot : e->empty, -1, d->err);
    s->dirty = d->status != MO_OK;
    s->kept = false;
    s->owner = d->caller->owner;
    const int64_t before = s->held;
    pthread_mutex_lock(&e->lock);
    s->held = s->count = s->dirty ? 0 : d->count;
    s->used = ++e->uses;
    pthread_mutex_unlock(&e->lock);
    if (d->status == MO_OK && d->count > 0) {
        memcpy(s->tokens, d->tokens, sizeof *s->tokens * (size_t)d->count);
    }
    d->count = before; /* for who erases */
}

static mo_status do_it(srv_engine *e, void (*what)(void *user), deed *d)
{
    srv_engine_between_steps(e, what, d);
    return d->status;
}

/* Rows of pictures have numbers below -1. No prompt could go on from them without an encoder. */
static bool has_pictures(const int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] < 0) {
            return true;
        }
    }
    return false;
}

static mo_status open_directory(const srv_engine *e, const char *directory, srv_cachedir **out, mo_error *err)
{
    char key[256];
    *out = NULL;
    if (!e->sharing) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "this model does not cache sessions: its options are lossy, or it has no cache");
    }
    srv_engine_key(e, true, key, sizeof key);
    return srv_cachedir_open(directory, key, INT64_MAX, out, err);
}

mo_status srv_slot_save(srv_engine *e, int slot, const srv_caller *caller, const char *directory,
                        const char *name, srv_slot_file_report *out, mo_error *err)
{
    srv_cachedir *dir;
    deed d = {.engine = e, .slot = slot, .caller = caller, .err = err};
    uint8_t *bytes = NULL;
    size_t size = 0;
    *out = (srv_slot_file_report){0};
    mo_status status = open_directory(e, directory, &dir, err);
    status = status == MO_OK ? do_it(e, take, &d) : status;
    status = status == MO_OK ? mo_snapshot_write(d.snapshot, &bytes, &size, err) : status;
    if (status == MO_OK) {
        status = srv_cachedir_write_as(dir, name, d.tokens, d.count, bytes, size, &out->bytes, err);
        out->tokens = d.count;
    }
    mo_free(bytes);
    mo_snapshot_close(d.snapshot);
    free(d.tokens);
    srv_cachedir_close(dir);
    return status;
}

mo_status srv_slot_restore(srv_engine *e, int slot, const srv_caller *caller, const char *directory,
                           const char *name, srv_slot_file_report *out, mo_error *err)
{
    srv_cachedir *dir;
    deed d = {.engine = e, .slot = slot, .caller = caller, .err = err};
    uint8_t *bytes = NULL;
    size_t size = 0;
    int64_t file_bytes = 0;
    *out = (srv_slot_file_report){0};
    mo_status status = open_directory(e, directory, &dir, err);
    status = status == MO_OK
                 ? srv_cachedir_read_as(dir, name, &d.tokens, &d.count, &bytes, &size, &file_bytes, err)
                 : status;
    if (status == MO_OK && has_pictures(d.tokens, d.count) && !mo_model_reads_pictures(e->model)) {
        status = mo_fail(err, MO_EINVAL,
                         "the saved slot has pictures, and the model was opened without its encoder; set "
                         "`mmproj`, or restore a slot without pictures");
    }
    status = status == MO_OK ? mo_snapshot_read(e->model, bytes, size, &d.snapshot, err) : status;
    if (status == MO_OK &&
        (mo_snapshot_length(d.snapshot) != d.count ||
         memcmp(mo_snapshot_tokens(d.snapshot), d.tokens, sizeof *d.tokens * (size_t)d.count) != 0)) {
        status =
            mo_fail(err, MO_EFORMAT, "the tokens of the file do not match its saved state; save it again");
    }
    if (status == MO_OK) {
        *out = (srv_slot_file_report){.tokens = d.count, .bytes = file_bytes};
        status = do_it(e, put, &d);
    }
    free(bytes);
    mo_snapshot_close(d.snapshot);
    free(d.tokens);
    srv_cachedir_close(dir);
    return status;
}

mo_status srv_slot_erase(srv_engine *e, int slot, const srv_caller *caller, int64_t *tokens, mo_error *err)
{
    deed d = {.engine = e, .slot = slot, .caller = caller, .err = err};
    const mo_status status = do_it(e, put, &d);
    *tokens = status == MO_OK ? d.count : 0;
    if (*tokens > 0) {
        srv_engine_trim(e);
    }
    return status;
}
