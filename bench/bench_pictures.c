/* bench_pictures make TYPE FILE [LAYERS]: an encoder of pictures (mmproj) of the size of the published Qwen3-VL 30B's, with random weights, whose matrices are
 * of that type (F32, F16, BF16, Q8_0).
 * bench_pictures FILE SIDE ROUNDS THREADS|cuda|sim [LAYERS]: seconds that it takes to encode a picture of SIDE x SIDE pixels on the CPU or on a device, the
 * best of some rounds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/host.h"
#include "device/cuda/cuda.h"
#include "device/sim/sim.h"
#include "gguf/write.h"
#include "numeric/block.h"
#include "numeric/quantize/quantize.h"
#include "vision/device_run.h"
#include "vision/encoder.h"

enum {
    WIDTH = 1152,
    FFN = 4304,
    LAYERS = 27,
    HEADS = 16,
    PATCH = 16,
    SIDE = 48,
    JOINED = 4 * WIDTH,
    OUT = 2048
};

static void require(mo_status status, const mo_error *err)
{
    if (status != MO_OK) {
        fprintf(stderr, "bench_pictures: %s\n", err->detail);
        exit(1);
    }
}

/* ---- Making ---- */

static uint64_t seed = 1;

static float number(float scale)
{
    uint64_t z = (seed += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return ((float)((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1.0f) * scale;
}

static void put(mo_gguf_writer *w, const char *name, const char *suffix, mo_type type, int64_t cols,
                int64_t rows)
{
    char full[64];
    const int64_t size[2] = {cols, rows};
    snprintf(full, sizeof full, "%s%s", name, suffix);
    mo_gguf_put_tensor(w, full, type, rows > 1 ? 2 : 1, size);
}

static void put_pair(mo_gguf_writer *w, const char *name, mo_type type, int64_t cols, int64_t rows)
{
    /* As converters do it: what does not fit the format is F16. */
    const bool fits = cols % mo_format_of(type)->block_values == 0;
    put(w, name, ".weight", rows == 1 ? MO_F32 : fits ? type : MO_F16, cols, rows);
    put(w, name, ".bias", MO_F32, rows == 1 ? cols : rows, 1);
}

static void put_keys(mo_gguf_writer *w, int layers)
{
    static const float half[3] = {0.5f, 0.5f, 0.5f};
    mo_gguf_put_string(w, "general.architecture", "clip");
    mo_gguf_put_string(w, "clip.projector_type", "qwen3vl_merger");
    mo_gguf_put_bool(w, "clip.has_vision_encoder", true);
    mo_gguf_put_bool(w, "clip.use_gelu", true);
    mo_gguf_put_u32(w, "clip.vision.image_size", 768);
    mo_gguf_put_u32(w, "clip.vision.patch_size", PATCH);
    mo_gguf_put_u32(w, "clip.vision.embedding_length", WIDTH);
    mo_gguf_put_u32(w, "clip.vision.feed_forward_length", FFN);
    mo_gguf_put_u32(w, "clip.vision.block_count", (uint32_t)layers);
    mo_gguf_put_u32(w, "clip.vision.attention.head_count", HEADS);
    mo_gguf_put_f32(w, "clip.vision.attention.layer_norm_epsilon", 1e-6f);
    mo_gguf_put_u32(w, "clip.vision.projection_dim", OUT);
    mo_gguf_put_u32(w, "clip.vision.spatial_merge_size", 2);
    mo_gguf_put_array(w, "clip.vision.image_mean", MO_VALUE_F32, half, 3);
    mo_gguf_put_array(w, "clip.vision.image_std", MO_VALUE_F32, half, 3);
}

static void put_layers(mo_gguf_writer *w, mo_type type, int layers)
{
    uint8_t features[LAYERS] = {0};
    for (int n = 0; n < layers; n++) {
        char name[64];
#define PART(part) (snprintf(name, sizeof name, "v.blk.%d." part, n), name)
        put_pair(w, PART("ln1"), type, WIDTH, 1);
        put_pair(w, PART("ln2"), type, WIDTH, 1);
        put_pair(w, PART("attn_qkv"), type, WIDTH, 3 * WIDTH);
        put_pair(w, PART("attn_out"), type, WIDTH, WIDTH);
        put_pair(w, PART("ffn_up"), type, WIDTH, FFN);
        put_pair(w, PART("ffn_down"), type, FFN, WIDTH);
#undef PART
#define PART(part) (snprintf(name, sizeof name, "v.deepstack.%d." part, n), name)
        if (n == 8 || n == 16 || n == 24) {
            features[n] = 1;
            put_pair(w, PART("norm"), type, JOINED, 1);
            put_pair(w, PART("fc1"), type, JOINED, JOINED);
            put_pair(w, PART("fc2"), type, JOINED, OUT);
        }
#undef PART
    }
    mo_gguf_put_array(w, "clip.vision.is_deepstack_layers", MO_VALUE_BOOL, features, (uint64_t)layers);
}

/* Weights of norms are 1; matrices keep the size of what they multiply. */
static void fill(const mo_gguf_tensor *t, FILE *f)
{
    const bool norm = strstr(t->name, "ln") || strstr(t->name, "norm");
    const bool bias = strstr(t->name, ".bias");
    const int64_t cols = t->size[0], rows = t->values / cols;
    const int64_t bytes = mo_format_row_bytes(t->format, cols);
    float *x = calloc((size_t)cols, sizeof *x);
    uint8_t *row = calloc(1, (size_t)bytes);
    for (int64_t r = 0; x && row && r < rows; r++) {
        for (int64_t i = 0; i < cols; i++) {
            const float spread = sqrtf(3.0f / (float)cols);
            x[i] = bias ? number(0.02f) : norm ? 1.0f : number(strstr(t->name, "patch") ? 0.06f : spread);
        }
        mo_error err;
        require(mo_row_quantize(t->format->type, x, cols, row, &err), &err);
        fwrite(row, 1, (size_t)bytes, f);
    }
    free(x);
    free(row);
}

static void make(const char *type_name, const char *path, int layers)
{
    static const mo_type types[] = {MO_F32, MO_F16, MO_BF16, MO_Q8_0};
    mo_type type = MO_F32;
    for (int i = 0; i < 4; i++) {
        type = strcasecmp(type_name, mo_format_of(types[i])->name) == 0 ? types[i] : type;
    }
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    const int64_t kernel[4] = {PATCH, PATCH, 3, WIDTH};
    mo_error err;
    put_keys(w, layers);
    /* Kernels and positions stay as converters leave them. */
    mo_gguf_put_tensor(w, "v.patch_embd.weight", type == MO_F32 ? MO_F32 : MO_F16, 4, kernel);
    mo_gguf_put_tensor(w, "v.patch_embd.weight.1", type == MO_F32 ? MO_F32 : MO_F16, 4, kernel);
    put(w, "v.patch_embd", ".bias", MO_F32, WIDTH, 1);
    put(w, "v.position_embd", ".weight", MO_F32, WIDTH, SIDE * SIDE);
    put_layers(w, type, layers);
    put_pair(w, "v.post_ln", type, WIDTH, 1);
    put_pair(w, "mm.0", type, JOINED, JOINED);
    put_pair(w, "mm.2", type, JOINED, OUT);
    mo_gguf_put_u32(w, "clip.vision.n_deepstack_layers", layers == LAYERS ? 3 : 0);
    require(mo_gguf_writer_layout(w, &err), &err);
    FILE *f = fopen(path, "wb");
    if (!f) {
        perror(path);
        exit(1);
    }
    const mo_gguf_layout *file = mo_gguf_writer_file(w);
    fwrite(file->header, 1, file->header_bytes, f);
    for (int64_t i = 0; mo_gguf_writer_tensor(w, i); i++) {
        const mo_gguf_tensor *t = mo_gguf_writer_tensor(w, i);
        while (ftell(f) < (long)t->offset) {
            fputc(0, f);
        }
        fill(t, f);
    }
    while (ftell(f) < (long)file->file_bytes) {
        fputc(0, f);
    }
    if (fclose(f) != 0) {
        perror(path);
        exit(1);
    }
    mo_gguf_writer_destroy(w);
}

/* ---- Measuring ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Ends the picture after some layers. */
static bool on_layer(void *user, int64_t done, int64_t total)
{
    const int64_t most = *(const int64_t *)user;
    (void)total;
    return most == 0 || done < most;
}

/* A device by its kind, and memory for the picture there. */
static mo_device *open_device(const char *kind, int64_t bytes, mo_daddr *memory)
{
    const mo_sim_options options = {.memory_bytes = (int64_t)8 << 30};
    mo_device *device = NULL;
    mo_error err;
    require(strcmp(kind, "sim") == 0 ? mo_sim_open(&options, &device, &err)
                                     : mo_cuda_open(0, 0, &device, &err),
            &err);
    require(mo_device_alloc(device, (size_t)bytes, memory, &err), &err);
    return device;
}

static void measure(const char *path, int64_t side, int rounds, const char *on, int64_t layers)
{
    mo_encoder *e;
    mo_pool *pool;
    mo_picture p;
    mo_error err;
    mo_device *device = NULL;
    mo_daddr memory = 0;
    mo_encoder_work work = {.progress = on_layer, .user = &layers};
    require(mo_encoder_open(path, false, &e, &err), &err);
    require(mo_encoder_check(e, side, side, &err), &err);
    require(mo_pool_create(atoi(on) > 0 ? atoi(on) : 1, &pool, &err), &err);
    if (atoi(on) <= 0) {
        device = open_device(on, mo_encoder_device_bytes(e, side, side), &memory);
    }
    require(mo_kernels_select(getenv("KERNELS"), &work.kernels, &err), &err);
    require(mo_picture_make(side, side, &p, &err), &err);
    work.pool = pool;
    for (int64_t i = 0; i < side * side * 3; i++) {
        p.rgb[i] = (uint8_t)(i * i / 37 + i);
    }
    float *out =
        calloc((size_t)(mo_encoder_rows(e, side, side) * mo_vision_row(mo_encoder_spec(e))), sizeof *out);
    double best = 1e9;
    for (int i = 0; i <= rounds && out; i++) {
        const double from = now();
        const mo_status status = device ? mo_encoder_device_run(e, device, memory, &work, &p, out, &err)
                                        : mo_encoder_run(e, &work, &p, out, &err);
        const double took = now() - from;
        if (status != MO_ECANCELLED) {
            require(status, &err);
        }
        best = (i > 0 || rounds == 0) && took < best ? took : best;
    }
    printf("%.4f\n", best);
    free(out);
    if (device) {
        mo_device_free(device, memory);
        mo_device_close(device);
    }
    mo_picture_free(&p);
    mo_pool_destroy(pool);
    mo_encoder_close(e);
}

int main(int argc, char **argv)
{
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "make") == 0) {
        const int layers = argc == 5 ? atoi(argv[4]) : LAYERS;
        make(argv[2], argv[3], layers > 0 && layers < LAYERS ? layers : LAYERS);
    } else if (argc == 5 || argc == 6) {
        measure(argv[1], atoll(argv[2]), atoi(argv[3]), argv[4], argc == 6 ? atoll(argv[5]) : 0);
    } else {
        fprintf(stderr, "usage: bench_pictures make TYPE FILE [LAYERS], or bench_pictures FILE SIDE ROUNDS "
                        "THREADS|cuda|sim [LAYERS]\n");
        return 2;
    }
    return 0;
}
