/* Mamba: the selective state spaces of its two kinds. A causal convolution with bias and silu; then the scan, in which
 * a channel keeps `states` values that decay and take in x * b, and reads them by c; then the gate silu(z).
 * In the first kind every value of every channel has a decay of its own; in the second the channels of a head share
 * one, and the gated row is normed in groups. */
#ifndef MO_NUMERIC_MAMBA_H
#define MO_NUMERIC_MAMBA_H

#include "numeric/kernels.h"

/* Most taps, and channels of a piece. */
enum { MO_MAMBA_TAPS = 16, MO_MAMBA_PIECE = 64 };

/* ---- Convolution ---- */

typedef struct mo_mamba_conv {
    int taps;
    int64_t channels;
    const float *weight; /* [taps][channels], tap 0 the oldest */
    const float *bias;   /* [channels] */
} mo_mamba_conv;

static inline int64_t mo_mamba_pieces(int64_t channels)
{
    return (channels + MO_MAMBA_PIECE - 1) / MO_MAMBA_PIECE;
}

/* One piece of the channels of a slice: after[tokens][channels] = silu(convolution + bias) of before[tokens][channels].
 * kept[taps - 1][channels] is what came before the slice, and then what its next step looks back to. Pieces do not
 * touch each other. */
void mo_mamba_convolve(const mo_kernels *k, const mo_mamba_conv *conv, int64_t piece, const float *before,
                       int64_t tokens, float *kept, float *after);

/* ---- Scan ---- */

typedef struct mo_mamba_rule {
    int64_t inner, states;
    int heads;            /* of inner / heads channels; 0: the first kind */
    int groups;           /* of b and c: head h reads group h div (heads / groups). The first kind has one */
    float eps;            /* of norms */
    const float *a, *d;   /* first: [states][inner], [inner]; second: [heads], [heads] */
    const float *dt_bias; /* second: [heads] */
    const float *norm;    /* second: [inner] */
} mo_mamba_rule;

/* Rows of a slice, of its first token. */
typedef struct mo_mamba_rows {
    const float *x;   /* [inner], */
    int64_t x_stride; /* and floats to the next token's */
    const float *bc;  /* b [groups][states], then c */
    int64_t bc_stride;
    const float *dt; /* [tokens][inner], or [heads] in the second kind */
    const float *z;  /* [tokens][inner] */
    float *y;        /* [tokens][inner]; may be x */
} mo_mamba_rows;

/* How many pieces of a slice can be scanned side by side. */
static inline int64_t mo_mamba_scan_pieces(int64_t inner, int heads)
{
    return heads ? heads : mo_mamba_pieces(inner);
}

/* One piece of a slice, token after token: y = scan(x) * silu(z), not yet normed. state: first [states][inner], second
 * [heads][states][inner / heads]. */
void mo_mamba_scan(const mo_kernels *k, const mo_mamba_rule *r, int64_t piece, const mo_mamba_rows *rows,
                   int64_t tokens, float *state);

/* The same, but the state stays as it was: the piece is scanned in a copy with this many floats. */
int64_t mo_mamba_copy_values(int64_t inner, int64_t states, int heads);
void mo_mamba_scan_copy(const mo_kernels *k, const mo_mamba_rule *r, int64_t piece, const mo_mamba_rows *rows,
                        int64_t tokens, const float *state, float *copy);

/* A token's row when all of its pieces are there: the second kind's norm. */
void mo_mamba_finish(const mo_kernels *k, const mo_mamba_rule *r, float *y);

/* The first kind: of a token's row, dt[rank], b[states] and c[states], each is normed: dt into `dt`, the others where
 * they are. */
void mo_mamba_parts(const mo_kernels *k, float *row, int64_t rank, int64_t states, const float *dt_norm,
                    const float *b_norm, const float *c_norm, float eps, float *dt);

#endif
