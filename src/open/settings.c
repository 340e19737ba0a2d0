#include "open/settings.h"

#include "base/status.h"
#include "disk/read.h"
#include "engine/adapting.h"
#include "numeric/kv.h"

enum { THREADS_MOST = 1024, BATCH_MOST = 65536, CONTEXT_MOST = 1 << 24 };

#define KEPT_MOST      ((int64_t)1 << 50)
#define POSITIONS_MOST ((int64_t)1 << 40)

static mo_status check_sizes(const mo_settings *s, mo_error *err)
{
    if (s->threads < 0 || s->threads > THREADS_MOST) {
        return mo_fail(err, MO_EINVAL, "`threads` must be 1 to %d (or 0 for one per core), not %d",
                       (int)THREADS_MOST, s->threads);
    }
    if (s->batch < 0 || s->batch > BATCH_MOST) {
        return mo_fail(err, MO_EINVAL, "`batch` must be 1 to %d tokens, not %lld", (int)BATCH_MOST,
                       (long long)s->batch);
    }
    if (s->context < 0 || s->context > CONTEXT_MOST) {
        return mo_fail(err, MO_EINVAL, "`context` must be 1 to %d tokens, not %lld", (int)CONTEXT_MOST,
                       (long long)s->context);
    }
    if (s->sessions < 0) {
        return mo_fail(err, MO_EINVAL, "`sessions` must be 1 or more (or 0 for 1), not %d", s->sessions);
    }
    if (s->readers < 0 || s->readers > MO_DISK_READERS) {
        return mo_fail(err, MO_EINVAL, "`readers` must be 1 to %d (or 0 for the measured number), not %d",
                       (int)MO_DISK_READERS, s->readers);
    }
    if (s->ram_bytes < 0) {
        return mo_fail(err, MO_EINVAL, "`ram_bytes` must be a size (or 0 for the free memory), not %lld",
                       (long long)s->ram_bytes);
    }
    if (s->positions < 0 || s->positions > POSITIONS_MOST) {
        return mo_fail(err, MO_EINVAL,
                       "`positions` must be at least `context` (or "
                       "0 for the total of all sessions), not %lld",
                       (long long)s->positions);
    }
    if (s->kept_bytes < 0 || s->kept_bytes > KEPT_MOST) {
        return mo_fail(err, MO_EINVAL, "`kept_bytes` must be a size (or 0 for none), not %lld",
                       (long long)s->kept_bytes);
    }
    if (s->kept_device_bytes < 0 || s->kept_device_bytes > KEPT_MOST) {
        return mo_fail(err, MO_EINVAL, "`kept_device_bytes` must be a size (or 0 for none), not %lld",
                       (long long)s->kept_device_bytes);
    }
    if (s->adapter_bytes < 0 || s->adapter_bytes > KEPT_MOST) {
        return mo_fail(err, MO_EINVAL, "`adapter_bytes` must be a size (or 0 for none), not %lld",
                       (long long)s->adapter_bytes);
    }
    if (s->adapter_count < 0 || s->adapter_count > MO_ADAPTERS_MAX) {
        return mo_fail(err, MO_EINVAL, "a model can have 0 to %d `adapters`, not %d", MO_ADAPTERS_MAX,
                       s->adapter_count);
    }
    if (s->vram_bytes < 0) {
        return mo_fail(err, MO_EINVAL, "`vram_bytes` must be a size (or 0 for the free memory), not %lld",
                       (long long)s->vram_bytes);
    }
    for (int i = 0; s->vram_each && i < MO_DEVICES_MAX; i++) {
        if (s->vram_each[i] < 0) {
            return mo_fail(err, MO_EINVAL, "`vram_bytes` of a device must be a size, not %lld",
                           (long long)s->vram_each[i]);
        }
    }
    return MO_OK;
}

/* Any number may arrive where the caller has an enum. */
static bool within(int value, int most)
{
    return value >= 0 && value <= most;
}

mo_status mo_settings_check(const mo_settings *s, mo_error *err)
{
    if (!within((int)s->kv, MO_KV_TYPES - 1)) {
        return mo_fail(err, MO_EINVAL, "`kv` must be i16, f32 or q8_0, not number %d", (int)s->kv);
    }
    if (!within((int)s->io, MO_IO_CACHED)) {
        return mo_fail(err, MO_EINVAL, "`io` must be auto, direct or cached, not number %d", (int)s->io);
    }
    if (!within((int)s->postfetch, MO_POSTFETCH_EXPERT)) {
        return mo_fail(err, MO_EINVAL, "`postfetch` must be off, auto, down or expert, not number %d",
                       (int)s->postfetch);
    }
    if (!within((int)s->prompt_precision, MO_PRECISION_BF16)) {
        return mo_fail(err, MO_EINVAL, "`prompt_precision` must be exact or bf16, not number %d",
                       (int)s->prompt_precision);
    }
    if (!within((int)s->divide, MO_DIVIDE_EXPERTS)) {
        return mo_fail(err, MO_EINVAL, "`divide` must be auto, layers or experts, not number %d",
                       (int)s->divide);
    }
    return check_sizes(s, err);
}
