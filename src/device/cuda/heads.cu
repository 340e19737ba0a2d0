/* Heads and attention of few tokens as one kernel: see fresh.h. */
#include "device/cuda/planes_attend.cuh"

/* ---- Blocks (chunk, KV head and part of its queries, token) ----------------------------------- */

MO_BOUNDED(mo_heads_chunk_64, mo_cuda_fresh, MO_PLANES_THREADS, 3);
MO_KERNEL(mo_heads_chunk_64, mo_cuda_fresh)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunk<64, 64, true>(op.attend, &op, space);
}

MO_BOUNDED(mo_heads_chunk_128, mo_cuda_fresh, MO_PLANES_THREADS, 2);
MO_KERNEL(mo_heads_chunk_128, mo_cuda_fresh)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunk<128, 128, true>(op.attend, &op, space);
}

MO_BOUNDED(mo_heads_chunk_256, mo_cuda_fresh, MO_PLANES_THREADS, 1);
MO_KERNEL(mo_heads_chunk_256, mo_cuda_fresh)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunk<256, 256, true>(op.attend, &op, space);
}

/* ---- Blocks (some chunks, KV head and part of its queries, token) ----------------------------- */

MO_BOUNDED(mo_heads_stream_64, mo_cuda_fresh, MO_PLANES_THREADS, 2);
MO_KERNEL(mo_heads_stream_64, mo_cuda_fresh)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunks<64, true>(op.attend, &op, space);
}

MO_BOUNDED(mo_heads_stream_128, mo_cuda_fresh, MO_PLANES_THREADS, 2);
MO_KERNEL(mo_heads_stream_128, mo_cuda_fresh)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunks<128, true>(op.attend, &op, space);
}

MO_BOUNDED(mo_heads_stream_256, mo_cuda_fresh, MO_PLANES_THREADS, 1);
MO_KERNEL(mo_heads_stream_256, mo_cuda_fresh)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunks<256, true>(op.attend, &op, space);
}
