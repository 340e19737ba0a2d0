/* gpu_attention [INDEX] [PTX] [FORMAT]: how fast a GPU's attention is, at the shapes of Qwen3-30B, gpt-oss-20b and Gemma: prompts from
 * their beginning, and one token after many. A product of two numbers and its sum count as two operations; a prompt's are
 * those that its tokens see. Bytes of a token are those of the keys and values that it reads. Every figure is the best of
 * several runs; one token's of a program of several layers, each with a cache of its own, so that none is near already. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"
#include "device/device.h"
#include "gpu_memory.h"
#include "numeric/acts.h"
#include "numeric/kv.h"

enum { ROUNDS = 5, LAYERS = 6, PIECE = 16 << 20 };

typedef struct bench {
    mo_device *device;
    mo_dstream *stream;
    mo_event *from, *to;
    float *noise; /* [PIECE] */
} bench;

typedef struct shape {
    const char *name;
    int heads, kv_heads, length;
    int64_t window;
} shape;

static const shape shapes[] = {
    {"Qwen3-30B", 32, 4, 128, 0},
    {"gpt-oss-20b", 64, 8, 64, 0},
    {"gpt-oss-20b, window", 64, 8, 64, 128},
    {"Gemma-4-26B, window", 16, 8, 256, 1024},
    {"Gemma-4-26B", 16, 2, 512, 0},
};

/* Everything that an op of `tokens` tokens after `before` others needs. */
typedef struct run {
    const shape *s;
    mo_kv_type kv;
    int64_t tokens, before;
    int64_t length; /* blocks of a layer */
    mo_daddr q, k, v, places, states, partial, mixed;
    mo_daddr blocks, tables; /* of all layers */
} run;

/* ---- Memory ---- */

static mo_daddr floats(bench *b, int64_t count)
{
    const mo_daddr at = allocate(b->device, 4 * count);
    for (int64_t i = 0; i < count; i += PIECE) {
        const int64_t some = count - i < PIECE ? count - i : PIECE;
        send(b->stream, at + (mo_daddr)(4 * i), b->noise, 4 * some);
    }
    return at;
}

/* ---- Ops ---- */

static mo_op heads_op(const run *r, mo_daddr k, mo_daddr v, mo_daddr places, int64_t tokens, int layer)
{
    return (mo_op){.kind = MO_OP_HEADS,
                   .heads = {.q = r->q,
                             .k = k,
                             .v = v,
                             .places = places,
                             .tokens = (int32_t)tokens,
                             .layer = layer,
                             .heads = r->s->heads,
                             .kv_heads = r->s->kv_heads,
                             .k_len = r->s->length,
                             .v_len = r->s->length,
                             .kv = (int32_t)r->kv,
                             .eps = 1e-6f}};
}

static mo_op attend_op(const run *r, int layer)
{
    const int64_t last = r->before + r->tokens - 1, window = r->s->window;
    const int64_t first = window && r->before >= window ? r->before - window + 1 : 0;
    const int64_t chunk = mo_kv_chunk(r->kv);
    return (mo_op){.kind = MO_OP_ATTEND,
                   .attend = {.q = r->q,
                              .places = r->places,
                              .partial = r->partial,
                              .mixed = acts_at(r->mixed, r->tokens, (int64_t)r->s->heads * r->s->length),
                              .window = window,
                              .tokens = (int32_t)r->tokens,
                              .layer = layer,
                              .heads = r->s->heads,
                              .kv_heads = r->s->kv_heads,
                              .k_len = r->s->length,
                              .v_len = r->s->length,
                              .kv = (int32_t)r->kv,
                              .chunks = (int32_t)(last / chunk - first / chunk + 1),
                              .scale = 1.0f / sqrtf((float)r->s->length)}};
}

/* ---- A run ---- */

static mo_daddr places_of(bench *b, const run *r, int64_t first, int64_t count)
{
    mo_dplace *places = calloc((size_t)count, sizeof *places);
    for (int64_t i = 0; places && i < count; i++) {
        places[i] = (mo_dplace){.layers = r->states, .position = first + i, .into = (int32_t)i};
    }
    const mo_daddr at = allocate(b->device, count * (int64_t)sizeof *places);
    send(b->stream, at, places, count * (int64_t)sizeof *places);
    free(places);
    return at;
}

static void make_states(bench *b, run *r, int layers)
{
    const mo_kv_shape layout = {
        .type = r->kv, .heads = r->s->kv_heads, .k_len = r->s->length, .v_len = r->s->length};
    const int64_t bytes = mo_kv_block_bytes(layout);
    mo_dstate states[LAYERS] = {{0}};
    mo_daddr *table = calloc((size_t)(layers * r->length), sizeof *table);
    r->blocks = allocate(b->device, layers * r->length * bytes);
    r->tables = allocate(b->device, layers * r->length * (int64_t)sizeof *table);
    r->states = allocate(b->device, sizeof states);
    for (int64_t i = 0; table && i < layers * r->length; i++) {
        table[i] = r->blocks + (mo_daddr)(i * bytes);
    }
    for (int i = 0; table && i < layers; i++) {
        states[i] = (mo_dstate){.blocks = r->tables + (mo_daddr)(i * r->length) * sizeof *table,
                                .length = r->length,
                                .first = table[i * r->length],
                                .stride = bytes};
    }
    send(b->stream, r->tables, table, layers * r->length * (int64_t)sizeof *table);
    send(b->stream, r->states, states, sizeof states);
    free(table);
}

static run begin(bench *b, const shape *s, mo_kv_type kv, int64_t tokens, int64_t before, int layers)
{
    enum { STEP = 4096 };
    run r = {.s = s, .kv = kv, .tokens = tokens, .before = before};
    const int64_t all = before + tokens, some = all < STEP ? all : STEP;
    const int64_t most = tokens > some ? tokens : some;
    mo_error err = {0};
    r.length = mo_kv_table_length(all, 0, tokens);
    r.q = floats(b, most * s->heads * s->length);
    r.k = floats(b, most * s->kv_heads * s->length);
    r.v = floats(b, most * s->kv_heads * s->length);
    make_states(b, &r, layers);
    r.places = places_of(b, &r, before, tokens);
    r.partial = allocate(b->device, 4 * 8 * (all / 128 + 1) * s->heads * (s->length + 3));
    r.mixed = allocate(b->device, (int64_t)mo_acts_bytes(tokens, (int64_t)s->heads * s->length));
    for (int64_t at = 0; at < all; at += some) {
        const int64_t count = all - at < some ? all - at : some;
        const mo_daddr places = places_of(b, &r, at, count);
        for (int layer = 0; layer < layers; layer++) {
            const mo_op op = heads_op(&r, r.k, r.v, places, count, layer);
            check(mo_op_launch(b->stream, &op, &err), &err);
        }
        check(mo_dstream_wait(b->stream, &err), &err);
        mo_device_free(b->device, places);
    }
    return r;
}

static void end(bench *b, run *r)
{
    const mo_daddr all[] = {r->q,       r->k,     r->v,      r->places, r->states,
                            r->partial, r->mixed, r->blocks, r->tables};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mo_device_free(b->device, all[i]);
    }
}

/* Seconds of one op, when several run after each other. */
static double time_ops(bench *b, const mo_op *ops, int count)
{
    mo_error err = {0};
    mo_program *program = NULL;
    double best = 1e9, all = 0;
    check(mo_program_create(b->device, ops, count, &program, &err), &err);
    for (int i = 0; i <= ROUNDS && (i < 2 || all < 1.0); i++) { /* slow ones have fewer */
        double seconds = 0;
        check(mo_event_record(b->from, b->stream, &err), &err);
        check(mo_program_run(program, b->stream, &err), &err);
        check(mo_event_record(b->to, b->stream, &err), &err);
        check(mo_dstream_wait(b->stream, &err), &err);
        check(mo_event_seconds(b->from, b->to, &seconds, &err), &err);
        best = i > 0 && seconds < best ? seconds : best;
        all += seconds;
    }
    mo_program_destroy(program);
    return best / count;
}

/* ---- Figures ---- */

static const char *format_name(mo_kv_type kv)
{
    return kv == MO_KV_F32 ? "f32" : kv == MO_KV_Q8_0 ? "q8_0" : "i16";
}

static void bench_prompt(bench *b, const shape *s, mo_kv_type kv, int64_t tokens, int64_t before)
{
    run r = begin(b, s, kv, tokens, before, 1);
    const mo_op heads = heads_op(&r, r.k, r.v, r.places, tokens, 0), attend = attend_op(&r, 0);
    double seen = 0;
    for (int64_t t = before; t < before + tokens; t++) {
        seen += (double)(s->window && t + 1 > s->window ? s->window : t + 1);
    }
    const double seconds = time_ops(b, &attend, 1), work = 4.0 * s->heads * s->length * seen;
    printf("%-20s %-4s prompt %6lld after %6lld  heads %8.1f us  attention %9.1f us  %6.1f TFLOP/s\n",
           s->name, format_name(kv), (long long)tokens, (long long)before, time_ops(b, &heads, 1) * 1e6,
           seconds * 1e6, work / seconds * 1e-12);
    fflush(stdout);
    end(b, &r);
}

static void bench_token(bench *b, const shape *s, mo_kv_type kv, int64_t before)
{
    run r = begin(b, s, kv, 1, before, LAYERS);
    mo_op ops[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        ops[i] = attend_op(&r, i);
    }
    const double seconds = time_ops(b, ops, LAYERS);
    const int64_t seen = s->window && before + 1 > s->window ? s->window : before + 1;
    const double bytes = (double)(seen * s->kv_heads * 2 * mo_kv_bytes(kv, s->length));
    printf("%-20s %-4s token after %6lld  %39.1f us  %6.0f GB/s\n", s->name, format_name(kv),
           (long long)before, seconds * 1e6, bytes / seconds * 1e-9);
    fflush(stdout);
    end(b, &r);
}

int main(int argc, char **argv)
{
    static const mo_kv_type formats[] = {MO_KV_I16, MO_KV_Q8_0};
    static const int64_t prompts[] = {512, 2048, 8192, 16384}, befores[] = {1024, 8192, 32768, 131072};
    bench b = {0};
    mo_error err = {0};
    uint64_t seed = 1;
    check(mo_cuda_open(argc > 1 ? atoi(argv[1]) : 0, argc > 2 ? atoi(argv[2]) : 0, &b.device, &err), &err);
    check(mo_dstream_create(b.device, &b.stream, &err), &err);
    check(mo_event_create(b.device, &b.from, &err), &err);
    check(mo_event_create(b.device, &b.to, &err), &err);
    b.noise = malloc(4 * (size_t)PIECE);
    for (int64_t i = 0; b.noise && i < PIECE; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        b.noise[i] = (float)(int32_t)(seed >> 32) * 0x1p-31f * 2.0f;
    }
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
            if (argc > 3 && strcmp(argv[3], format_name(formats[f])) != 0) {
                continue;
            }
            for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
                bench_prompt(&b, &shapes[s], formats[f], prompts[i], 0);
            }
            bench_prompt(&b, &shapes[s], formats[f], 2048, 32768);
            for (size_t i = 0; i < sizeof befores / sizeof *befores; i++) {
                bench_token(&b, &shapes[s], formats[f], befores[i]);
            }
        }
    }
    free(b.noise);
    mo_event_destroy(b.to);
    mo_event_destroy(b.from);
    mo_dstream_destroy(b.stream);
    mo_device_close(b.device);
    return 0;
}
