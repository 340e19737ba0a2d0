#include "api/sampling.h"

#include "api/model.h"
#include "model/load.h"

static void take_real(const mo_gguf *g, const char *key, float low, float high, float *out)
{
    float value = 0.0f;
    if (mo_gguf_find(g, key) && mo_gguf_f32(g, key, &value, NULL) == MO_OK && value >= low && value <= high) {
        *out = value;
    }
}

static void take_whole(const mo_gguf *g, const char *key, int64_t low, int64_t *out)
{
    int64_t value = 0;
    if (mo_gguf_find(g, key) && mo_gguf_i64_of(g, key, 0, &value, NULL) == MO_OK && value >= low &&
        value <= INT32_MAX) {
        *out = value;
    }
}

void mo_sampling_recommended(const mo_gguf *g, mo_sampler_options *options)
{
    take_real(g, "general.sampling.temp", 0.0f, 100.0f, &options->temperature);
    take_real(g, "general.sampling.top_p", 0x1p-100f, 1.0f, &options->top_p);
    take_real(g, "general.sampling.min_p", 0.0f, 1.0f, &options->min_p);
    take_real(g, "general.sampling.penalty_repeat", 0x1p-10f, 100.0f, &options->repeat_penalty);
    take_whole(g, "general.sampling.top_k", 0, &options->top_k);
    take_whole(g, "general.sampling.penalty_last_n", -1, &options->penalty_last);
}

void mo_model_sampling(const mo_model *model, mo_sampler_options *options)
{
    mo_sampling_recommended(mo_checkpoint_gguf(model->checkpoint), options);
}
