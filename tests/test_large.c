/* A model of more than 200 GB: a sparse file with a true header and a few values in it. It opens, is planned under a small ceiling, and
 * the experts behind the last of its bytes are the ones that are computed with. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"
#include "gguf/write.h"
#include "moraine.h"
#include "numeric/format.h"

enum { LAYERS = 4, WIDTH = 2048, HIDDEN = 4096, EXPERTS = 1024, VOCABULARY = 64, TOKEN = 5, TOLD = 7 };
static const uint16_t half_one = 0x3C00, half_two = 0x4000;

static mo_gguf_writer *header(void)
{
    char name[64];
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_gguf_put_string(w, "general.architecture", "llama");
    mo_gguf_put_u32(w, "llama.block_count", LAYERS);
    mo_gguf_put_u32(w, "llama.context_length", 256);
    mo_gguf_put_u32(w, "llama.embedding_length", WIDTH);
    mo_gguf_put_u32(w, "llama.feed_forward_length", HIDDEN);
    mo_gguf_put_u32(w, "llama.attention.head_count", 4);
    mo_gguf_put_u32(w, "llama.attention.head_count_kv", 1);
    mo_gguf_put_u32(w, "llama.attention.key_length", 32);
    mo_gguf_put_u32(w, "llama.attention.value_length", 32);
    mo_gguf_put_u32(w, "llama.rope.dimension_count", 32);
    mo_gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    mo_gguf_put_u32(w, "llama.expert_count", EXPERTS);
    mo_gguf_put_u32(w, "llama.expert_used_count", 1);
    mo_gguf_put_u32(w, "llama.vocab_size", VOCABULARY);
    mo_gguf_put_string(w, "tokenizer.ggml.model", "no_vocab");
    mo_gguf_put_tensor(w, "token_embd.weight", MO_F16, 2, (int64_t[]){WIDTH, VOCABULARY});
    mo_gguf_put_tensor(w, "output_norm.weight", MO_F32, 1, (int64_t[]){WIDTH});
    mo_gguf_put_tensor(w, "output.weight", MO_F16, 2, (int64_t[]){WIDTH, VOCABULARY});
    for (int n = 0; n < LAYERS; n++) {
        const struct {
            const char *name;
            mo_type type;
            int dims;
            int64_t size[3];
        } tensors[] = {
            {"attn_norm", MO_F32, 1, {WIDTH}},
            {"attn_q", MO_F16, 2, {WIDTH, 128}},
            {"attn_k", MO_F16, 2, {WIDTH, 32}},
            {"attn_v", MO_F16, 2, {WIDTH, 32}},
            {"attn_output", MO_F16, 2, {128, WIDTH}},
            {"ffn_norm", MO_F32, 1, {WIDTH}},
            {"ffn_gate_inp", MO_F32, 2, {WIDTH, EXPERTS}},
            {"ffn_gate_exps", MO_F16, 3, {WIDTH, HIDDEN, EXPERTS}},
            {"ffn_up_exps", MO_F16, 3, {WIDTH, HIDDEN, EXPERTS}},
            {"ffn_down_exps", MO_F16, 3, {HIDDEN, WIDTH, EXPERTS}},
        };
        for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", n, tensors[i].name);
            mo_gguf_put_tensor(w, name, tensors[i].type, tensors[i].dims, tensors[i].size);
        }
    }
    return w;
}

static void write_at(int fd, const void *bytes, size_t n, int64_t at)
{
    assert_int_equal(pwrite(fd, bytes, n, at), n);
}

/* A row of one value, WIDTH of them. */
static void write_row(int fd, mo_type type, float value, int64_t at)
{
    float row[WIDTH];
    uint16_t halves[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        row[i] = value;
        halves[i] = half_one;
    }
    write_at(fd, type == MO_F32 ? (const void *)row : halves, type == MO_F32 ? sizeof row : sizeof halves,
             at);
}

/* The last expert of every layer is chosen, and multiplies by what stands in the first places of its matrices; all else is 0. */
static void write_values(int fd, const mo_gguf_writer *w)
{
    write_row(fd, MO_F16, 1.0f, mo_gguf_writer_tensor(w, 0)->offset + (int64_t)TOKEN * WIDTH * 2);
    write_row(fd, MO_F32, 1.0f, mo_gguf_writer_tensor(w, 1)->offset);
    write_at(fd, &half_one, 2, mo_gguf_writer_tensor(w, 2)->offset + (int64_t)TOLD * WIDTH * 2);
    for (int n = 0; n < LAYERS; n++) {
        const int first = 3 + 10 * n;
        const int64_t last = (int64_t)(EXPERTS - 1) * WIDTH;
        write_row(fd, MO_F32, 1.0f, mo_gguf_writer_tensor(w, first)->offset);
        write_row(fd, MO_F32, 1.0f, mo_gguf_writer_tensor(w, first + 5)->offset);
        write_row(fd, MO_F32, 0.01f, mo_gguf_writer_tensor(w, first + 6)->offset + last * 4);
        for (int i = 7; i < 10; i++) {
            write_at(fd, i == 9 ? &half_two : &half_one, 2,
                     mo_gguf_writer_tensor(w, first + i)->offset + last * HIDDEN * 2);
        }
    }
}

static double expected(void)
{
    double x0 = 1.0;
    for (int n = 0; n <= LAYERS; n++) {
        const double mean = (x0 * x0 + WIDTH - 1) / WIDTH, normed = x0 / sqrt(mean + 1e-5);
        if (n == LAYERS) {
            return normed;
        }
        x0 += 2.0 * (normed / (1.0 + exp(-normed))) * normed;
    }
    return 0.0;
}

static void offsets_above_200_gb_are_read(void **state)
{
    (void)state;
    mo_error err = {.detail = ""};
    char path[256];
    snprintf(path, sizeof path, "%s/large.gguf", folder);
    mo_gguf_writer *w = header();
    assert_int_equal(mo_gguf_writer_layout(w, &err), MO_OK);
    const mo_gguf_layout *file = mo_gguf_writer_file(w);
    assert_true(file->file_bytes > 200 * (int64_t)1000 * 1000 * 1000);
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    if (ftruncate(fd, file->file_bytes) != 0) {
        close(fd);
        unlink(path);
        mo_gguf_writer_destroy(w);
        print_message("skipped: this file system has no files of 200 GB\n");
        skip();
    }
    write_at(fd, file->header, file->header_bytes, 0);
    write_values(fd, w);
    close(fd);
    mo_gguf_writer_destroy(w);

    mo_model *model = NULL;
    mo_session *session = NULL;
    mo_model_options options = mo_model_options_default();
    options.threads = 1;
    options.context = 64;
    options.batch = 8;
    options.ram_bytes = (int64_t)800 << 20;
    options.device = "none";
    options.learning.profile = "off";
    if (mo_model_open(path, &options, &model, &err) != MO_OK ||
        mo_session_open(model, NULL, &session, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    const int32_t tokens[] = {TOKEN};
    const mo_feed f = {.size = sizeof(mo_feed), .session = session, .tokens = tokens, .count = 1};
    if (mo_session_feed(&f, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    const float *logits = mo_session_logits(session);
    assert_true(fabs((double)logits[TOLD] - expected()) < 1e-2);
    assert_true(logits[TOLD] > 4.0f && logits[0] == 0.0f);
    mo_session_close(session);
    mo_model_close(model);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(offsets_above_200_gb_are_read)};
    return cmocka_run_group_tests_name("large", tests, folder_make, folder_remove);
}
