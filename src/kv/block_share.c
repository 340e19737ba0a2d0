#include "kv/block_share.h"

int64_t mo_block_aligned(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Sums and products saturate. */
static int64_t plus(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t mo_block_share_states(const mo_block_share *s)
{
    return s->states > 1 ? s->states : 1;
}

int64_t mo_block_share_total(const mo_block_share *s, int layer)
{
    return s->total ? s->total[layer] : times(mo_block_share_states(s), s->needs[layer].count);
}

/* States that have a home. */
int64_t mo_block_share_homes(const mo_block_share *s)
{
    int64_t homes = mo_block_share_states(s);
    for (int i = 0; i < s->layers; i++) {
        const int64_t fit = s->needs[i].count ? mo_block_share_total(s, i) / s->needs[i].count : homes;
        homes = fit < homes ? fit : homes;
    }
    return homes;
}

static int64_t chunk_bytes_of(const mo_block_share *s)
{
    int64_t most = 64;
    for (int i = 0; i < s->layers; i++) {
        most = mo_block_aligned(s->needs[i].bytes) > most ? mo_block_aligned(s->needs[i].bytes) : most;
    }
    return most;
}

int64_t mo_block_share_layer(const mo_block_share *s, int layer)
{
    return times(mo_block_share_total(s, layer), mo_block_aligned(s->needs[layer].bytes));
}

int64_t mo_block_share_kept(int64_t kept_bytes, int64_t unit, int64_t part, int64_t all)
{
    const double share = all > 0 ? (double)part / (double)all : 1.0;
    return part < all ? (int64_t)((double)kept_bytes * share) / unit * unit : kept_bytes / unit * unit;
}

int64_t mo_block_share_bytes(const mo_block_share *s)
{
    const int64_t unit = chunk_bytes_of(s);
    int64_t bytes = s->kept_bytes / unit * unit;
    for (int i = 0; i < s->layers; i++) {
        bytes = plus(bytes, mo_block_share_layer(s, i));
    }
    return bytes;
}
