/* The public API for opening sessions. Functions on an open session are in engine/ under their public
 * names. */
#include "engine/snapshot.h"

#include "api/model.h"
#include "base/growing.h"
#include "base/status.h"

static const mo_session_options defaults = {.size = sizeof(mo_session_options)};

void mo_session_options_init(mo_session_options *options, size_t size)
{
    mo_options_write(options, size, &defaults, sizeof defaults);
}

static mo_status read_options(const mo_model *model, const mo_session_options *options,
                              mo_session_options *out, mo_error *err)
{
    *out = defaults;
    const mo_status status = mo_options_read(out, sizeof *out, options, "mo_session_options", err);
    if (status == MO_OK && ((int)out->kv < 0 || (int)out->kv >= MO_KV_TYPES)) {
        return mo_fail(err, MO_EINVAL, "`kv` must be i16, f32 or q8_0");
    }
    out->context = out->context ? out->context : model->engine->context;
    return status;
}

uint64_t mo_session_bytes(const mo_model *model, const mo_session_options *options)
{
    mo_session_options o;
    return read_options(model, options, &o, NULL) == MO_OK
               ? (uint64_t)mo_state_bytes(model->engine->spec, o.kv, o.context, model->engine->batch)
               : 0;
}

void mo_model_kept(mo_model *model, mo_kept_report *out, size_t size)
{
    mo_block_counts blocks, ram;
    mo_kept_report r = {0};
    mo_engine_count_blocks(model->engine, &blocks, &ram, &r.device);
    r.total_bytes = blocks.total;
    r.free_bytes = blocks.free;
    r.session_bytes = blocks.held;
    r.snapshot_bytes = blocks.kept;
    r.sessions = blocks.states;
    r.spilled_bytes = r.device ? ram.kept : 0;
    r.spill_bytes = r.device ? ram.free : 0;
    r.row_bytes = atomic_load(&model->engine->row_bytes);
    mo_report_write(out, size, &r, sizeof r);
}

void mo_model_trim(mo_model *model)
{
    mo_engine_trim(model->engine);
}

mo_status mo_session_open(mo_model *model, const mo_session_options *options, mo_session **out, mo_error *err)
{
    mo_session_options o;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, out)
    *out = NULL;
    mo_status status = read_options(model, options, &o, err);
    if (status == MO_OK) {
        status = mo_engine_session_open(model->engine, o.kv, o.context, out, err);
    }
    if (status == MO_OK && model->adapter_count) {
        status = mo_session_adapt(*out, model->adapters, model->adapter_count, err);
    }
    if (status != MO_OK) {
        mo_session_close(*out);
        *out = NULL;
    }
    return status;
}

void mo_session_describe(const mo_session *session, mo_session_info *out, size_t size)
{
    const mo_session_info info = {.length = session->state.length,
                                  .context = session->state.context,
                                  .computed = session->computed,
                                  .adapters = session->adapters.identity,
                                  .tokens = session->tokens,
                                  .kv = session->state.kv};
    mo_report_write(out, size, &info, sizeof info);
}

void mo_snapshot_describe(const mo_snapshot *snapshot, mo_snapshot_info *out, size_t size)
{
    mo_snapshot_info info = {.length = snapshot->mark.length,
                             .least = snapshot->least,
                             .adapters = snapshot->adapters,
                             .fingerprint = snapshot->fingerprint,
                             .on_device = snapshot->on_device,
                             .tokens = snapshot->tokens};
    info.bytes = mo_snapshot_bytes(snapshot, &info.all_bytes);
    mo_report_write(out, size, &info, sizeof info);
}

mo_status mo_snapshot_read(const mo_model *model, const uint8_t *bytes, size_t size, mo_snapshot **out,
                           mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, out)
    if (size > 0) {
        MO_REQUIRE(err, bytes)
    }
    *out = NULL;
    return mo_engine_snapshot_read(model->engine, bytes, size, out, err);
}
