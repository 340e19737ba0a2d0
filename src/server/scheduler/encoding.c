/* Encoding: pictures become rows beside the steps. */
#include "base/wait.h"
#include "server/scheduler/scheduler.h"

static bool goes_on(void *user, int64_t done, int64_t total)
{
    const srv_encoding *encoding = user;
    (void)done;
    (void)total;
    return !atomic_load(&encoding->unwanted);
}

static void *run(void *engine)
{
    srv_engine *e = engine;
    srv_encoding *encoding = &e->encoding;
    pthread_mutex_lock(&e->lock);
    while (!encoding->closing) {
        mo_image *image = encoding->image;
        if (!image) {
            pthread_cond_wait(&encoding->asked, &e->lock);
            continue;
        }
        pthread_mutex_unlock(&e->lock);
        const mo_status status = mo_image_encode(image, goes_on, encoding, NULL);
        mo_image_close(image);
        pthread_mutex_lock(&e->lock);
        encoding->image = NULL;
        if (status != MO_OK && !atomic_load(&encoding->unwanted)) {
            encoding->failed = encoding->job;
        }
        srv_engine_wake(e);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

void srv_encoding_open(srv_encoding *encoding)
{
    mo_cond_init(&encoding->asked);
}

void srv_encoding_close(srv_engine *e)
{
    srv_encoding *encoding = &e->encoding;
    if (encoding->started) {
        pthread_mutex_lock(&e->lock);
        encoding->closing = true;
        atomic_store(&encoding->unwanted, true);
        pthread_cond_signal(&encoding->asked);
        pthread_mutex_unlock(&e->lock);
        pthread_join(encoding->thread, NULL);
        mo_image_close(encoding->image); /* nobody has begun with it */
    }
    pthread_cond_destroy(&encoding->asked);
}

/* Is there still a sequence of the job? Under the lock. */
static bool is_there(const srv_engine *e, uint64_t job)
{
    bool any = false;
    for (int i = 0; i < e->parallel; i++) {
        any |= e->sequences[i].task && e->sequences[i].task->id == job;
    }
    return any;
}

/* Marks the sequences that wait. The first of them by their turn, and its picture; NULL: none waits. */
static srv_sequence *find_first(srv_engine *e, uint64_t failed, mo_image **image)
{
    srv_sequence *first = NULL;
    *image = NULL;
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        const bool reads = s->task && !s->waits && s->held < s->prompt && s->task->id != failed;
        mo_image *wanted = reads ? mo_generation_picture(srv_sequence_generation(s)) : NULL;
        s->encodes = wanted != NULL;
        if (wanted && (!first || srv_sequence_order(s, first) < 0)) {
            mo_image *other = *image;
            first = s;
            *image = wanted;
            wanted = other;
        }
        mo_image_close(wanted);
    }
    return first;
}

void srv_encoding_ask(srv_engine *e)
{
    srv_encoding *encoding = &e->encoding;
    mo_image *image;
    pthread_mutex_lock(&e->lock);
    const uint64_t failed = encoding->failed;
    pthread_mutex_unlock(&e->lock);
    srv_sequence *first = find_first(e, failed, &image);
    if (first && !encoding->started) {
        encoding->started = pthread_create(&encoding->thread, NULL, run, e) == 0;
        for (int i = 0; i < e->parallel && !encoding->started; i++) {
            e->sequences[i].encodes = false; /* steps make their rows */
        }
    }
    pthread_mutex_lock(&e->lock);
    if (encoding->image && !is_there(e, encoding->job)) {
        atomic_store(&encoding->unwanted, true);
    }
    if (first && encoding->started && !encoding->image) {
        encoding->image = image;
        encoding->job = first->task->id;
        image = NULL;
        atomic_store(&encoding->unwanted, false);
        pthread_cond_signal(&encoding->asked);
    }
    pthread_mutex_unlock(&e->lock);
    mo_image_close(image);
}
