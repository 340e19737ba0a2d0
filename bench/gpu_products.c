/* gpu_products [INDEX] [TOKENS] [ONLY]: how fast a GPU's products read matrices, at the shapes of some models, against a
 * plain copy of its memory; of more than 64 tokens, a prompt's, how many operations they make, and a hash of what they give. ONLY: part of the
 * names of what is measured. Every figure is the best of several runs of a program of many ops, each on
 * another copy of its matrices, so that no cache holds them. Experts: up to 8 tokens row by row, as a worklist; from 2 tokens
 * on in groups, every token with other experts, drawn at random. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"
#include "device/device.h"
#include "gpu_memory.h"
#include "numeric/acts.h"
#include "numeric/format.h"
#include "numeric/kinds.h"

enum {
    ROUNDS = 7,
    OPS = 40,
    PROMPT_OPS = 4,
    FEW = 64,
    TOKENS_MAX = 8192,
    WORKLIST_TOKENS = 8,
    USED_MAX = 8,
    EXPERTS_MAX = 256
};

#define POOL_BYTES ((int64_t)2 << 30) /* of matrices: far more than any cache */
#define HASHED     ((int64_t)1 << 22) /* floats of the outputs */
#define OUT_FLOATS ((int64_t)1 << 28)

typedef struct bench {
    mo_device *device;
    mo_dstream *stream;
    mo_event *from, *to;
    mo_daddr pool, acts, hidden, y, work;
    int64_t at; /* in the pool */
    double copy_rate;
} bench;

/* ---- Memory ---- */

/* Noise that no format minds: scales are small numbers in every place where one may be. */
static void fill(bench *b, mo_daddr memory, int64_t bytes)
{
    enum { PIECE = 16 << 20 };
    uint8_t *noise = malloc(PIECE);
    mo_error err = {0};
    uint64_t seed = 1;
    for (int64_t i = 0; noise && i < PIECE; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        noise[i] = (uint8_t)((seed >> 33) & 0x3B);
    }
    for (int64_t at = 0; noise && at < bytes; at += PIECE) {
        const int64_t left = bytes - at;
        check(
            mo_copy_in(b->stream, memory + (mo_daddr)at, noise, (size_t)(left < PIECE ? left : PIECE), &err),
            &err);
    }
    check(mo_dstream_wait(b->stream, &err), &err);
    free(noise);
}

/* The next so many bytes of the pool, again from its start when they are used up. */
static mo_daddr next_bytes(bench *b, int64_t bytes)
{
    bytes = (bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    b->at = b->at + bytes > POOL_BYTES ? 0 : b->at;
    b->at += bytes;
    return b->pool + (mo_daddr)(b->at - bytes);
}

/* ---- Timing ---- */

/* Seconds of one op, when several run after each other. */
static double time_ops(bench *b, const mo_op *ops, int count)
{
    mo_error err = {0};
    mo_program *program = NULL;
    double best = 1e9;
    check(mo_program_create(b->device, ops, count, &program, &err), &err);
    for (int i = 0; i <= ROUNDS; i++) {
        double seconds = 0;
        check(mo_event_record(b->from, b->stream, &err), &err);
        check(mo_program_run(program, b->stream, &err), &err);
        check(mo_event_record(b->to, b->stream, &err), &err);
        check(mo_dstream_wait(b->stream, &err), &err);
        check(mo_event_seconds(b->from, b->to, &seconds, &err), &err);
        best = i > 0 && seconds < best ? seconds : best;
    }
    mo_program_destroy(program);
    return best / count;
}

/* One op once more. */
static void check_run(bench *b, const mo_op *op)
{
    mo_error err = {0};
    check(mo_device_clear(b->stream, b->y, OUT_FLOATS * 4, &err), &err);
    check(mo_op_launch(b->stream, op, &err), &err);
    check(mo_dstream_wait(b->stream, &err), &err);
}

static double time_copy(bench *b)
{
    mo_error err = {0};
    double best = 1e9;
    for (int i = 0; i <= ROUNDS; i++) {
        double seconds = 0;
        check(mo_event_record(b->from, b->stream, &err), &err);
        check(mo_copy_within(b->stream, b->pool, b->pool + POOL_BYTES / 2, POOL_BYTES / 2, &err), &err);
        check(mo_event_record(b->to, b->stream, &err), &err);
        check(mo_dstream_wait(b->stream, &err), &err);
        check(mo_event_seconds(b->from, b->to, &seconds, &err), &err);
        best = i > 0 && seconds < best ? seconds : best;
    }
    return (double)POOL_BYTES / best; /* half of it read, as much written */
}

/* FNV-1a of the first floats of the outputs. */
static uint64_t hash_outputs(bench *b, int64_t floats)
{
    uint32_t *y = malloc((size_t)floats * 4);
    uint64_t hash = 0xCBF29CE484222325u;
    mo_error err = {0};
    if (y) {
        check(mo_copy_out(b->stream, y, b->y, (size_t)floats * 4, &err), &err);
        check(mo_dstream_wait(b->stream, &err), &err);
    }
    for (int64_t i = 0; y && i < floats; i++) {
        hash = (hash ^ y[i]) * 0x100000001B3u;
    }
    free(y);
    return hash;
}

/* A prompt's product: multiplications and additions of so many rows, columns and tokens. */
static void report_prompt(const char *name, double macs, double seconds, uint64_t hash)
{
    printf("%-42s %9.1f us %7.1f TOPS  %016llx\n", name, seconds * 1e6, 2 * macs / seconds * 1e-12,
           (unsigned long long)hash);
}

static void report(const bench *b, const char *name, int64_t bytes, double seconds)
{
    const double rate = (double)bytes / seconds;
    printf("%-34s %9.2f MB %9.2f us %8.0f GB/s %5.0f %% of a copy\n", name, (double)bytes * 1e-6,
           seconds * 1e6, rate * 1e-9, 100 * rate / b->copy_rate);
}

/* ---- Products ---- */

typedef struct product {
    const char *name;
    int cols, count;
    struct {
        mo_type type;
        int rows;
    } matrix[3];
} product;

static const product products[] = {
    {"gpt-oss q k v (Q8_0)", 2880, 3, {{MO_Q8_0, 4096}, {MO_Q8_0, 512}, {MO_Q8_0, 512}}},
    {"gpt-oss attention out (Q8_0)", 4096, 1, {{MO_Q8_0, 2880}}},
    {"gpt-oss router (F32)", 2880, 1, {{MO_F32, 32}}},
    {"gpt-oss output (Q8_0)", 2880, 1, {{MO_Q8_0, 201088}}},
    {"Qwen3 q k v (Q4_K, Q6_K)", 2048, 3, {{MO_Q4_K, 4096}, {MO_Q4_K, 512}, {MO_Q6_K, 512}}},
    {"Qwen3 attention out (Q4_K)", 4096, 1, {{MO_Q4_K, 2048}}},
    {"Qwen3 router (F32)", 2048, 1, {{MO_F32, 128}}},
    {"Qwen3 output (Q6_K)", 2048, 1, {{MO_Q6_K, 151936}}},
    {"Llama-3-8B down (Q8_0)", 14336, 1, {{MO_Q8_0, 4096}}},
    {"Llama-3-70B down (Q6_K)", 28672, 1, {{MO_Q6_K, 8192}}},
    {"Qwen3.6 delta in (Q5_K, Q4_K)", 2048, 2, {{MO_Q5_K, 8192}, {MO_Q4_K, 4096}}},
    {"Qwen3.6 router (F32)", 2048, 1, {{MO_F32, 256}}},
    {"Gemma-4 dense down (Q5_0)", 2112, 1, {{MO_Q5_0, 2816}}},
};

static void bench_product(bench *b, const product *p, int tokens)
{
    static mo_op ops[OPS];
    const int count = tokens > FEW ? PROMPT_OPS : OPS;
    int64_t bytes = 0, floats = 0;
    for (int i = 0; i < count; i++) {
        bytes = floats = 0;
        ops[i] = (mo_op){
            .kind = MO_OP_PRODUCT,
            .product = {.in = acts_at(b->acts, tokens, p->cols), .tokens = tokens, .count = p->count}};
        for (int m = 0; m < p->count; m++) {
            const mo_type type = p->matrix[m].type;
            const int rows = p->matrix[m].rows;
            const int64_t size = rows * mo_format_row_bytes(mo_format_of((uint32_t)type), p->cols);
            ops[i].product.matrix[m] =
                (mo_dmatrix){.data = next_bytes(b, size), .type = type, .rows = rows, .cols = p->cols};
            ops[i].product.y[m] = b->y + 4 * (mo_daddr)floats;
            ops[i].product.stride[m] = rows;
            bytes += size;
            floats += (int64_t)tokens * rows;
        }
    }
    if (tokens <= FEW) {
        report(b, p->name, bytes, time_ops(b, ops, count));
        return;
    }
    const double seconds = time_ops(b, ops, count);
    check_run(b, ops);
    report_prompt(p->name, (double)floats * p->cols, seconds,
                  hash_outputs(b, floats < HASHED ? floats : HASHED));
}

/* ---- Experts ---- */

typedef struct experts {
    const char *name;
    mo_type in, down;
    int width, hidden, experts, used;
    mo_activation activation;
} experts;

static const experts layers[] = {
    {"gpt-oss experts (MXFP4)", MO_MXFP4, MO_MXFP4, 2880, 2880, 32, 4, MO_SWIGLU_OSS},
    {"Qwen3 experts (Q4_K)", MO_Q4_K, MO_Q4_K, 2048, 768, 128, 8, MO_SWIGLU},
    {"Qwen3 experts (Q4_K, down Q6_K)", MO_Q4_K, MO_Q6_K, 2048, 768, 128, 8, MO_SWIGLU},
    {"Gemma-4 experts (Q4_K, down Q5_0)", MO_Q4_K, MO_Q5_0, 2816, 704, 128, 8, MO_SWIGLU},
    {"Qwen3.6 experts (Q4_K, down Q6_K)", MO_Q4_K, MO_Q6_K, 2048, 512, 256, 8, MO_SWIGLU},
    {"Qwen3.6 experts (NVFP4)", MO_NVFP4, MO_NVFP4, 2048, 512, 256, 8, MO_SWIGLU},
};

typedef struct worklist {
    mo_dwork head;
    mo_dwork_item item[WORKLIST_TOKENS * USED_MAX];
} worklist;

static void bench_experts(bench *b, const experts *e, int tokens)
{
    static mo_op in[OPS], down[OPS], both[2 * OPS];
    static worklist work[OPS];
    const int64_t part = e->hidden * mo_format_row_bytes(mo_format_of((uint32_t)e->in), e->width);
    const int64_t last = e->width * mo_format_row_bytes(mo_format_of((uint32_t)e->down), e->hidden);
    const int64_t up_at = (part + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    const int rows = tokens * e->used;
    mo_error err = {0};
    memset(work, 0, sizeof work);
    for (int i = 0; i < OPS; i++) {
        work[i].head.count = rows;
        for (int r = 0; r < rows; r++) {
            work[i].item[r] =
                (mo_dwork_item){.base = next_bytes(b, 2 * up_at + last), .token = r / e->used, .row = r};
        }
        in[i] = (mo_op){.kind = MO_OP_EXPERTS_IN,
                        .experts = {.work = b->work + (mo_daddr)((size_t)i * sizeof *work),
                                    .most = rows,
                                    .activation = e->activation,
                                    .in = acts_at(b->acts, tokens, e->width),
                                    .hidden = acts_at(b->hidden, rows, e->hidden),
                                    .gate = {.type = e->in, .rows = e->hidden, .cols = e->width},
                                    .up = {.type = e->in, .rows = e->hidden, .cols = e->width},
                                    .down = {.type = e->down, .rows = e->width, .cols = e->hidden},
                                    .up_at = up_at,
                                    .down_at = 2 * up_at,
                                    .y = b->y}};
        down[i] = in[i];
        down[i].kind = MO_OP_EXPERTS_DOWN;
        both[2 * i] = in[i];
        both[2 * i + 1] = down[i];
    }
    check(mo_copy_in(b->stream, b->work, work, sizeof work, &err), &err);
    char name[96];
    snprintf(name, sizeof name, "%s: in", e->name);
    report(b, name, rows * 2 * part, time_ops(b, in, OPS));
    snprintf(name, sizeof name, "%s: down", e->name);
    report(b, name, rows * last, time_ops(b, down, OPS));
    snprintf(name, sizeof name, "%s: both", e->name);
    report(b, name, rows * (2 * part + last), 2 * time_ops(b, both, 2 * OPS));
}

/* ---- Experts in groups ---- */

typedef struct grouping {
    mo_dgroup part[3][EXPERTS_MAX]; /* of gate, up and down */
    int32_t pick[TOKENS_MAX * USED_MAX];
} grouping;

static mo_daddr grouping_at(const bench *b, int i, size_t offset)
{
    return b->work + (mo_daddr)((size_t)i * sizeof(grouping) + offset);
}

/* Draws `used` experts of each token, then lists every expert's tokens. Returns how many experts have any. */
static int draw(bench *b, const experts *e, int tokens, int64_t up_at, int64_t down_at, int64_t bytes,
                grouping *g)
{
    static uint64_t seed = 5;
    static uint8_t chosen[TOKENS_MAX][EXPERTS_MAX];
    int count = 0, rows = 0;
    memset(chosen, 0, sizeof chosen);
    for (int t = 0; t < tokens; t++) {
        for (int left = e->used; left > 0;) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint8_t *place = &chosen[t][(seed >> 33) % (uint64_t)e->experts];
            left -= !*place;
            *place = 1;
        }
    }
    for (int x = 0; x < e->experts; x++) {
        mo_dgroup own = {.expert = x, .first = rows};
        for (int t = 0; t < tokens; t++) {
            if (chosen[t][x]) {
                g->pick[rows++] = t;
                own.count++;
            }
        }
        if (own.count > 0) {
            const mo_daddr base = next_bytes(b, bytes);
            const mo_daddr at[3] = {base, base + (mo_daddr)up_at, base + (mo_daddr)down_at};
            for (int part = 0; part < 3; part++) {
                g->part[part][count] = own;
                g->part[part][count].data = at[part];
            }
            count++;
        }
    }
    return count;
}

static void bench_groups(bench *b, const experts *e, int tokens)
{
    static mo_op ops[3 * OPS];
    static grouping all[OPS];
    const int64_t in = e->hidden * mo_format_row_bytes(mo_format_of((uint32_t)e->in), e->width);
    const int64_t last = e->width * mo_format_row_bytes(mo_format_of((uint32_t)e->down), e->hidden);
    const int64_t up_at = (in + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    const int rows = tokens * e->used;
    const int layers_count = tokens > FEW ? PROMPT_OPS : OPS;
    int64_t distinct = 0;
    mo_error err = {0};
    for (int i = 0; i < layers_count; i++) {
        const int count = draw(b, e, tokens, up_at, 2 * up_at, 2 * up_at + last, &all[i]);
        distinct += count;
        for (int part = 0; part < 3; part++) {
            const bool down = part == 2;
            ops[3 * i + part] =
                (mo_op){.kind = MO_OP_GROUPED,
                        .grouped = {.in = down ? acts_at(b->hidden, rows, e->hidden)
                                               : acts_at(b->acts, tokens, e->width),
                                    .pick = down ? 0 : grouping_at(b, i, offsetof(grouping, pick)),
                                    .groups = grouping_at(
                                        b, i, offsetof(grouping, part) + (size_t)part * sizeof all->part[0]),
                                    .count = count,
                                    .rows = rows,
                                    .most = tokens,
                                    .matrix = {.type = down ? e->down : e->in,
                                               .rows = down ? e->width : e->hidden,
                                               .cols = down ? e->hidden : e->width},
                                    .y = b->y,
                                    .stride = down ? e->width : e->hidden}};
        }
    }
    check(mo_copy_in(b->stream, b->work, all, sizeof all, &err), &err);
    check(mo_dstream_wait(b->stream, &err), &err);
    char name[96];
    snprintf(name, sizeof name, "%s: groups", e->name);
    if (tokens <= FEW) {
        report(b, name, distinct * (2 * in + last) / OPS, 3 * time_ops(b, ops, 3 * OPS));
        return;
    }
    for (int part = 0; part < 3; part += 2) { /* gate, which is as up, and down */
        mo_op same[PROMPT_OPS];
        for (int i = 0; i < PROMPT_OPS; i++) {
            same[i] = ops[3 * i + part];
        }
        const double seconds = time_ops(b, same, PROMPT_OPS);
        const int64_t floats = rows * same->grouped.stride;
        check_run(b, same);
        snprintf(name, sizeof name, "%s: %s", e->name, part ? "down" : "gate or up");
        report_prompt(name, (double)rows * e->width * e->hidden, seconds,
                      hash_outputs(b, floats < HASHED ? floats : HASHED));
    }
}

int main(int argc, char **argv)
{
    const int index = argc > 1 ? atoi(argv[1]) : 0, tokens = argc > 2 ? atoi(argv[2]) : 1;
    bench b = {0};
    mo_error err = {0};
    if (tokens < 1 || tokens > TOKENS_MAX) {
        fprintf(stderr, "1 to %d tokens\n", TOKENS_MAX);
        return 1;
    }
    check(mo_cuda_open(index, 0, &b.device, &err), &err);
    check(mo_dstream_create(b.device, &b.stream, &err), &err);
    check(mo_event_create(b.device, &b.from, &err), &err);
    check(mo_event_create(b.device, &b.to, &err), &err);
    const char *only = argc > 3 ? argv[3] : "";
    const int64_t acts_bytes = (int64_t)mo_acts_bytes(TOKENS_MAX, 28672);
    b.pool = allocate(b.device, POOL_BYTES);
    b.acts = allocate(b.device, acts_bytes);
    b.hidden = allocate(b.device, acts_bytes);
    b.y = allocate(b.device, OUT_FLOATS * 4);
    b.work = allocate(
        b.device, OPS * (int64_t)(sizeof(worklist) > sizeof(grouping) ? sizeof(worklist) : sizeof(grouping)));
    fill(&b, b.acts, acts_bytes);
    fill(&b, b.hidden, acts_bytes);
    fill(&b, b.pool, POOL_BYTES);
    b.copy_rate = time_copy(&b);
    mo_device_info info;
    mo_device_describe(b.device, &info);
    printf("%s: copies read and write %.0f GB/s; %d tokens\n", info.name, b.copy_rate * 1e-9, tokens);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        /* Of a prompt the last token alone meets the output matrix. */
        if (strstr(products[i].name, only) && (tokens <= FEW || !strstr(products[i].name, "output"))) {
            bench_product(&b, &products[i], tokens);
        }
    }
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        if (!strstr(layers[i].name, only)) {
            continue;
        }
        if (tokens <= WORKLIST_TOKENS) {
            bench_experts(&b, &layers[i], tokens);
        }
        if (tokens > 1) {
            bench_groups(&b, &layers[i], tokens);
        }
    }
    const mo_daddr all[] = {b.pool, b.acts, b.hidden, b.y, b.work};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mo_device_free(b.device, all[i]);
    }
    mo_event_destroy(b.from);
    mo_event_destroy(b.to);
    mo_dstream_destroy(b.stream);
    mo_device_close(b.device);
    return 0;
}
