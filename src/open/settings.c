#include "open/settings.h"

#include <math.h>

#include "base/growing.h"
#include "base/status.h"
#include "disk/read.h"
#include "engine/adapting.h"
#include "engine/drafts.h"
#include "numeric/kv.h"

#define KEPT_MOST ((int64_t)1 << 50)

/* Enums may hold any number. */
static mo_status check_choices(const mo_model_options *o, mo_error *err)
{
    const struct {
        const char *name, *choices;
        int value, most;
    } rules[] = {
        {"`kv`", "i16, f32 or q8_0", (int)o->kv, MO_KV_TYPES - 1},
        {"`io`", "auto, direct or cached", (int)o->io, MO_IO_CACHED},
        {"`postfetch`", "off, auto, down or expert", (int)o->postfetch, MO_POSTFETCH_EXPERT},
        {"`prompt_precision`", "exact or bf16", (int)o->prompt_precision, MO_PRECISION_BF16},
        {"`divide`", "auto, layers or experts", (int)o->divide, MO_DIVIDE_EXPERTS},
        {"`speculate`", "off, auto, ngram, mtp or draft", (int)o->speculate, MO_SPECULATE_DRAFT},
    };
    if (o->draft_model && (o->speculate == MO_SPECULATE_OFF || o->speculate == MO_SPECULATE_NGRAM)) {
        return mo_fail(err, MO_EINVAL, "`draft_model` requires `speculate` auto, mtp or draft");
    }
    if (!o->draft_model && o->speculate == MO_SPECULATE_DRAFT) {
        return mo_fail(err, MO_EINVAL,
                       "`speculate` draft needs the file of a smaller model with the same tokens as "
                       "`draft_model`");
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].value < 0 || rules[i].value > rules[i].most) {
            return mo_fail(err, MO_EINVAL, "%s must be %s, not number %d", rules[i].name, rules[i].choices,
                           rules[i].value);
        }
    }
    return MO_OK;
}

static mo_status check_files(const mo_model_options *o, mo_error *err)
{
    const struct {
        const char *member, *path;
    } files[] = {
        {"profile", o->learning.profile},     {"perf_out", o->learning.perf_out},
        {"warm_file", o->learning.warm_file}, {"hot_cache.file", o->learning.hot_cache.file},
        {"draft_model", o->draft_model},      {"mmproj", o->mmproj},
    };
    mo_status status = MO_OK;
    for (size_t i = 0; i < sizeof files / sizeof *files && status == MO_OK; i++) {
        status = mo_check_file(files[i].path, files[i].member, err);
    }
    return status;
}

static mo_status check_adapters(const mo_model_options *o, mo_error *err)
{
    if (o->adapter_count < 0 || o->adapter_count > MO_ADAPTERS_MAX) {
        return mo_fail(err, MO_EINVAL, "`adapter_count` must be 0 to %d, not %d", MO_ADAPTERS_MAX,
                       o->adapter_count);
    }
    if (o->adapter_count > 0 && !o->adapters) {
        return mo_fail(err, MO_EINVAL, "`adapters` is NULL, but `adapter_count` is %d; give their files",
                       o->adapter_count);
    }
    for (int i = 0; i < o->adapter_count; i++) {
        if (!o->adapters[i] || !*o->adapters[i]) {
            return mo_fail(err, MO_EINVAL, "file %d of `adapters` is %s; name it", i + 1,
                           o->adapters[i] ? "empty" : "NULL");
        }
        if (o->adapter_scales && !isfinite(o->adapter_scales[i])) {
            return mo_fail(err, MO_EINVAL, "scale %d of `adapter_scales` must be a finite number, not %g",
                           i + 1, (double)o->adapter_scales[i]);
        }
    }
    return MO_OK;
}

static mo_status check_ceilings(const mo_model_options *o, mo_error *err)
{
    if (o->vram_each_count < 0 || o->vram_each_count > MO_DEVICES_MAX) {
        return mo_fail(err, MO_EINVAL, "`vram_each_count` must be 0 to %d, not %d", MO_DEVICES_MAX,
                       o->vram_each_count);
    }
    if (o->vram_each_count && !o->vram_each) {
        return mo_fail(err, MO_EINVAL,
                       "`vram_each` is NULL, but `vram_each_count` is %d; give the ceilings of the devices",
                       o->vram_each_count);
    }
    for (int i = 0; i < o->vram_each_count; i++) {
        if (o->vram_each[i] < 0) {
            return mo_fail(err, MO_EINVAL, "`vram_each` must have sizes (or 0 for `vram_bytes`), not %lld",
                           (long long)o->vram_each[i]);
        }
    }
    return MO_OK;
}

static mo_status check_sizes(const mo_model_options *o, mo_error *err)
{
    const struct {
        const char *name, *sizes;
        int64_t value, most;
    } rules[] = {
        {"`threads`", "1 to 1024 (or 0 for one per core)", o->threads, 1024},
        {"`batch`", "1 to 65536 tokens", o->batch, 65536},
        {"`context`", "1 to 16777216 tokens", o->context, 16777216},
        {"`sessions`", "1 or more (or 0 for 1)", o->sessions, INT64_MAX},
        {"`readers`", "1 to 64 (or 0 for the measured number)", o->readers, MO_DISK_READERS},
        {"`ram_bytes`", "a size (or 0 for the free memory)", o->ram_bytes, INT64_MAX},
        {"`positions`", "at least `context` (or 0 for the total of all sessions)", o->positions,
         (int64_t)1 << 40},
        {"`kept_bytes`", "a size (or 0 for none)", o->kept_bytes, KEPT_MOST},
        {"`kept_device_bytes`", "a size (or 0 for none)", o->kept_device_bytes, KEPT_MOST},
        {"`adapter_bytes`", "a size (or 0 for none)", o->adapter_bytes, KEPT_MOST},
        {"`draft_max`", "1 to 64 (or 0 for 64)", o->draft_max, MO_DRAFTS_MAX},
        {"`image_min_tokens`", "1 to 65536 (or 0 for the encoder's)", o->image_min_tokens, 65536},
        {"`image_max_tokens`", "1 to 65536 (or 0 for the encoder's)", o->image_max_tokens, 65536},
        {"`vram_bytes`", "a size (or 0 for the free memory)", o->vram_bytes, INT64_MAX},
    };
    _Static_assert(MO_DISK_READERS == 64, "as the text says");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].value < 0 || rules[i].value > rules[i].most) {
            return mo_fail(err, MO_EINVAL, "%s must be %s, not %lld", rules[i].name, rules[i].sizes,
                           (long long)rules[i].value);
        }
    }
    if (o->image_max_tokens && o->image_max_tokens < o->image_min_tokens) {
        return mo_fail(err, MO_EINVAL,
                       "`image_max_tokens` must be at least %lld, which is `image_min_tokens`, not %lld",
                       (long long)o->image_min_tokens, (long long)o->image_max_tokens);
    }
    return MO_OK;
}

mo_status mo_settings_check(const mo_model_options *o, mo_error *err)
{
    mo_status status = check_choices(o, err);
    if (status == MO_OK) {
        status = check_sizes(o, err);
    }
    if (status == MO_OK) {
        status = check_ceilings(o, err);
    }
    if (status == MO_OK) {
        status = check_adapters(o, err);
    }
    if (status == MO_OK) {
        status = check_files(o, err);
    }
    if (status == MO_OK) {
        status = mo_reserve_check(o->learning.reserved, 4, "mo_learning_options", err);
    }
    return status == MO_OK ? mo_reserve_check(o->learning.hot_cache.reserved, 4, "mo_hot_cache_options", err)
                           : status;
}
