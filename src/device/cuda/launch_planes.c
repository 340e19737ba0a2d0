#include "device/cuda/attend_scratch.h"
#include "device/cuda/launch.h"
#include "device/cuda/planes_latent.h"

static uint32_t pieces(int64_t count, int64_t size)
{
    return (uint32_t)((count + size - 1) / size);
}

/* ---- Few tokens ---- */

static const char *chunk_kernel(const mo_op_attend *o)
{
    if (o->k_len == o->v_len) {
        switch (o->k_len) {
        case 64: return "mo_planes_chunk_64";
        case 128: return "mo_planes_chunk_128";
        case 256: return "mo_planes_chunk_256";
        default: break;
        }
    }
    return "mo_planes_chunk";
}

/* NULL: none. Worth it where blocks have several chunks each, or there are many. */
static const char *stream_kernel(const mo_op_attend *o, int compute)
{
    if (compute != 90 || o->k_len != o->v_len) {
        return NULL;
    }
    switch (o->k_len) {
    case 64: return "mo_planes_stream_64";
    case 128: return "mo_planes_stream_128";
    case 256: return "mo_planes_stream_256";
    default: return NULL;
    }
}

/* A block for every head; what chunks have left comes by registers, or, where there is much of it, by shared memory. */
static mo_cuda_launch merging(const mo_op_attend *o, int compute)
{
    const uint32_t values = pieces(o->v_len, 32) * 32, threads = values < 128 ? 128 : values;
    const int far = mo_planes_merge_lay(o->v_len).bytes;
    mo_cuda_launch merge = {.kernel = threads > 512 ? "mo_planes_merge_long" : "mo_planes_merge",
                            .prelaunch = true,
                            .grid = {(uint32_t)o->heads, (uint32_t)o->tokens, 1},
                            .block = {threads, 1, 1},
                            .shared = (4 * threads + 32) * (uint32_t)sizeof(float)};
    if (o->chunks > MO_PLANES_MERGED && o->v_len % 32 == 0 && threads <= 512 &&
        far <= mo_attend_shared(compute)) {
        merge.kernel = "mo_planes_merge_far";
        merge.block[0] = threads + MO_PLANES_MERGE_HELP;
        merge.shared = (uint32_t)far;
    }
    return merge;
}

static int few(const mo_op_attend *o, int compute, int sms, mo_cuda_launch *out)
{
    const int group = o->heads / o->kv_heads;
    const uint32_t parts =
        pieces(group, mo_planes_rows(o->k_len, o->v_len, o->tail, group, mo_attend_shared(compute)));
    const int most = (int)pieces(group, parts);
    const int blocks = mo_planes_stream_blocks(mo_planes_stream_lay(o->k_len, most).bytes);
    const uint32_t rows = (uint32_t)o->kv_heads * parts, places = (uint32_t)(sms * blocks);
    const uint32_t side =
        places / (rows * (uint32_t)o->tokens); /* blocks of a token and head that run at once */
    const char *stream = stream_kernel(o, compute);
    if (stream && o->chunks > 1 && ((uint32_t)o->chunks > side || o->chunks > MO_PLANES_MERGED)) {
        out[0] = (mo_cuda_launch){.kernel = stream,
                                  .prelaunch = true,
                                  .grid = {side < 1 ? 1 : side, rows, (uint32_t)o->tokens},
                                  .block = {MO_PLANES_THREADS, 1, 1},
                                  .shared = (uint32_t)mo_planes_stream_lay(o->k_len, most).bytes};
    } else {
        out[0] = (mo_cuda_launch){.kernel = chunk_kernel(o),
                                  .prelaunch = true,
                                  .grid = {(uint32_t)o->chunks, rows, (uint32_t)o->tokens},
                                  .block = {MO_PLANES_THREADS, 1, 1},
                                  .shared = (uint32_t)mo_planes_lay(o->k_len, o->v_len, o->tail, most).bytes};
    }
    out[1] = merging(o, compute);
    return o->chunks == 1 ? 1 : 2; /* a single chunk is finished by whoever made it */
}

/* ---- Many tokens ---- */

/* Tiles of 64 queries: which kernel, and its size. */
typedef struct tile {
    const char *kernel; /* NULL: none for these lengths */
    uint32_t threads;
    int shared;
    bool codes; /* makes those of the mixed rows */
} tile;

/* Shared memory that it may have. */
static int tile_limit(int compute)
{
    return compute == 90 || compute == 100 ? 227 * 1024 : mo_attend_shared(compute);
}

static tile tile_of(const mo_op_attend *o, int compute)
{
    const tile small = {.threads = MO_PLANES_TILE_THREADS,
                        .shared = mo_planes_tile_lay(o->k_len, compute == 90).bytes};
    const tile wide = {
        .threads = (uint32_t)o->k_len, .shared = mo_planes_wide_lay(o->k_len).bytes, .codes = true};
    tile t = o->k_len < 256 ? small : wide;
    if (o->k_len != o->v_len || o->heads / o->kv_heads > MO_PLANES_TILE_ROWS ||
        t.shared > tile_limit(compute)) {
        return t;
    }
    switch (o->k_len) {
    case 64: t.kernel = "mo_planes_tile_64"; break;
    case 80: t.kernel = "mo_planes_tile_80"; break;
    case 96: t.kernel = "mo_planes_tile_96"; break;
    case 128: t.kernel = "mo_planes_tile_128"; break;
    case 256: t.kernel = "mo_planes_tile_256"; break;
    case 512: t.kernel = "mo_planes_tile_512"; break;
    default: break;
    }
    return t;
}

/* Latent rows whose lengths have a tile of their own. */
static bool latent_tile(const mo_op_attend *o, int compute)
{
    return o->tail == MO_PLANES_LATENT_TAIL && o->v_len == MO_PLANES_LATENT_VALUE && o->kv_heads == 1 &&
           mo_planes_latent_lay().bytes <= tile_limit(compute);
}

static int many(const mo_op_attend *o, int compute, const tile *t, mo_cuda_launch *out)
{
    const int group = o->heads / o->kv_heads;
    if (t->kernel) { /* blocks (tile of tokens, KV head) */
        out[0] = (mo_cuda_launch){
            .kernel = t->kernel,
            .grid = {pieces(o->tokens, MO_PLANES_TILE_ROWS / group), (uint32_t)o->kv_heads, 1},
            .block = {t->threads, 1, 1},
            .shared = (uint32_t)t->shared};
        return 1;
    }
    const int64_t queries = (int64_t)o->tokens * group;
    if (latent_tile(o, compute)) {
        out[0] = (mo_cuda_launch){.kernel = "mo_planes_latent",
                                  .grid = {pieces(queries, MO_PLANES_TILE_ROWS), 1, 1},
                                  .block = {MO_PLANES_LATENT_THREADS, 1, 1},
                                  .shared = (uint32_t)mo_planes_latent_lay().bytes};
        return 1;
    }
    const uint32_t blocks = pieces(
        queries, mo_planes_rows(o->k_len, o->v_len, o->tail, MO_PLANES_ROWS, mo_attend_shared(compute)));
    const int most = (int)pieces(queries, blocks);
    out[0] = (mo_cuda_launch){.kernel = "mo_planes_rows",
                              .grid = {blocks, (uint32_t)o->kv_heads, 1},
                              .block = {MO_PLANES_THREADS, 1, 1},
                              .shared = (uint32_t)mo_planes_lay(o->k_len, o->v_len, o->tail, most).bytes};
    return 1;
}

int mo_cuda_launch_planes(const mo_op_attend *o, int compute, int sms, bool by_chunks, mo_cuda_launch *out,
                          bool *codes_missing)
{
    const tile t = tile_of(o, compute);
    *codes_missing = o->v_len % 32 != 0 || (!by_chunks && t.kernel && !t.codes);
    return by_chunks ? few(o, compute, sms, out) : many(o, compute, &t, out);
}
