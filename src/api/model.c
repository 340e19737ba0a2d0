/* The public API of models, text and sessions: translation from moraine.h to the rooms. Sampling and the calls
 * on an open session are implemented in engine/ under their public names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/model.h"
#include "base/host.h"
#include "base/log.h"
#include "base/status.h"
#include "base/sweep.h"
#include "device/choice.h"
#include "engine/session.h"
#include "hotcache/budget.h"
#include "hotcache/toggles.h"
#include "plan/text.h"
#include "text/reply.h"
#include "text/stream.h"

/* ---- Models ----------------------------------------------------------------------------------- */

mo_model_options mo_model_options_default(void)
{
    return (mo_model_options){
        .learning.hot_cache = {.auto_reserve_mib = MO_HOT_RESERVE_MIB, .layer_curve = 0.5}};
}

const char *mo_isa_name(int index)
{
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    return index >= 0 && index < count ? sets[index]->name : NULL;
}

static mo_status check_options(const mo_model_options *o, mo_error *err)
{
    if (o->threads < 0 || o->threads > 1024) {
        return mo_fail(err, MO_EINVAL, "threads must be 1 to 1024 (or 0 for one per core), not %d",
                       o->threads);
    }
    if (o->batch < 0 || o->batch > 65536) {
        return mo_fail(err, MO_EINVAL, "a batch has 1 to 65536 tokens, not %lld", (long long)o->batch);
    }
    if (o->context < 0 || o->context > (int64_t)1 << 24) {
        return mo_fail(err, MO_EINVAL, "a context has 1 to %lld positions, not %lld", 1LL << 24,
                       (long long)o->context);
    }
    return MO_OK;
}

static mo_status open_files(mo_model *m, const char *path, const mo_model_options *o,
                            const mo_hot_request *hot, const mo_kernels *kernels, mo_error *err)
{
    mo_open_options options = {
        .survey = {.kv = o->kv,
                   .batch = o->batch ? o->batch : MO_BATCH_DEFAULT,
                   .context = o->context,
                   .context_most = MO_CONTEXT_DEFAULT,
                   .threads = mo_pool_threads(m->pool),
                   .all_logits = o->all_logits},
        .limits = {.ram_bytes = o->ram_bytes, .reserve_bytes = -1},
        .rates = mo_rates_here(),
        .disk = {.io = o->io, .readers = o->readers},
        .hot = hot,
        .predict = !o->no_prediction,
        .skip_missing = o->skip_missing,
        .map = o->map,
        .interleave = kernels->interleave,
        .pool = m->pool,
        .progress = o->progress,
        .user = o->user,
    };
    if (o->policy) {
        options.policy = mo_policy_find(o->policy);
        if (!options.policy) {
            return mo_fail(err, MO_EINVAL, "there is no policy \"%s\"; `moraine run --help` lists them",
                           o->policy);
        }
    }
    const mo_status status = mo_opened_make(path, &options, &m->opening, err);
    m->checkpoint = m->opening.model;
    m->mapped = o->map;
    return status;
}

/* A device that cannot take the model is an error when it was asked for by name; otherwise the CPU runs it. */
static mo_status open_gpu(mo_model *m, const mo_model_options *o, const mo_hot_request *hot, bool serial,
                          mo_error *err)
{
    if (!m->device) {
        return MO_OK;
    }
    const bool asked = o->device && strcmp(o->device, "auto") != 0;
    mo_postfetch postfetch;
    mo_postfetch_notes notes = {.count = 0};
    mo_device_info info;
    mo_device_describe(m->device, &info);
    snprintf(m->device_name, sizeof m->device_name, "%s", info.name);
    mo_status status = mo_postfetch_settings(o->postfetch, NULL, NULL, &postfetch, &notes, err);
    mo_postfetch_unknown(environ, &notes);
    for (int i = 0; i < notes.count; i++) {
        mo_log(MO_LOG_WARN, "device", "%s", notes.line[i]);
    }
    if (status == MO_OK && o->skip_missing) {
        status = mo_fail(err, MO_EINVAL, "--skip-missing works without a device only; add --device none");
    }
    const int64_t made_for = mo_checkpoint_spec(m->checkpoint)->context;
    mo_rates rates = mo_rates_here();
    const bool probed = mo_rates_for_device(&rates, info.name, info.link_bytes_s, info.memory_bytes_s);
    mo_gpu_options options = {
        .device = m->device,
        .batch = o->batch ? o->batch : MO_BATCH_DEFAULT,
        .context = o->context                      ? o->context
                   : made_for < MO_CONTEXT_DEFAULT ? made_for
                                                   : MO_CONTEXT_DEFAULT,
        .kv = o->kv,
        .vram_bytes = o->vram_bytes,
        .cpu_moe = o->cpu_moe,
        .policy = o->policy ? mo_policy_find(o->policy) : NULL,
        .tiers = m->opening.tiers,
        .hot = hot,
        .serial = serial,
        .postfetch = &postfetch,
        .cpu_bytes_s = rates.measured ? rates.ram_bytes_s * rates.compute_share : 0,
        .link_bytes_s = probed ? rates.link_bytes_s : 0,
        .round_trip_s = probed ? rates.round_trip_s : 0,
        .progress = o->progress,
        .user = o->user,
    };
    options.requests = mo_learning_requests(m->learning, &options.wish_count);
    if (status == MO_OK) {
        status = mo_gpu_open(m->checkpoint, &options, &m->gpu, err);
    }
    if (status != MO_OK && status != MO_ECANCELLED && !asked) {
        mo_log(MO_LOG_WARN, "device", "%s; the CPU computes everything%s%s", err->detail,
               hot->file ? ", and without --device none there is no hot cache of " : "",
               hot->file ? hot->file : "");
        return MO_OK;
    }
    return status;
}

static mo_status open_engine(mo_model *m, const mo_model_options *o, const mo_kernels *kernels, mo_error *err)
{
    const mo_model_spec *spec = mo_checkpoint_spec(m->checkpoint);
    const int64_t made_for = spec->context < MO_CONTEXT_DEFAULT ? spec->context : MO_CONTEXT_DEFAULT;
    const mo_engine_options options = {
        .kernels = kernels,
        .pool = m->pool,
        .batch = o->batch ? o->batch : MO_BATCH_DEFAULT,
        .context = o->context ? o->context : made_for,
        .tiers = m->opening.tiers,
        .tally = mo_learning_tally(m->learning),
        .accelerator = m->gpu ? mo_gpu_accelerator(m->gpu) : NULL,
    };
    const mo_status status = mo_engine_create(m->checkpoint, &options, &m->engine, err);
    if (status == MO_OK) {
        m->engine->timed = mo_learning_times(m->learning);
    }
    return status;
}

/* A model without a vocabulary, or with one we cannot read, still works with token ids. */
static void open_text(mo_model *m)
{
    const mo_gguf *g = mo_checkpoint_gguf(m->checkpoint);
    if (mo_tokenizer_create(g, &m->tokenizer, &m->no_tokenizer) != MO_OK) {
        m->tokenizer = NULL;
    }
    m->chat = mo_chat_detect(g, m->tokenizer);
}

mo_status mo_model_open(const char *path, const mo_model_options *options, mo_model **out, mo_error *err)
{
    const mo_model_options o = options ? *options : mo_model_options_default();
    const mo_kernels *kernels = NULL;
    mo_hot_request hot;
    mo_hot_toggles toggles;
    *out = NULL;
    mo_status status = check_options(&o, err);
    if (status == MO_OK) {
        status = mo_hot_request_make(&o.learning.hot_cache, &hot, err);
    }
    if (status == MO_OK) {
        status = mo_kernels_select(o.isa, &kernels, err);
    }
    if (status != MO_OK) {
        return status;
    }
    mo_model *m = calloc(1, sizeof *m);
    if (!m) {
        return mo_fail(err, MO_ENOMEM, "no memory to open %s", path);
    }
    mo_hot_toggles_read(environ, &toggles);
    for (int i = 0; i < toggles.lines; i++) {
        mo_log(MO_LOG_WARN, "learning", "%s", toggles.line[i]);
    }
    hot.no_fill = toggles.no_fill;
    status = mo_pool_create(o.threads, &m->pool, err);
    if (status == MO_OK) {
        status = mo_device_choose_verbose(o.device, &m->device, err);
    }
    if (status == MO_OK) {
        /* with a device the hot cache is there, and RAM follows its policy */
        status = open_files(m, path, &o, m->device ? NULL : &hot, kernels, err);
    }
    if (status == MO_OK) {
        status = mo_learning_open(&m->opening, &o.learning, &hot, o.progress, o.user, &m->learning, err);
    }
    if (status == MO_OK) {
        status = open_gpu(m, &o, &hot, toggles.serial, err);
    }
    if (status == MO_OK) {
        status = open_engine(m, &o, kernels, err);
    }
    if (status != MO_OK) {
        mo_model_close(m);
        return status;
    }
    open_text(m);
    *out = m;
    return MO_OK;
}

void mo_model_close(mo_model *model)
{
    if (model) {
        mo_tokenizer_destroy(model->tokenizer);
        mo_engine_destroy(model->engine);
        mo_gpu_close(model->gpu);
        mo_device_close(model->device);
        mo_learning_close(model->learning);
        mo_opened_drop(&model->opening);
        mo_pool_destroy(model->pool);
        free(model);
    }
}

/* ---- Tiers ------------------------------------------------------------------------------------ */

const char *mo_policy_name(int index, const char **summary)
{
    const mo_policy *policy = mo_policy_at(index);
    if (policy && summary) {
        *summary = policy->summary;
    }
    return policy ? policy->name : NULL;
}

static void report_disk(mo_model *m, const mo_disk *disk, mo_tier_report *out)
{
    const mo_disk_counters c = mo_disk_count(disk);
    out->disk_reads += c.reads;
    out->disk_bytes += c.bytes;
    out->disk_busy_ns += c.busy_ns;
    snprintf(m->disk_method, sizeof m->disk_method, "%s reads, %s of %d",
             mo_disk_io(disk) == MO_IO_DIRECT ? "direct" : "cached",
             mo_disk_chosen(disk) == MO_DISK_URING ? "io_uring" : "threads", mo_disk_readers(disk));
    out->disk_method = m->disk_method;
}

static mo_tier_phase phase_of(const mo_store_phase_counters *c)
{
    return (mo_tier_phase){
        .passes = c->passes, .asked = c->asked, .hits = c->hits, .bytes = c->bytes, .wait_ns = c->wait_ns};
}

static void report_store(mo_model *m, const mo_store *store, mo_tier_report *out)
{
    const mo_store_counters c = mo_store_count(store);
    mo_store_slots(store, &out->slots, &out->filled, &out->slot_bytes);
    out->policy = mo_store_policy(store)->name;
    out->prompt = phase_of(&c.phase[MO_STORE_PROMPT]);
    out->generation = phase_of(&c.phase[MO_STORE_GENERATION]);
    out->guessed = c.guessed;
    out->useful = c.useful;
    out->late = c.late;
    out->wasted = c.wasted;
    out->guessed_bytes = c.guessed_bytes;
    out->evictions = c.evictions;
    report_disk(m, mo_store_disk(store), out);
}

void mo_model_tiers(mo_model *model, mo_tier_report *out)
{
    const mo_tiers *tiers = model->opening.tiers;
    const mo_plan *plan = &model->opening.plan;
    *out = (mo_tier_report){.mode = model->mapped ? "mapped" : mo_plan_mode_text(plan->mode),
                            .policy = "",
                            .disk_method = "",
                            .ceiling_bytes = plan->ceiling,
                            .planned_bytes = plan->used,
                            .expert_bytes = plan->expert_bytes};
    pthread_mutex_lock(&model->engine->lock);
    if (tiers && tiers->store) {
        report_store(model, tiers->store, out);
    }
    if (tiers && tiers->ring) {
        const mo_layer_buffer_counters c = mo_layer_buffer_count(tiers->ring);
        out->streamed_layers = model->opening.asked.dense_layers - plan->dense_resident;
        out->ring = plan->ring;
        out->layers_streamed = c.layers;
        out->layer_bytes = c.bytes;
        out->layer_wait_ns = c.wait_ns;
        report_disk(model, mo_layer_buffer_disk(tiers->ring), out);
    }
    out->skipped = tiers ? tiers->skipped : 0;
    out->disk_probed_bytes_s = model->opening.probed_disk_bytes_s;
    pthread_mutex_unlock(&model->engine->lock);
}

void mo_model_device(mo_model *model, mo_device_report *out)
{
    *out = (mo_device_report){0};
    pthread_mutex_lock(&model->engine->lock);
    if (model->gpu) {
        mo_gpu_report(model->gpu, out);
        out->name = model->device_name;
        out->lost = atomic_load(&model->engine->accelerator) == NULL;
    }
    pthread_mutex_unlock(&model->engine->lock);
}

int mo_model_device_layers(mo_model *model, mo_device_layer *out, int room)
{
    pthread_mutex_lock(&model->engine->lock);
    const int count = model->gpu ? mo_gpu_report_layers(model->gpu, out, room) : 0;
    pthread_mutex_unlock(&model->engine->lock);
    return count;
}

void mo_model_describe(const mo_model *model, mo_model_info *out)
{
    const mo_model_spec *f = model->engine->spec;
    const mo_gguf *g = mo_checkpoint_gguf(model->checkpoint);
    const mo_checkpoint_bytes bytes = mo_checkpoint_resident(model->checkpoint);
    *out = (mo_model_info){
        .path = mo_checkpoint_path(model->checkpoint),
        .isa = model->engine->kernels->name,
        .threads = mo_pool_threads(model->pool),
        .layers = f->layer_count,
        .vocab = f->vocab,
        .width = f->width,
        .context = model->engine->context,
        .batch = model->engine->batch,
        .core_bytes = bytes.core,
        .expert_bytes = bytes.experts,
        .table_bytes = bytes.table,
        .vector_bytes = bytes.vectors,
        .work_bytes = model->engine->space.bytes,
        .bytes_per_token = mo_checkpoint_bytes_per_token(model->checkpoint),
        .has_vocabulary = model->tokenizer != NULL,
    };
    for (int i = 0; i < f->layer_count; i++) {
        if (f->layers[i].routed) {
            out->experts = f->layers[i].moe.experts;
            out->experts_used = f->layers[i].moe.used;
        }
    }
    mo_gguf_string_or(g, "general.architecture", "", &out->architecture, NULL);
    mo_gguf_string_or(g, "general.name", "", &out->name, NULL);
}

int mo_model_layer_experts(const mo_model *model, int layer)
{
    const mo_model_spec *f = model->engine->spec;
    const bool routed = layer >= 0 && layer < f->layer_count && f->layers[layer].routed;
    return routed ? f->layers[layer].moe.experts : 0;
}

void mo_model_counters(mo_model *model, mo_counters *out)
{
    pthread_mutex_lock(&model->engine->lock);
    const mo_engine_counters c = model->engine->counters;
    pthread_mutex_unlock(&model->engine->lock);
    *out = (mo_counters){
        .steps = c.steps, .tokens = c.tokens, .expert_picks = c.expert_picks, .experts_run = c.bricks_run};
}

mo_status mo_model_read_rate(mo_model *model, uint64_t bytes, double *gb_per_s, mo_error *err)
{
    uint8_t *memory = mo_host_alloc_huge(bytes);
    if (!memory) {
        return mo_fail(err, MO_ENOMEM, "no %.1f MiB of memory to measure with", (double)bytes / (1 << 20));
    }
    memset(memory, 1, bytes);
    *gb_per_s = 0.0;
    for (int round = 0; round < 5; round++) { /* the best: other programs only ever slow it down */
        const double rate = mo_sweep_rate(model->pool, memory, bytes);
        *gb_per_s = rate > *gb_per_s ? rate : *gb_per_s;
    }
    mo_host_free_huge(memory, bytes);
    return MO_OK;
}

/* ---- Text ------------------------------------------------------------------------------------- */

static unsigned tokenizer_flags(int flags)
{
    if (flags & MO_TOKEN_CHAT) {
        return MO_TOKENIZE_CHAT;
    }
    return flags & MO_TOKEN_SPECIAL ? MO_TOKENIZE_SPECIAL | MO_TOKENIZE_ENDS : 0;
}

static mo_status need_tokenizer(const mo_model *model, mo_error *err)
{
    return model->tokenizer ? MO_OK : mo_fail(err, MO_EUNSUPPORTED, "%s", model->no_tokenizer.detail);
}

mo_status mo_tokenize(const mo_model *model, const char *text, size_t length, int flags, int32_t **ids,
                      size_t *count, mo_error *err)
{
    const mo_status status = need_tokenizer(model, err);
    return status != MO_OK
               ? status
               : mo_tokenizer_encode(model->tokenizer, text, length, tokenizer_flags(flags), ids, count, err);
}

mo_status mo_tokenize_file(const char *path, const char *text, size_t length, int flags, int32_t **ids,
                           size_t *count, mo_error *err)
{
    mo_gguf *g = NULL;
    mo_tokenizer *t = NULL;
    mo_status status = mo_gguf_open(path, &g, err);
    if (status == MO_OK) {
        status = mo_tokenizer_create(g, &t, err);
    }
    if (status == MO_OK) {
        status = mo_tokenizer_encode(t, text, length, tokenizer_flags(flags), ids, count, err);
    }
    mo_tokenizer_destroy(t);
    mo_gguf_close(g);
    return status;
}

bool mo_token_ends(const mo_model *model, int32_t token)
{
    return model->tokenizer && mo_token_is_end(model->tokenizer, token);
}

const int32_t *mo_model_suppressed(const mo_model *model, size_t *count)
{
    *count = 0;
    return model->tokenizer ? mo_tokenizer_suppressed(model->tokenizer, count) : NULL;
}

mo_status mo_stream_open(const mo_model *model, mo_stream **out, mo_error *err)
{
    *out = NULL;
    const mo_status status = need_tokenizer(model, err);
    if (status != MO_OK) {
        return status;
    }
    *out = malloc(sizeof **out);
    if (!*out) {
        return mo_fail(err, MO_ENOMEM, "no memory for a text stream");
    }
    mo_stream_init(*out, model->tokenizer, MO_DETOKENIZE_CONTINUE);
    return MO_OK;
}

void mo_stream_close(mo_stream *stream)
{
    if (stream) {
        mo_stream_free(stream);
        free(stream);
    }
}

mo_status mo_reply_open(const mo_model *model, bool think, mo_reply **out, mo_error *err)
{
    *out = NULL;
    const mo_status status = need_tokenizer(model, err);
    if (status != MO_OK) {
        return status;
    }
    *out = malloc(sizeof **out);
    if (!*out) {
        return mo_fail(err, MO_ENOMEM, "no memory for a reply");
    }
    mo_reply_init(*out, model->tokenizer, model->chat, think);
    return MO_OK;
}

void mo_reply_close(mo_reply *reply)
{
    if (reply) {
        mo_reply_free(reply);
        free(reply);
    }
}

static mo_status role_of(const char *name, mo_chat_role *out, mo_error *err)
{
    static const struct {
        const char *name;
        mo_chat_role role;
    } roles[] = {{"system", MO_CHAT_SYSTEM}, {"user", MO_CHAT_USER}, {"assistant", MO_CHAT_ASSISTANT}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(name, roles[i].name) == 0) {
            *out = roles[i].role;
            return MO_OK;
        }
    }
    return mo_fail(err, MO_EINVAL, "there is no role '%s'; use system, user or assistant", name);
}

mo_status mo_model_chat(const mo_model *model, const mo_message *messages, size_t count, bool think,
                        char **text, mo_error *err)
{
    char date[16];
    struct tm today;
    const time_t now = time(NULL);
    size_t length;
    mo_status status = MO_OK;
    *text = NULL;
    mo_chat_message *list = calloc(count ? count : 1, sizeof *list);
    if (!list) {
        return mo_fail(err, MO_ENOMEM, "no memory for %zu messages", count);
    }
    for (size_t i = 0; i < count && status == MO_OK; i++) {
        list[i].content = messages[i].content;
        status = role_of(messages[i].role, &list[i].role, err);
    }
    if (status == MO_OK) {
        strftime(date, sizeof date, "%Y-%m-%d", localtime_r(&now, &today));
        const mo_chat_options options = {.thinking = think, .date = date};
        status = mo_chat_render(model->chat, list, count, &options, text, &length, err);
    }
    free(list);
    return status;
}

const char *mo_model_chat_name(const mo_model *model)
{
    return mo_chat_format_name(model->chat);
}

/* ---- Sessions --------------------------------------------------------------------------------- */

uint64_t mo_session_bytes(const mo_model *model, mo_kv_type kv, int64_t context)
{
    return mo_state_bytes(model->engine->spec, kv, context ? context : model->engine->context,
                          model->engine->batch);
}

mo_status mo_session_create(mo_model *model, mo_kv_type kv, int64_t context, mo_session **out, mo_error *err)
{
    *out = NULL;
    if (kv != MO_KV_F16 && kv != MO_KV_F32 && kv != MO_KV_Q8_0) {
        return mo_fail(err, MO_EINVAL, "keys and values are kept as f16, f32 or q8_0");
    }
    return mo_session_open(model->engine, kv, context ? context : model->engine->context, out, err);
}

void mo_session_destroy(mo_session *session)
{
    mo_session_close(session);
}
