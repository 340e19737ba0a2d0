#include "gpu/adapters.h"

#include "base/status.h"

int64_t mo_gpu_adapters_bytes(int64_t rows, int64_t ranks)
{
    return (rows * ranks * (int64_t)sizeof(float) + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
}

/* Experts are addressed by number at equal distances, so their matrices must come from one tensor. */
static mo_status check_experts(const mo_lora *lora, mo_error *err)
{
    for (int64_t i = 0; i < lora->count; i++) {
        if (lora->pairs[i].alone) {
            return mo_fail(
                err, MO_EUNSUPPORTED,
                "%s has a separate pair for each expert, which devices do not support; convert the "
                "model and the adapter to stacked experts, or open the model with `device` none",
                lora->path);
        }
    }
    return MO_OK;
}

static int64_t ranks_of(const mo_gpu_adapters *a)
{
    int64_t ranks = 0;
    for (int i = 0; i < a->count; i++) {
        ranks += a->list[i].lora->rank;
    }
    return ranks;
}

static mo_status take_space(mo_gpu_adapters *a, int64_t ranks, mo_error *err)
{
    const int64_t bytes = mo_gpu_adapters_bytes(a->rows, ranks);
    const mo_status status =
        bytes ? mo_gpu_memory_alloc(a->memory, bytes, "products of adapters", &a->u, err) : MO_OK;
    a->u_bytes = status == MO_OK ? bytes : 0;
    a->u_stride = status == MO_OK ? ranks : 0;
    return status;
}

/* Allocates memory for results of adapters with these ranks. On failure the previous memory is restored. */
static mo_status make_space(mo_gpu_adapters *a, int64_t ranks, mo_error *err)
{
    const int64_t before = a->u_stride;
    mo_gpu_memory_free(a->memory, a->u, a->u_bytes);
    a->u = 0;
    const mo_status status = take_space(a, ranks, err);
    if (status != MO_OK) {
        take_space(a, before, NULL);
    }
    return status;
}

static mo_status send(const mo_gpu_adapters *a, const mo_gpu_adapter *at, mo_error *err)
{
    const mo_status status =
        mo_gpu_link_send(a->link, a->link->main, at->lora->region, at->lora->region_bytes, at->memory, err);
    return mo_gpu_link_settle(a->link->main, status, err);
}

mo_status mo_gpu_adapters_add(mo_gpu_adapters *a, const mo_lora *lora, mo_error *err)
{
    mo_gpu_adapter *at = &a->list[a->count];
    mo_status status = check_experts(lora, err);
    if (status != MO_OK) {
        return status;
    }
    *at = (mo_gpu_adapter){.lora = lora,
                           .bytes = mo_gpu_adapters_bytes(1, (int64_t)(lora->region_bytes + 3) / 4)};
    status = mo_gpu_memory_alloc(a->memory, at->bytes, "an adapter", &at->memory, err);
    if (status != MO_OK) {
        return status;
    }
    status = make_space(a, ranks_of(a) + lora->rank, err);
    if (status == MO_OK) {
        status = send(a, at, err);
    }
    if (status != MO_OK) {
        mo_gpu_memory_free(a->memory, at->memory, at->bytes);
        return status;
    }
    a->count++;
    return MO_OK;
}

void mo_gpu_adapters_remove(mo_gpu_adapters *a, const mo_lora *lora)
{
    for (int i = 0; i < a->count; i++) {
        if (a->list[i].lora == lora) {
            mo_gpu_memory_free(a->memory, a->list[i].memory, a->list[i].bytes);
            a->list[i] = a->list[--a->count];
            make_space(a, ranks_of(a), NULL); /* less than before */
            return;
        }
    }
}

void mo_gpu_adapters_close(mo_gpu_adapters *a)
{
    for (int i = 0; i < a->count; i++) {
        mo_gpu_memory_free(a->memory, a->list[i].memory, a->list[i].bytes);
    }
    mo_gpu_memory_free(a->memory, a->u, a->u_bytes);
    a->count = 0;
    a->u = 0;
}
