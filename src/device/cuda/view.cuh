/* View: where a token of a step looks. */
#ifndef MO_DEVICE_CUDA_VIEW_CUH
#define MO_DEVICE_CUDA_VIEW_CUH

#include "device/cuda/cache.cuh"

typedef struct mo_view {
    mo_dstate state;
    int64_t position;   /* the token's own */
    int64_t first, end; /* the first position that it sees, and the one behind the last */
    int64_t old;        /* positions before this one were there before the step */
    int64_t chunk;      /* the first position's chunk */
    int chunks;
} mo_view;

/* length: of a chunk. */
static __device__ __forceinline__ mo_view mo_view_of(const mo_op_attend &op, int64_t t, int length)
{
    const mo_dplace place = mo_at<const mo_dplace>(op.places)[t];
    mo_view v;
    v.state = mo_at<const mo_dstate>(place.layers)[op.layer];
    v.position = place.position;
    v.first = mo_first_seen(op.window, place.position);
    v.end = place.position + 1 + mo_seen_ahead(op.window, place);
    v.old = place.position - place.into;
    v.chunk = v.first / length;
    v.chunks = (int)((v.end - 1) / length - v.chunk) + 1;
    return v;
}

#endif
