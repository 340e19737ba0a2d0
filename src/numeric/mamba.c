#include "numeric/mamba.h"

#include <string.h>

#include "numeric/math.h"

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What the next step looks back to. */
static void keep(const mo_mamba_conv *c, int64_t first, int64_t count, const float *before, int64_t tokens,
                 float *kept)
{
    const int64_t all = c->taps - 1, stay = all > tokens ? all - tokens : 0;
    for (int64_t j = 0; j < all; j++) {
        const float *from =
            j < stay ? kept + (j + all - stay) * c->channels : before + (tokens - all + j) * c->channels;
        memcpy(kept + j * c->channels + first, from + first, sizeof(float) * (size_t)count);
    }
}

void mo_mamba_convolve(const mo_kernels *k, const mo_mamba_conv *conv, int64_t piece, const float *before,
                       int64_t tokens, float *kept, float *after)
{
    const int64_t n = conv->channels, first = piece * MO_MAMBA_PIECE, back = conv->taps - 1;
    const int64_t count = min64(n - first, MO_MAMBA_PIECE);
    const float *rows[MO_MAMBA_TAPS];
    for (int64_t t = 0; t < tokens; t++) {
        float *y = after + t * n + first;
        for (int64_t j = 0; j <= back; j++) {
            const int64_t at = t - back + j;
            rows[j] = (at >= 0 ? before + at * n : kept + (t + j) * n) + first;
        }
        k->convolve(y, rows, conv->weight + first, conv->taps, n, count);
        k->add(y, conv->bias + first, count);
        k->silu(y, y, count);
    }
    keep(conv, first, count, before, tokens, kept);
}

static void scan_channels(const mo_kernels *k, const mo_mamba_rule *r, int64_t first,
                          const mo_mamba_rows *rows, int64_t tokens, float *state)
{
    const int64_t count = min64(r->inner - first, MO_MAMBA_PIECE);
    float dt[MO_MAMBA_PIECE];
    for (int64_t t = 0; t < tokens; t++) {
        const float *b = rows->bc + t * rows->bc_stride;
        float *y = rows->y + t * r->inner + first;
        k->softplus(dt, rows->dt + t * r->inner + first, count);
        k->scan(state + first, r->states, r->inner, r->a + first, dt, rows->x + t * rows->x_stride + first, b,
                b + r->states, r->d + first, y, count);
        k->swiglu(y, rows->z + t * r->inner + first, y, count);
    }
}

static void scan_head(const mo_kernels *k, const mo_mamba_rule *r, int h, const mo_mamba_rows *rows,
                      int64_t tokens, float *state)
{
    const int64_t count = r->inner / r->heads, first = h * count; /* state: of the head */
    const int64_t group = h / (r->heads / r->groups) * r->states, all = r->groups * r->states;
    for (int64_t t = 0; t < tokens; t++) {
        const float dt = mo_softplus(rows->dt[t * r->heads + h] + r->dt_bias[h]);
        const float *b = rows->bc + t * rows->bc_stride + group;
        float *y = rows->y + t * r->inner + first;
        const mo_scan_head token = {.decay = mo_exp(dt * r->a[h]),
                                    .dt = dt,
                                    .d = r->d[h],
                                    .x = rows->x + t * rows->x_stride + first,
                                    .b = b,
                                    .c = b + all};
        k->scan_head(state, r->states, count, &token, y);
        k->swiglu(y, rows->z + t * r->inner + first, y, count);
    }
}

void mo_mamba_scan(const mo_kernels *k, const mo_mamba_rule *r, int64_t piece, const mo_mamba_rows *rows,
                   int64_t tokens, float *state)
{
    if (r->heads) {
        scan_head(k, r, (int)piece, rows, tokens, state + piece * (r->inner / r->heads) * r->states);
    } else {
        scan_channels(k, r, piece * MO_MAMBA_PIECE, rows, tokens, state);
    }
}

int64_t mo_mamba_copy_values(int64_t inner, int64_t states, int heads)
{
    return heads ? inner / heads * states : inner * states;
}

void mo_mamba_scan_copy(const mo_kernels *k, const mo_mamba_rule *r, int64_t piece, const mo_mamba_rows *rows,
                        int64_t tokens, const float *state, float *copy)
{
    if (r->heads) {
        const int64_t values = r->inner / r->heads * r->states;
        memcpy(copy, state + piece * values, sizeof(float) * (size_t)values);
        scan_head(k, r, (int)piece, rows, tokens, copy);
        return;
    }
    const int64_t first = piece * MO_MAMBA_PIECE, count = min64(r->inner - first, MO_MAMBA_PIECE);
    for (int64_t s = 0; s < r->states; s++) { /* the others are not looked at */
        memcpy(copy + s * r->inner + first, state + s * r->inner + first, sizeof(float) * (size_t)count);
    }
    scan_channels(k, r, first, rows, tokens, copy);
}

void mo_mamba_finish(const mo_kernels *k, const mo_mamba_rule *r, float *y)
{
    const int64_t count = r->heads ? r->inner / r->groups : r->inner;
    for (int64_t i = 0; r->heads && i < r->inner; i += count) {
        k->rms_norm(y + i, y + i, r->norm + i, count, r->eps);
    }
}

void mo_mamba_parts(const mo_kernels *k, float *row, int64_t rank, int64_t states, const float *dt_norm,
                    const float *b_norm, const float *c_norm, float eps, float *dt)
{
    float *b = row + rank, *c = b + states;
    k->rms_norm(dt, row, dt_norm, rank, eps);
    k->rms_norm(b, b, b_norm, states, eps);
    k->rms_norm(c, c, c_norm, states, eps);
}
