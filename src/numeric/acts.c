#include "numeric/acts.h"

static size_t padded(int64_t count, size_t bytes)
{
    return ((size_t)count * bytes + 63) / 64 * 64;
}

size_t mo_acts_bytes(int64_t rows, int64_t cols)
{
    const int64_t blocks = (cols + 31) / 32;
    return padded(rows * cols, sizeof(float)) + padded(rows * cols, 1) +
           padded(rows * blocks, sizeof(float)) * 2 + padded(rows * blocks, sizeof(int32_t)) +
           padded(rows * blocks * 2, sizeof(int16_t));
}

mo_acts mo_acts_lay(void *memory, int64_t rows, int64_t cols)
{
    const int64_t blocks = (cols + 31) / 32;
    uint8_t *p = memory;
    mo_acts a = {.rows = rows, .cols = cols};
    a.x = (float *)p;
    p += padded(rows * cols, sizeof(float));
    a.q = (int8_t *)p;
    p += padded(rows * cols, 1);
    a.d = (float *)p;
    p += padded(rows * blocks, sizeof(float));
    a.s = (float *)p;
    p += padded(rows * blocks, sizeof(float));
    a.sum = (int32_t *)p;
    p += padded(rows * blocks, sizeof(int32_t));
    a.half_sum = (int16_t *)p;
    return a;
}

mo_acts mo_acts_from(const mo_acts *a, int64_t first)
{
    const int64_t blocks = a->cols / 32;
    mo_acts r = *a;
    r.rows -= first;
    if (a->x) {
        r.x += first * a->cols;
    }
    if (a->q) {
        r.q += first * a->cols;
        r.d += first * blocks;
        r.s += first * blocks;
        r.sum += first * blocks;
        r.half_sum += 2 * first * blocks;
    }
    return r;
}

void mo_acts_sums(const mo_acts *a, int64_t row)
{
    const int64_t blocks = a->cols / 32;
    for (int64_t b = row * blocks; b < (row + 1) * blocks; b++) {
        int32_t halves[2] = {0, 0};
        for (int i = 0; i < 32; i++) {
            halves[i / 16] += a->q[32 * b + i];
        }
        a->half_sum[2 * b] = (int16_t)halves[0];
        a->half_sum[2 * b + 1] = (int16_t)halves[1];
        a->sum[b] = halves[0] + halves[1];
        a->s[b] = a->d[b] * (float)a->sum[b];
    }
}
