#include "gpu/handover.h"

#include <string.h>

#include "base/log.h"
#include "engine/head.h"

static size_t stream_bytes(const mo_gpu *gpu, int64_t tokens)
{
    return sizeof(float) * (size_t)(tokens * gpu->core.spec->width);
}

/* Address of the stream on the device, and in pinned memory. */
static mo_daddr at(const mo_gpu *gpu, const mo_gpu_block *b)
{
    return gpu->scratch.step + (mo_daddr)b->x;
}

static uint8_t *pinned(const mo_gpu *gpu, const mo_gpu_block *b)
{
    return gpu->scratch.pinned.block + b->x;
}

static bool to_host(const mo_gpu *gpu)
{
    return !gpu->next || gpu->next->lost;
}

mo_status mo_gpu_handover_give(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    const mo_gpu_block b = mo_gpu_block_of(&gpu->scratch, forward->tokens);
    if (!to_host(gpu) && gpu->next->reaches) {
        return MO_OK; /* the next device copies it */
    }
    return mo_gpu_link_get(&gpu->link, gpu->link.main, pinned(to_host(gpu) ? gpu : gpu->next, &b),
                           at(gpu, &b), stream_bytes(gpu, forward->tokens), err);
}

void mo_gpu_handover_given(const mo_gpu *gpu, const mo_forward *forward)
{
    const mo_gpu_block b = mo_gpu_block_of(&gpu->scratch, forward->tokens);
    if (to_host(gpu)) {
        memcpy(forward->w->x, pinned(gpu, &b), stream_bytes(gpu, forward->tokens));
    }
}

/* The part of the step's stream that a slice's head reads. */
typedef struct followed {
    int64_t first;
    size_t bytes; /* 0: nothing */
} followed;

static followed followed_of(const mo_gpu *gpu, const mo_slice *s, int64_t first)
{
    /* with drafts few may be accepted */
    const int64_t left_out = s->drafts ? 0 : mo_head_leaves_out(s->count);
    return (followed){.first = (first + left_out) * gpu->core.spec->width * (int64_t)sizeof(float),
                      .bytes = s->follow ? stream_bytes(gpu, s->count - left_out) : 0};
}

mo_status mo_gpu_handover_show(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    const mo_gpu_block b = mo_gpu_block_of(&gpu->scratch, forward->tokens);
    mo_status status = MO_OK;
    int64_t first = 0;
    for (int i = 0; i < forward->slice_count && status == MO_OK; i++) {
        const followed f = followed_of(gpu, &forward->slices[i], first);
        if (f.bytes) {
            status = mo_gpu_link_get(&gpu->link, gpu->link.main, pinned(gpu, &b) + f.first,
                                     at(gpu, &b) + (mo_daddr)f.first, f.bytes, err);
        }
        first += forward->slices[i].count;
    }
    return status;
}

void mo_gpu_handover_shown(const mo_gpu *gpu, const mo_forward *forward)
{
    const mo_gpu_block b = mo_gpu_block_of(&gpu->scratch, forward->tokens);
    int64_t first = 0;
    for (int i = 0; i < forward->slice_count; i++) {
        const followed f = followed_of(gpu, &forward->slices[i], first);
        if (f.bytes) {
            memcpy((uint8_t *)forward->w->x + f.first, pinned(gpu, &b) + f.first, f.bytes);
        }
        first += forward->slices[i].count;
    }
}

/* Copies through RAM. */
static mo_status take_by_hand(mo_gpu *gpu, const mo_gpu_block *b, int64_t tokens, mo_error *err)
{
    mo_gpu *before = gpu->before;
    mo_status status = mo_gpu_link_get(&before->link, before->link.main, pinned(gpu, b), at(before, b),
                                       stream_bytes(gpu, tokens), err);
    if (status == MO_OK) {
        status = mo_dstream_wait(before->link.main, err);
    }
    return status == MO_OK ? mo_gpu_link_put(&gpu->link, gpu->link.main, at(gpu, b), pinned(gpu, b),
                                             stream_bytes(gpu, tokens), err)
                           : status;
}

static mo_status take_across(mo_gpu *gpu, const mo_gpu_block *b, int64_t tokens, mo_error *err)
{
    mo_error refused = {0};
    const mo_status status = mo_copy_across(gpu->link.main, at(gpu, b), gpu->before->memory.device,
                                            at(gpu->before, b), stream_bytes(gpu, tokens), &refused);
    if (status == MO_OK || status == MO_EDEVICE) {
        if (err && status != MO_OK) {
            *err = refused;
        }
        return status;
    }
    gpu->link.failed++;
    gpu->reaches = false;
    mo_log(MO_LOG_WARN, "device",
           "%s; data from layer %d to layer %d now goes through "
           "RAM, which costs a few microseconds per token",
           refused.detail, gpu->core.first - 1, gpu->core.first);
    return take_by_hand(gpu, b, tokens, err);
}

mo_status mo_gpu_handover_take(mo_gpu *gpu, const mo_gpu_block *b, int64_t tokens, size_t bytes,
                               mo_error *err)
{
    const mo_daddr to = gpu->scratch.step;
    const uint8_t *from = gpu->scratch.pinned.block;
    if (mo_gpu_handover_from_host(gpu) || !gpu->reaches) {
        return mo_gpu_link_put(&gpu->link, gpu->link.main, to, from, bytes, err);
    }
    mo_status status = mo_gpu_link_put(&gpu->link, gpu->link.main, to, from, (size_t)b->x, err);
    if (status == MO_OK && bytes > (size_t)b->uses) {
        status = mo_gpu_link_put(&gpu->link, gpu->link.main, to + (mo_daddr)b->uses, from + b->uses,
                                 bytes - (size_t)b->uses, err);
    }
    return status == MO_OK ? take_across(gpu, b, tokens, err) : status;
}
