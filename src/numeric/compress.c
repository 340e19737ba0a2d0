#include "numeric/compress.h"

#include <string.h>

/* Gates become shares: of every channel over the rows. */
static void share(const mo_kernels *k, const float *const *gates, int64_t rows, int64_t n, float *weights)
{
    float column[MO_COMPRESS_ROWS];
    for (int64_t i = 0; i < n; i++) {
        for (int64_t r = 0; r < rows; r++) {
            column[r] = gates[r][i];
        }
        k->softmax(column, rows);
        for (int64_t r = 0; r < rows; r++) {
            weights[r * n + i] = column[r];
        }
    }
}

bool mo_compress(const mo_kernels *k, const mo_compress_rule *r, const float *const *values,
                 const float *const *gates, int64_t rows, int64_t position, float *c, float *s,
                 float *weights, float *key)
{
    const int64_t n = r->length, n_rot = 2 * r->rope->pairs;
    share(k, gates, rows, n, weights);
    memset(key, 0, sizeof *key * (size_t)n);
    for (int64_t row = 0; row < rows; row++) {
        float *weighted = weights + row * n;
        k->multiply(weighted, values[row], n);
        k->add(key, weighted, n);
    }
    k->rms_norm(key, key, r->norm, n, r->eps);
    mo_rope_fill(r->rope, position, c, s);
    k->rope(key + n - n_rot, c, s, n_rot, false);
    return k->finite(key, n);
}
