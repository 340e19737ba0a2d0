/* Worklists: which rows of which tokens a fetched expert computes, written in pinned memory and sent to the device. */
#include "gpu/lanes.h"

uint8_t *mo_gpu_worklist_at(const mo_gpu_lanes *lanes, int stage)
{
    return lanes->scratch->pinned.works + stage * lanes->scratch->pinned.work_bytes;
}

/* The expert's rows behind those that the list has already. */
void mo_gpu_worklist_add(const mo_forward *forward, uint8_t *list, int expert, mo_daddr base)
{
    mo_dwork *head = (mo_dwork *)(void *)list;
    mo_dwork_item *items = (mo_dwork_item *)(void *)(list + sizeof *head);
    for (int64_t i = 0; i < forward->tokens * forward->layer->moe.used; i++) {
        if (forward->w->picks.ids[i] == expert) {
            items[head->count++] = (mo_dwork_item){.base = base,
                                                   .expert = expert,
                                                   .token = (int32_t)(i / forward->layer->moe.used),
                                                   .row = (int32_t)i};
        }
    }
}

mo_daddr mo_gpu_worklist_one(const mo_gpu_lanes *lanes, const mo_forward *forward, int stage, int expert,
                             mo_daddr base)
{
    uint8_t *list = mo_gpu_worklist_at(lanes, stage);
    *(mo_dwork *)(void *)list = (mo_dwork){0};
    mo_gpu_worklist_add(forward, list, expert, base);
    return lanes->scratch->fetched + (mo_daddr)(stage * lanes->scratch->pinned.work_bytes);
}

int32_t mo_gpu_worklist_items(const uint8_t *list)
{
    return ((const mo_dwork *)(const void *)list)->count;
}

mo_status mo_gpu_worklist_copy(mo_gpu_link *link, mo_dstream *stream, const uint8_t *list, mo_daddr to,
                               mo_error *err)
{
    return mo_gpu_link_put(link, stream, to, list,
                           sizeof(mo_dwork) + (size_t)mo_gpu_worklist_items(list) * sizeof(mo_dwork_item),
                           err);
}

mo_status mo_gpu_worklist_send(mo_gpu_lanes *lanes, int stage, mo_error *err)
{
    return mo_gpu_worklist_copy(
        lanes->link, lanes->link->lane, mo_gpu_worklist_at(lanes, stage),
        lanes->scratch->fetched + (mo_daddr)(stage * lanes->scratch->pinned.work_bytes), err);
}
