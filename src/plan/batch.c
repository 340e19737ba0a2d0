#include "plan/batch.h"

int mo_plan_batch_sizes(int64_t context, int64_t *sizes)
{
    int count = 0;
    do {
        sizes[count] = (int64_t)64 << count;
    } while (sizes[count++] < context && count < MO_PLAN_BATCHES);
    return count;
}

mo_plan_model mo_plan_with_batch(const mo_plan_model *m, const mo_plan_batch *b)
{
    mo_plan_model one = *m;
    one.batch = b->batch;
    one.kv_bytes = b->kv_bytes;
    one.work_bytes = b->work_bytes;
    one.device_kv_bytes = b->device_kv_bytes;
    one.device_work_bytes = b->device_work_bytes;
    one.device_idle_bytes = b->device_idle_bytes;
    one.device_host_bytes = b->device_host_bytes;
    one.device_piece_bytes = b->device_piece_bytes;
    one.batch_count = 0;
    return one;
}
