#include "base/status.h"
#include "device/cuda/launch.h"

enum {
    SHORT = 4096, /* values that 1024 threads hold in one quad each */
    LONG = 16384, /* in four */
    MANY = 64,    /* tokens from which half of the threads hold a short row */
    ACTIVATE_THREADS = 256,
    LOGITS_THREADS = 256,
    LOGITS_EACH = 8,         /* logits of a thread */
    PUBLISH_ONE = 64 * 1024, /* bytes that one block copies */
    PUBLISH_PIECE = 16 * 1024,
    PUBLISH_BLOCKS = 64,
    AWAIT_PIECE = 16 * 1024, /* bytes in flight of one block: a handful of them fill a PCIe link */
    AWAIT_BLOCKS = 16,
};

static uint32_t pieces(int64_t count, int64_t size)
{
    return (uint32_t)((count + size - 1) / size);
}

static bool wide(mo_daddr all, int n)
{
    return n % 4 == 0 && (all & 15) == 0;
}

static int stream(const mo_op_stream *o, mo_cuda_launch *out, mo_error *err)
{
    if (o->n > LONG) {
        mo_fail(err, MO_EUNSUPPORTED,
                "the GPU kernels support rows of at most %d values, but this model has %d; run it with "
                "`device` none",
                LONG, o->n);
        return -1;
    }
    if (o->used > MO_OP_USED) {
        mo_fail(err, MO_EUNSUPPORTED,
                "the GPU kernels merge at most %d experts per token, but this model uses %d", MO_OP_USED,
                o->used);
        return -1;
    }
    mo_daddr all = o->features | o->x | o->y | o->y_norm | o->down | o->shared | o->dense | o->dense_norm |
                   o->moe_norm | o->post_norm;
    for (int i = 0; i < MO_OP_NORMS; i++) {
        all |= o->norm[i].weight | o->norm[i].multiply | o->norm[i].add | o->norm[i].out.x;
    }
    const uint32_t quads = pieces(o->n, 4);
    const bool many = o->tokens >= MANY && o->n <= SHORT && wide(all, o->n);
    const uint32_t most = pieces(quads, many ? 64 : 32) * 32, threads = most > 1024 ? 1024 : most;
    *out = (mo_cuda_launch){.kernel = many               ? "mo_stream_many"
                                      : !wide(all, o->n) ? "mo_stream_odd"
                                      : o->n <= SHORT    ? "mo_stream_short"
                                                         : "mo_stream_long",
                            .prelaunch = true,
                            .patient = true,
                            .grid = {(uint32_t)o->tokens, 1, 1},
                            .block = {threads, 1, 1},
                            .shared = quads * 16};
    return 1;
}

static int activate(const mo_op_activate *o, mo_cuda_launch *out)
{
    *out = (mo_cuda_launch){.kernel =
                                wide(o->gate | o->up | o->hidden.x, o->n) ? "mo_activate" : "mo_activate_odd",
                            .prelaunch = true,
                            .patient = true,
                            .grid = {(uint32_t)o->rows, pieces(o->n, 4 * ACTIVATE_THREADS), 1},
                            .block = {ACTIVATE_THREADS, 1, 1}};
    return 1;
}

static int publish(const mo_op_publish *o, mo_cuda_launch *out)
{
    int64_t bytes = 0;
    for (int i = 0; i < o->ranges; i++) {
        bytes += o->bytes[i];
    }
    if (bytes <= PUBLISH_ONE) {
        *out = (mo_cuda_launch){
            .kernel = "mo_publish", .prelaunch = true, .grid = {1, 1, 1}, .block = {1024, 1, 1}};
        return 1;
    }
    const uint32_t blocks = pieces(bytes, PUBLISH_PIECE);
    out[0] = (mo_cuda_launch){.kernel = "mo_publish_copy",
                              .prelaunch = true,
                              .grid = {blocks < PUBLISH_BLOCKS ? blocks : PUBLISH_BLOCKS, 1, 1},
                              .block = {1024, 1, 1}};
    out[1] = (mo_cuda_launch){
        .kernel = "mo_publish_flag", .prelaunch = true, .grid = {1, 1, 1}, .block = {1, 1, 1}};
    return 2;
}

static int await(const mo_op_await *o, mo_cuda_launch *out)
{
    const uint32_t blocks = pieces((int64_t)o->most * o->n * (int64_t)sizeof(float), AWAIT_PIECE);
    *out = (mo_cuda_launch){.kernel = "mo_await",
                            .prelaunch = true,
                            .grid = {blocks < 1              ? 1
                                     : blocks < AWAIT_BLOCKS ? blocks
                                                             : AWAIT_BLOCKS,
                                     1, 1},
                            .block = {512, 1, 1}};
    return 1;
}

/* Blocks (some of a row, row). */
static int logits(const mo_op_logits *o, mo_cuda_launch *out)
{
    const int64_t cols = o->best ? o->cols : o->count;
    *out =
        (mo_cuda_launch){.kernel = "mo_logits",
                         .prelaunch = true,
                         .grid = {pieces(cols, LOGITS_THREADS * LOGITS_EACH), (uint32_t)(o->count / cols), 1},
                         .block = {LOGITS_THREADS, 1, 1}};
    return 1;
}

int mo_cuda_launch_stream(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    (void)compute;
    (void)sms;
    switch (op->kind) {
    case MO_OP_STREAM: return op->stream.tokens > 0 ? stream(&op->stream, out, err) : 0;
    case MO_OP_ACTIVATE: return op->activate.rows > 0 ? activate(&op->activate, out) : 0;
    case MO_OP_LOGITS: return op->logits.count > 0 ? logits(&op->logits, out) : 0;
    case MO_OP_PUBLISH: return publish(&op->publish, out);
    case MO_OP_AWAIT: return await(&op->await, out);
    default: mo_fail(err, MO_EINVAL, "op %d has no stream kernel", (int)op->kind); return -1;
    }
}
