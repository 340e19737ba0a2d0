/* Planes, latent: the shared memory of a tile of queries over latent rows, counted alike by the kernel and by those who launch it. */
#ifndef MO_DEVICE_CUDA_PLANES_LATENT_H
#define MO_DEVICE_CUDA_PLANES_LATENT_H

#include "device/cuda/planes_scratch.h"

enum {
    MO_PLANES_LATENT_VALUE = 512, /* values of the rows that have such tiles, */
    MO_PLANES_LATENT_TAIL = 64,   /* and of their tails */
    MO_PLANES_LATENT_THREADS = 256,
    MO_PLANES_LATENT_GATES = 6,
};

typedef struct mo_planes_latent_scratch {
    int keys, q, scales, state, gates;
    int bytes;
} mo_planes_latent_scratch;

MO_ANYWHERE mo_planes_latent_scratch mo_planes_latent_lay(void)
{
    const int row = 2 * (MO_PLANES_LATENT_VALUE + MO_PLANES_LATENT_TAIL); /* bytes of both planes */
    mo_planes_latent_scratch r;
    r.keys = 0;
    r.q = r.keys + MO_KV_BLOCK * row;
    r.scales = r.q + MO_PLANES_TILE_ROWS * row;
    r.state = r.scales + 2 * MO_KV_BLOCK * 4;
    r.gates = r.state + 12 * MO_PLANES_TILE_ROWS * 4 + 32 * 4;
    r.bytes = r.gates + MO_PLANES_LATENT_GATES * 8;
    return r;
}

#endif
