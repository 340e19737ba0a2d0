/* Writes the seeds of fuzz_gguf into a folder: small files that reach every branch of the reader; and those of fuzz_lora into another. */
#include <stdio.h>
#include <stdlib.h>

#include "gguf/write.h"
#include "support/gguf_file.h"
#include "support/lora_file.h"

static const char *folder;

static void saved(bool good, const char *path)
{
    if (!good) {
        fprintf(stderr, "make_corpus: cannot write %s\n", path);
        exit(1);
    }
}

static void save(mo_gguf_writer *w, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    saved(gguf_save(w, path, NULL), path);
}

static void values(mo_gguf_writer *w)
{
    mo_gguf_put_string(w, "general.architecture", "llama");
    mo_gguf_put_string(w, "general.name", "seed");
    mo_gguf_put_u8(w, "u8", 1);
    mo_gguf_put_i8(w, "i8", -1);
    mo_gguf_put_u16(w, "u16", 1);
    mo_gguf_put_i16(w, "i16", -1);
    mo_gguf_put_i32(w, "i32", -1);
    mo_gguf_put_u64(w, "u64", 1);
    mo_gguf_put_i64(w, "i64", -1);
    mo_gguf_put_f32(w, "f32", 0.5f);
    mo_gguf_put_f64(w, "f64", 0.25);
    mo_gguf_put_bool(w, "bool", true);
    mo_gguf_put_array(w, "u8s", MO_VALUE_U8, (uint8_t[]){1, 2}, 2);
    mo_gguf_put_array(w, "bools", MO_VALUE_BOOL, (uint8_t[]){1, 0}, 2);
    mo_gguf_put_array(w, "f32s", MO_VALUE_F32, (float[]){1, 2}, 2);
    mo_gguf_put_array(w, "none", MO_VALUE_I64, NULL, 0);
    mo_gguf_put_texts(w, "tokenizer.ggml.tokens", (mo_text[]){{"a", 1}, {"", 0}, {"\n\xc2\x85", 3}}, 3);
}

static void counts(mo_gguf_writer *w, uint32_t blocks, uint32_t nextn, uint32_t experts)
{
    mo_gguf_put_u32(w, "llama.block_count", blocks);
    mo_gguf_put_u32(w, "llama.nextn_predict_layers", nextn);
    mo_gguf_put_u32(w, "llama.expert_count", experts);
    mo_gguf_put_u32(w, "llama.expert_used_count", 1);
    mo_gguf_put_u32(w, "llama.context_length", 128);
}

static void tensor(mo_gguf_writer *w, const char *name, mo_type type, int64_t a, int64_t b, int64_t c)
{
    mo_gguf_put_tensor(w, name, type, c ? 3 : b ? 2 : 1, (int64_t[]){a, b, c});
}

static void seed_values(void)
{
    mo_gguf_writer *w = mo_gguf_writer_create(64);
    values(w);
    save(w, "values");
    mo_gguf_writer_destroy(w);
}

static void seed_formats(void)
{
    mo_gguf_writer *w = mo_gguf_writer_create(8);
    for (uint32_t type = 0; type < MO_TYPE_LIMIT; type++) {
        const mo_format *f = mo_format_of(type);
        if (f) {
            tensor(w, f->name, f->type, f->block_values, 0, 0);
        }
    }
    save(w, "formats");
    mo_gguf_writer_destroy(w);
}

static void seed_experts(void)
{
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_gguf_put_string(w, "general.architecture", "llama");
    counts(w, 2, 1, 2);
    tensor(w, "token_embd.weight", MO_Q8_0, 32, 2, 0);
    tensor(w, "output.weight", MO_F16, 32, 2, 0);
    tensor(w, "blk.0.ffn_gate_exps.weight", MO_Q4_0, 32, 1, 2);
    tensor(w, "blk.0.ffn_up_exps.weight", MO_Q4_0, 32, 1, 2);
    tensor(w, "blk.0.ffn_down_exps.weight", MO_MXFP4, 32, 1, 2);
    tensor(w, "blk.0.ffn_down_exps.bias", MO_F32, 4, 2, 0);
    tensor(w, "blk.0.ffn_gate_up_exps.weight", MO_F32, 4, 1, 2);
    tensor(w, "blk.0.ffn_gate_exps.input_scale", MO_F32, 2, 0, 0);
    tensor(w, "blk.1.nextn.eh_proj.weight", MO_F32, 8, 4, 0);
    save(w, "experts");
    mo_gguf_writer_destroy(w);
}

static void seed_older(void)
{
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_gguf_put_string(w, "general.architecture", "llama");
    counts(w, 1, 0, 2);
    for (int e = 0; e < 2; e++) {
        static const char *const kinds[] = {"gate", "up", "down"};
        for (int k = 0; k < 3; k++) {
            char name[64];
            snprintf(name, sizeof name, "blk.0.ffn_%s.%d.weight", kinds[k], e);
            tensor(w, name, MO_F16, 4, 2, 0);
        }
    }
    save(w, "older");
    mo_gguf_writer_destroy(w);
}

static void seed_split(void)
{
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_gguf_put_string(w, "general.architecture", "llama");
    tensor(w, "a", MO_F32, 4, 0, 0);
    tensor(w, "b", MO_F32, 4, 0, 0);
    char prefix[4096];
    snprintf(prefix, sizeof prefix, "%s/split", folder);
    saved(gguf_save_split(w, 0, prefix, 1, NULL), prefix);
    mo_gguf_writer_destroy(w);
}

/* Adapters of the model that fuzz_lora loads. */
static void seed_adapters(const char *to)
{
    static const lora_recipe recipes[] = {{.parts = lora_attention, .rank = 2, .alpha = 4, .seed = 1},
                                          {.parts = lora_all, .rank = 1, .half = true, .seed = 2}};
    for (int i = 0; i < 2; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/adapter%d.gguf", to, i);
        saved(lora_file_make(MO_TEST_DATA "/oracle/qwen3moe.gguf", path, &recipes[i]), path);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: make_corpus FOLDER [FOLDER of adapters]\n");
        return 2;
    }
    folder = argv[1];
    if (argc == 3) {
        seed_adapters(argv[2]);
    }
    seed_values();
    seed_formats();
    seed_experts();
    seed_older();
    seed_split();
    return 0;
}
