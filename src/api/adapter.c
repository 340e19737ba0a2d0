/* The public API of adapters: opening, closing, describing. Sessions manage theirs in engine/. */
#include "engine/adapter.h"

#include "api/model.h"
#include "base/growing.h"
#include "base/status.h"

/* For a rank's part of a model: identifies the adapter of the whole model, which does not depend on ranks,
 * and checks that it fits. */
static mo_status know_whole(const mo_model *model, const char *path, mo_lora *part, mo_error *err)
{
    const mo_gguf *g = mo_checkpoint_gguf(model->checkpoint);
    mo_checkpoint *whole = NULL;
    mo_status status =
        mo_checkpoint_load(mo_gguf_part_path(g, 0), &(mo_load_options){.describe = true}, &whole, err);
    if (status == MO_OK) {
        status = mo_lora_identify(whole, path, &part->identity, &part->experts, err);
    }
    mo_checkpoint_free(whole);
    return status;
}

static mo_status open_adapter(mo_model *model, const char *path, mo_adapter **out, mo_error *err)
{
    mo_lora lora;
    *out = NULL;
    mo_status status = mo_lora_load(model->checkpoint, path, true, &lora, err);
    if (status == MO_OK) {
        status = mo_engine_adapter_fits(model->engine, &lora, err);
    }
    mo_lora_drop(&lora);
    if (status == MO_OK) {
        status = mo_lora_load(model->checkpoint, path, false, &lora, err);
    }
    if (status == MO_OK && (model->range.count || model->experts.divided)) {
        status = know_whole(model, path, &lora, err);
        if (status != MO_OK) {
            mo_lora_drop(&lora);
        }
    }
    return status == MO_OK ? mo_engine_adapter_open(model->engine, &lora, out, err) : status;
}

mo_status mo_adapter_open(mo_model *model, const char *path, mo_adapter **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, path, out)
    *out = NULL;
    const mo_status status = mo_check_path(path, "path", __func__, err);
    if (status != MO_OK) {
        return status;
    }
    if (model->cluster) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "a model divided among ranks keeps the `adapters` it "
                       "was opened with; reopen it with this one in all ranks");
    }
    return open_adapter(model, path, out, err);
}

void mo_adapter_close(mo_adapter *adapter)
{
    mo_adapter_release(adapter);
}

void mo_adapter_describe(const mo_adapter *adapter, mo_adapter_info *out, size_t size)
{
    const mo_lora *l = &adapter->lora;
    const mo_adapter_info info = {.path = l->path,
                                  .name = l->name,
                                  .task = l->task,
                                  .prefix = l->prefix,
                                  .rank = l->rank,
                                  .tensors = l->tensors,
                                  .alpha = l->alpha,
                                  .bytes = l->bytes,
                                  .identity = l->identity};
    mo_report_write(out, size, &info, sizeof info);
}

mo_adapter *mo_model_adapter(const mo_model *model, int index)
{
    return index >= 0 && index < model->adapter_count ? model->adapters[index].adapter : NULL;
}

mo_status mo_model_open_adapters(mo_model *model, const mo_model_options *options, mo_error *err)
{
    mo_engine *e = model->engine;
    mo_status status = MO_OK;
    e->adapter_limit = -1; /* the named ones are in the plan */
    for (int i = 0; i < options->adapter_count && status == MO_OK; i++) {
        model->adapters[i].scale = options->adapter_scales ? options->adapter_scales[i] : 0.0f;
        status = open_adapter(model, options->adapters[i], &model->adapters[i].adapter, err);
        model->adapter_count += status == MO_OK;
    }
    if (options->ram_bytes > 0) {
        e->adapter_limit = mo_engine_adapter_bytes(e) + options->adapter_bytes;
    }
    return status;
}

void mo_model_close_adapters(mo_model *model)
{
    for (int i = 0; i < model->adapter_count; i++) {
        mo_adapter_close(model->adapters[i].adapter);
    }
    model->adapter_count = 0;
}
