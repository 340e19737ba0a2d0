#include "base/sweep.h"

#include <stdatomic.h>

#include "base/clock.h"

typedef uint64_t words __attribute__((vector_size(64)));

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
uint64_t
mo_sweep_read(const void *memory, size_t bytes)
{
    const words *p = memory;
    words a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i + 8 <= bytes / sizeof *p; i += 8) {
        a += p[i] ^ p[i + 1];
        b += p[i + 2] ^ p[i + 3];
        c += p[i + 4] ^ p[i + 5];
        d += p[i + 6] ^ p[i + 7];
    }
    a += b + c + d;
    return a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}

enum { PIECE = 1 << 20 };

typedef struct job {
    const uint8_t *memory;
    size_t bytes;
    _Atomic uint64_t checksum;
} job;

static void read_pieces(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    job *j = ctx;
    const size_t from = (size_t)begin * PIECE;
    const size_t to = (size_t)end * PIECE < j->bytes ? (size_t)end * PIECE : j->bytes;
    atomic_fetch_add_explicit(&j->checksum, mo_sweep_read(j->memory + from, to - from), memory_order_relaxed);
}

double mo_sweep_rate(mo_pool *pool, const void *memory, size_t bytes)
{
    job j = {.memory = memory, .bytes = bytes};
    const int64_t start = mo_clock_ns();
    mo_pool_run(pool, (int64_t)((bytes + PIECE - 1) / PIECE), 1, read_pieces, &j);
    const int64_t spent = mo_clock_ns() - start;
    return (double)bytes / (double)(spent > 0 ? spent : 1);
}
