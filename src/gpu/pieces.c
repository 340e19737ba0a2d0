#include "gpu/pieces.h"

#include "base/host.h"
#include "base/status.h"
#include "base/thread.h"

static mo_status make_piece(mo_gpu *gpu, int64_t batch, mo_error *err)
{
    gpu->piece = mo_gpu_piece_open(gpu->core.spec, batch);
    return gpu->piece ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for pieces of prompts");
}

/* ---- A device and its pieces ---- */

/* With the lock held: waits until the piece is ready and the next device has taken the previous one; false: a
 * failure occurred meanwhile. */
static bool may_begin(mo_gpu_pieces *all, const mo_gpu *gpu, int number)
{
    while (all->failed.status == MO_OK && ((gpu->before && all->given[gpu->part - 1] <= number) ||
                                           (gpu->next && all->taken[gpu->part + 1] < number))) {
        pthread_cond_wait(&all->changed, &all->lock);
    }
    return all->failed.status == MO_OK;
}

static void compute_all(mo_gpu *gpu)
{
    mo_gpu_pieces *all = &gpu->head->pieces;
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < all->count && may_begin(all, gpu, i); i++) {
        mo_error err = {0};
        pthread_mutex_unlock(&all->lock);
        if (all->watch && !gpu->before) {
            all->watch(all->watcher, 0, i);
        }
        mo_gpu_piece_cut(gpu->piece, all->step, i, all->count);
        mo_status status = mo_forward_cancelled(all->step, &err);
        if (status == MO_OK) {
            status = all->pass(gpu, &gpu->piece->forward, &err);
        }
        pthread_mutex_lock(&all->lock);
        if (status == MO_OK) {
            all->given[gpu->part] = i + 1;
        } else if (all->failed.status == MO_OK) {
            all->failed = err;
            all->failed.status = status;
        }
        pthread_cond_broadcast(&all->changed);
    }
    pthread_mutex_unlock(&all->lock);
}

void mo_gpu_pieces_took(mo_gpu *gpu)
{
    mo_gpu_pieces *all = &gpu->head->pieces;
    pthread_mutex_lock(&all->lock);
    const int piece = all->taken[gpu->part]++;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    if (all->watch) {
        all->watch(all->watcher, gpu->part, piece);
    }
}

/* ---- Threads: one per device except the head, whose part the caller computes ---- */

static void *work(void *arg)
{
    mo_gpu *gpu = arg;
    mo_gpu_pieces *all = &gpu->head->pieces;
    uint64_t seen = 0;
    mo_host_float_mode();
    pthread_mutex_lock(&all->lock);
    while (!all->closing) {
        if (all->round == seen) {
            pthread_cond_wait(&all->changed, &all->lock);
            continue;
        }
        seen = all->round;
        pthread_mutex_unlock(&all->lock);
        compute_all(gpu);
        pthread_mutex_lock(&all->lock);
        all->working--;
        pthread_cond_broadcast(&all->changed);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

static mo_status start(mo_gpu *gpu, mo_error *err)
{
    const int failed = mo_thread_start(&gpu->piece_thread, "moraine-piece", work, gpu);
    gpu->has_thread = !failed;
    return failed ? mo_fail(err, MO_ENOMEM, "cannot start a thread for a device") : MO_OK;
}

void mo_gpu_pieces_init(mo_gpu *head)
{
    pthread_mutex_init(&head->pieces.lock, NULL);
    pthread_cond_init(&head->pieces.changed, NULL);
}

mo_status mo_gpu_pieces_join(mo_gpu *gpu, int64_t batch, mo_error *err)
{
    mo_status status = gpu->head->piece ? MO_OK : make_piece(gpu->head, batch, err);
    if (status == MO_OK) {
        status = make_piece(gpu, batch, err);
    }
    return status == MO_OK ? start(gpu, err) : status;
}

void mo_gpu_pieces_close(mo_gpu *head)
{
    mo_gpu_pieces *all = &head->pieces;
    pthread_mutex_lock(&all->lock);
    all->closing = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    for (mo_gpu *gpu = head; gpu; gpu = gpu->next) {
        if (gpu->has_thread) {
            pthread_join(gpu->piece_thread, NULL);
        }
        mo_gpu_piece_close(gpu->piece);
    }
}

/* ---- A step ---- */

/* True if the step's picture rows allow pieces: rows that see later rows must stay together, and features use
 * the pinned memory through which a device other than the first gets the next piece's stream. */
static bool divides_rows(const mo_gpu *head, const mo_forward *forward)
{
    const mo_gpu *second = head->next;
    return !forward->ahead && !(second && mo_forward_has_features(forward, second->core.first));
}

bool mo_gpu_pieces_may(const mo_gpu *head, const mo_forward *forward)
{
    const mo_tiers *tiers = forward->engine->tiers;
    bool all = divides_rows(head, forward);
    for (const mo_gpu *gpu = head->next; gpu; gpu = gpu->next) {
        all &= !gpu->lost;
    }
    return all && head->next && !head->lost && head->pieces.tokens > 0 &&
           forward->tokens > head->pieces.tokens && forward->slice_count <= GPU_PIECE_SLICES &&
           !forward->slices[0].routers_only && !forward->split && !mo_forward_has_drafts(forward) &&
           !mo_forward_listens(forward) && !(tiers && tiers->store) &&
           !mo_workers_any(&forward->engine->workers); /* only one thread at a time may use them */
}

mo_status mo_gpu_pieces_run(mo_gpu *head, const mo_forward *forward, mo_gpu_pass pass, mo_error *err)
{
    mo_gpu_pieces *all = &head->pieces;
    pthread_mutex_lock(&all->lock);
    all->step = forward;
    all->pass = pass;
    all->count = (int)((forward->tokens + all->tokens - 1) / all->tokens);
    for (int i = 0; i < head->parts; i++) {
        all->given[i] = all->taken[i] = 0;
    }
    all->failed = (mo_error){0};
    all->working = head->parts - 1;
    all->round++;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    compute_all(head);
    pthread_mutex_lock(&all->lock);
    while (all->working > 0) {
        pthread_cond_wait(&all->changed, &all->lock);
    }
    const mo_error failed = all->failed;
    pthread_mutex_unlock(&all->lock);
    return failed.status == MO_OK ? MO_OK : mo_fail(err, failed.status, "%s", failed.detail);
}
