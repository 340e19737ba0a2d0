#include "open/requirements.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "cluster/experts.h"
#include "engine/engine.h"
#include "engine/head.h"
#include "engine/session.h"
#include "experts/expert_table.h"
#include "gpu/adapters.h"
#include "gpu/requirements.h"
#include "model/lora.h"
#include "plan/batch.h"
#include "plan/choice.h"
#include "plan/share.h"
#include "speculate/ngram.h"
#include "vision/device_run.h"

/* Program memory besides weights, caches and working memory: code and libraries, readers, C library buffers
 * (measured 2 to 10 MiB); per compute thread its stack and C library memory (190 KiB); and the vocabulary
 * tables: 82 to 96 bytes per token without merges, 183 to 230 with them, for vocabularies of 32,000 to
 * 151,669 tokens. Rounded up. */
#define PROGRAM_BYTES    ((int64_t)16 << 20)
#define PER_THREAD_BYTES ((int64_t)256 << 10)
#define PER_TOKEN_BYTES  100
#define PER_MERGE_BYTES  140
/* per token of a draft model's header: text, length, position, score and kind */
#define HEADER_STRING_BYTES 32
/* One of several ranks: MPI with its message buffers (11 MiB with Open MPI). */
#define RANK_BYTES ((int64_t)16 << 20)

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t matrix_bytes(const mo_weights *w)
{
    return w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
}

/* Bytes of its interleaved row group, rounded up to device allocations. */
static int64_t group_bytes(const mo_weights *w)
{
    return mo_gpu_matrix_bytes(w->interleave * mo_format_row_bytes(mo_format_of(w->type), w->cols));
}

static void count_classes(const mo_model_spec *f, const mo_expert_table *experts, mo_plan_model *out)
{
    const mo_expert_range *r = &f->experts;
    for (int i = 0; i < experts->class_count; i++) {
        const mo_expert_class *c = &experts->classes[i];
        const double share = r->divided ? (double)(r->end - r->first) / out->experts : 1.0;
        out->classes[i] = (mo_plan_class){.bytes = c->bytes / c->count,
                                          .slot_bytes = c->slot_bytes,
                                          .experts = c->count,
                                          .used_per_token = r->divided ? share * out->used * c->layers
                                                                       : (double)c->used * c->layers,
                                          .used = c->used};
    }
    out->class_count = experts->class_count;
}

/* *interleaved: RAM would keep some experts in another layout. */
static void count_experts(const mo_expert_table *experts, mo_plan_layer *layers, mo_plan_model *m,
                          bool *interleaved)
{
    for (int32_t i = 0; i < experts->expert_count; i++) {
        const mo_expert_home *h = &experts->home[i];
        int64_t device = 0;
        for (int32_t k = 0; k < h->parts; k++) {
            const mo_expert_part *part = &experts->parts[h->first + k];
            m->resident_bytes += mo_load_bytes(part->bytes);
            device += mo_gpu_matrix_bytes(part->bytes);
            *interleaved |= part->matrix->interleave > 0;
        }
        m->device_slot_bytes[h->size_class] = larger(m->device_slot_bytes[h->size_class], device);
        layers[h->layer].size_class = h->size_class;
    }
}

/* Matrices left on disk keep the file's layout, and the views afterwards reflect that. */
static void count_layers(const mo_model_spec *f, const mo_expert_table *experts, mo_plan_layer *layers,
                         mo_plan_model *m)
{
    for (int32_t i = experts->expert_count; i < experts->count; i++) {
        const mo_expert_home *h = &experts->home[i];
        mo_plan_layer *l = &layers[h->layer];
        l->bytes = h->bytes;
        l->device_bytes = l->link_bytes = mo_gpu_layer_bytes(f, h->layer);
        for (int32_t k = 0; k < h->parts; k++) {
            const mo_expert_part *part = &experts->parts[h->first + k];
            l->resident += mo_load_bytes(part->bytes);
            l->group_bytes = larger(l->group_bytes, group_bytes(part->matrix));
            l->buffer_bytes = part->at + mo_expert_part_span(part->bytes);
            part->matrix->interleave = 0;
        }
        m->dense_layers++;
        m->dense_bytes += l->resident;
        m->core_bytes += l->resident;
        m->dense_layer_bytes = larger(m->dense_layer_bytes, l->resident);
        m->dense_buffer_bytes = larger(m->dense_buffer_bytes, l->buffer_bytes);
    }
}

mo_state_size mo_requirements_states(const mo_requirements_options *o, int64_t batch, int64_t context,
                                     bool device)
{
    return (mo_state_size){.kv = o->asked->kv,
                           .context = context,
                           .batch = batch,
                           .sessions = o->asked->sessions,
                           .positions = o->asked->positions,
                           .kept_bytes = device ? o->asked->kept_device_bytes : o->kept_bytes};
}

int64_t mo_requirements_drafts(const mo_model_options *asked)
{
    /* a batch of 1 has no row for a draft token */
    const bool off = asked->speculate == MO_SPECULATE_OFF || asked->batch == 1;
    return off ? 0 : asked->draft_max ? asked->draft_max : MO_DRAFTS_MAX;
}

bool mo_requirements_guess_text(const mo_model_options *asked)
{
    return asked->speculate == MO_SPECULATE_AUTO || asked->speculate == MO_SPECULATE_NGRAM;
}

bool mo_requirements_need_head(const mo_model_options *asked)
{
    return asked->speculate == MO_SPECULATE_MTP || asked->speculate == MO_SPECULATE_DRAFT;
}

static void count_device(const mo_model_spec *f, const mo_requirements_options *o, bool interleaved,
                         mo_plan_layer *layers, mo_plan_model *out)
{
    const mo_gpu_requirements requirements =
        mo_gpu_requirements_of(f, out->batch, out->context, &o->precision, o->drafts);
    out->device_core_bytes = requirements.core;
    out->device_group_bytes = mo_gpu_matrix_bytes(requirements.group);
    const mo_state_size states = mo_requirements_states(o, out->batch, out->context, true);
    for (int i = 0; i < f->layer_count; i++) { /* independent of the batch */
        const int64_t bytes = mo_state_layer_bytes(f, &states, i);
        layers[i].kv_bytes = bytes < out->device_kv_bytes ? bytes : 0;
        layers[i].core_bytes = mo_gpu_layer_core_bytes(f, i);
        out->recurrent_layers += mo_layer_recurrent(&f->layers[i]);
        layers[i].state_bytes = /* of windows: for this batch */
            o->experts.alone ? 0 : mo_state_layer_share(f, &states, i);
    }
    out->device_kept_bytes = mo_spec_device_experts(f) ? 0 : o->asked->kept_device_bytes;
    out->device_stage_bytes = interleaved ? 2 * requirements.expert_bytes : requirements.expert_bytes;
    out->device_stage_plain = requirements.expert_bytes;
    out->device_down_bytes = requirements.down_bytes;
    out->device_map_bytes = requirements.map;
}

/* Per rank: streams, sent twice; and requests for experts. */
static int64_t stream_bytes(const mo_model_spec *f, int64_t batch)
{
    return mo_plan_times(8 * batch, f->width + 1);
}

static int64_t question_bytes(const mo_model_spec *f, const mo_requirements_options *o, int64_t batch)
{
    const mo_extent e = mo_extent_of(f);
    return mo_plan_times(batch, mo_experts_message_bytes(e.expert_io, e.used, o->peers));
}

static int64_t message_bytes(const mo_model_spec *f, const mo_requirements_options *o, int64_t batch)
{
    return o->experts.divided ? question_bytes(f, o, batch) : o->range.count ? stream_bytes(f, batch) : 0;
}

/* The n-grams of a session's text, if tokens are drafted from it. */
static int64_t ngram_bytes(const mo_requirements_options *o, int64_t context)
{
    /* rank 0 drafts */
    const bool guessed =
        o->drafts && mo_requirements_guess_text(o->asked) && !o->experts.alone && o->range.first == 0;
    return guessed ? mo_ngram_bytes(context) : 0;
}

/* Per session: its logits and n-grams. */
static int64_t session_bytes(const mo_model_spec *f, const mo_requirements_options *o, int64_t batch,
                             int64_t context)
{
    return mo_plan_sum(mo_session_logits_bytes(f, batch, o->asked->all_logits), ngram_bytes(o, context));
}

/* Draft tokens from any source. */
static int64_t draft_bytes(const mo_model_spec *f, const mo_requirements_options *o, int64_t context)
{
    const int64_t sessions = o->asked->sessions > 1 ? o->asked->sessions : 1;
    return mo_plan_sum((int64_t)mo_drafts_bytes(f, o->drafts, o->threads),
                       mo_plan_times(sessions, ngram_bytes(o, context)));
}

/* Memory for a batch: a step's, and the sessions', whose windows also hold a step's tokens. */
static mo_plan_batch count_batch(const mo_model_spec *f, const mo_requirements_options *o, int64_t batch,
                                 int64_t context)
{
    const int64_t sessions = o->asked->sessions > 1 ? o->asked->sessions : 1;
    const mo_gpu_requirements device = mo_gpu_requirements_of(f, batch, context, &o->precision, o->drafts);
    const mo_state_size here = mo_requirements_states(o, batch, context, false),
                        there = mo_requirements_states(o, batch, context, true);
    const int64_t blocks = mo_state_pool_bytes(f, &there);
    return (mo_plan_batch){
        .batch = batch,
        /* sessions are on the rank with the core */
        .kv_bytes = o->experts.alone ? 0 : mo_state_pool_bytes(f, &here),
        .work_bytes =
            mo_plan_sum((int64_t)mo_engine_bytes(f, batch, context, o->threads) + message_bytes(f, o, batch) +
                            (int64_t)mo_drafts_bytes(f, o->drafts, o->threads),
                        mo_plan_times(sessions, session_bytes(f, o, batch, context))),
        .device_kv_bytes = mo_spec_device_experts(f)
                               ? 0
                               : mo_plan_sum(blocks < INT64_MAX / 2 ? mo_gpu_matrix_bytes(blocks) : blocks,
                                             mo_plan_times(sessions, device.table)),
        .device_work_bytes = device.work,
        .device_idle_bytes = device.idle,
        .device_host_bytes = device.host,
        .device_piece_bytes = device.piece};
}

/* The requested batch, or the candidates for the plan. */
static void count_batches(const mo_model_spec *f, const mo_requirements_options *o, mo_plan_model *m)
{
    const mo_plan_batch asked = count_batch(f, o, m->batch, m->context);
    int64_t sizes[MO_PLAN_BATCHES];
    *m = mo_plan_with_batch(m, &asked);
    m->batch_count = o->batch || o->asked->all_logits ? 0 : mo_plan_batch_sizes(m->context, sizes);
    for (int i = 0; i < m->batch_count; i++) {
        m->batches[i] = count_batch(f, o, sizes[i], m->context);
    }
}

/* Length of a list in the file's metadata; 0: missing. */
static int64_t strings_of(const mo_checkpoint *model, const char *key)
{
    const mo_gguf_entry *list = mo_gguf_find(mo_checkpoint_gguf(model), key);
    mo_metadata_info info = {0};
    if (list) {
        mo_gguf_entry_info(list, &info);
    }
    return (int64_t)info.count;
}

static void count_model(const mo_checkpoint *model, const mo_expert_table *experts,
                        const mo_requirements_options *o, mo_plan_layer *layers, mo_plan_model *m)
{
    const mo_model_spec *f = mo_checkpoint_spec(model);
    const int64_t table = matrix_bytes(&f->embed);
    size_t region = 0;
    bool interleaved = false;
    mo_checkpoint_region(model, &region);
    *m = (mo_plan_model){.layers = f->layer_count,
                         .layer = layers,
                         .vector_bytes = (int64_t)mo_checkpoint_resident(model).vectors,
                         .table_bytes = f->tied ? mo_load_bytes(table) : table,
                         .tied = f->tied,
                         .output_bytes = matrix_bytes(&f->output.w),
                         .batch = o->batch ? o->batch : MO_CHOICE_BATCH,
                         .context = mo_choice_context(o->context, f->context),
                         .core_on_cpu = mo_spec_device_experts(f) && !f->experts.alone,
                         .width = f->width,
                         .expert_io = mo_extent_of(f).expert_io};
    m->core_bytes = (int64_t)region - m->vector_bytes - (f->tied ? m->table_bytes : 0);
    for (int i = 0; i < f->layer_count; i++) {
        const mo_layer *l = &f->layers[i];
        layers[i].size_class = -1;
        layers[i].read_bytes = mo_state_read_bytes(f, o->asked->kv, m->context, i);
        layers[i].joined =
            l->attention.index.top && !l->attention.index.heads && !l->attention.compressed.groups;
        layers[i].queries = l->mixer == MO_MIXER_ATTENTION ? l->attention.heads / l->attention.kv_heads : 0;
        if (l->routed) {
            m->routed_layers++;
            m->experts = l->moe.experts > m->experts ? l->moe.experts : m->experts;
            m->used = l->moe.used > m->used ? l->moe.used : m->used;
        }
    }
    count_classes(f, experts, m);
    count_experts(experts, layers, m, &interleaved);
    count_layers(f, experts, layers, m);
    m->kept_bytes = o->kept_bytes;
    m->draft_bytes = draft_bytes(f, o, m->context);
    count_batches(f, o, m);
    m->other_bytes = PROGRAM_BYTES + PER_THREAD_BYTES * o->threads +
                     PER_TOKEN_BYTES * strings_of(model, "tokenizer.ggml.tokens") +
                     PER_MERGE_BYTES * strings_of(model, "tokenizer.ggml.merges") +
                     (o->range.count ? RANK_BYTES : 0);
    m->rank_bytes = mo_plan_sum(
        RANK_BYTES, larger(stream_bytes(f, m->batch), m->used ? question_bytes(f, o, m->batch) : 0));
    count_device(f, o, interleaved, layers, m);
}

/* Working memory of steps with adapters of these ranks, in RAM and on a device, which also holds their
 * `bytes`. Not on a device that has only experts: the CPU computes adapters of experts. */
static void add_adapters(const mo_model_spec *f, const mo_requirements_options *o, int64_t batch,
                         int64_t bytes, int64_t ranks, int64_t *work, int64_t *device)
{
    const int64_t there = mo_gpu_adapters_bytes(batch * mo_extent_of(f).used, ranks);
    *work = mo_plan_sum(*work, (int64_t)mo_workspace_low_bytes(f, batch, o->asked->adapter_count, ranks));
    *device = mo_spec_device_experts(f) ? *device : mo_plan_sum(*device, mo_plan_sum(bytes, there));
}

/* Adapters are in RAM in addition to the model, and their steps have their own lists. */
static mo_status count_adapters(const mo_checkpoint *model, const mo_requirements_options *o,
                                mo_plan_layer *layers, mo_plan_model *m, mo_error *err)
{
    int64_t bytes = o->asked->adapter_bytes, ranks = 0;
    mo_status status = MO_OK;
    for (int i = 0; i < o->asked->adapter_count && status == MO_OK; i++) {
        mo_lora lora;
        status = mo_lora_load(model, o->asked->adapters[i], true, &lora, err);
        bytes += status == MO_OK ? lora.bytes : 0;
        ranks += status == MO_OK ? lora.rank : 0;
        for (int k = 0; status == MO_OK && k < m->layers; k++) {
            layers[k].adapter_bytes += lora.layers[k].bytes;
            layers[k].adapter_expert_bytes += lora.layers[k].expert_bytes;
            m->adapter_bytes += lora.layers[k].bytes;
        }
        mo_lora_drop(&lora);
    }
    const mo_model_spec *f = mo_checkpoint_spec(model);
    m->other_bytes = mo_plan_sum(m->other_bytes, bytes);
    add_adapters(f, o, m->batch, bytes, ranks, &m->work_bytes, &m->device_work_bytes);
    for (int i = 0; i < m->batch_count; i++) {
        mo_plan_batch *p = &m->batches[i];
        add_adapters(f, o, p->batch, bytes, ranks, &p->work_bytes, &p->device_work_bytes);
    }
    return status;
}

mo_status mo_requirements_fit_encoder(const mo_encoder *e, const char *path, const mo_model_spec *spec,
                                      mo_error *err)
{
    const mo_vision_spec *s = mo_encoder_spec(e);
    const mo_picture_rule *rule = &spec->pictures;
    if (!rule->accepted) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "%s: this model reads no pictures; open it without an encoder (`mmproj`)", path);
    }
    if (rule->grid != (s->projector == MO_PROJECTOR_QWEN3VL)) {
        return mo_fail(err, MO_EINVAL,
                       "%s: the encoder %s is for another family of models; use the model's own", path,
                       s->projector_name);
    }
    if (s->out != spec->width || s->features != rule->features) {
        return mo_fail(
            err, MO_EINVAL,
            "%s: the encoder's rows are for models of width %lld with DeepStack in %d layers, but this "
            "model has width %lld and %d layers; use the model's own encoder",
            path, (long long)s->out, s->features, (long long)spec->width, rule->features);
    }
    return MO_OK;
}

/* Drops shorter batches, unless there are no others. */
static void drop_batches(mo_plan_model *m, int64_t least)
{
    int kept = 0;
    for (int i = 0; i < m->batch_count; i++) {
        if (m->batches[i].batch >= least) {
            m->batches[kept++] = m->batches[i];
        }
    }
    m->batch_count = kept ? kept : m->batch_count;
}

/* Keeps device memory free for encoding pictures of up to ROWS rows. Larger ones use what is left, or the CPU encodes them. */
static void leave_for_pictures(const mo_encoder *e, const mo_resize_rule *rule, mo_plan_model *m)
{
    enum { ROWS = 1024 };
    const int64_t rows = rule->max_pixels / (rule->align * rule->align), some = rows < ROWS ? rows : ROWS;
    if (mo_encoder_device_refusal(e)) {
        return;
    }
    m->device_encoder_bytes = mo_encoder_device_bytes(e, some * rule->align, rule->align);
    m->device_work_bytes = mo_plan_sum(m->device_work_bytes, m->device_encoder_bytes);
    for (int i = 0; i < m->batch_count; i++) {
        mo_plan_batch *p = &m->batches[i];
        p->device_work_bytes = mo_plan_sum(p->device_work_bytes, m->device_encoder_bytes);
    }
}

/* The image encoder is in RAM, with working memory for the largest image. If the rows of an image see each
 * other, one step computes all of them. */
static mo_status count_encoder(const mo_checkpoint *model, const mo_requirements_options *o, mo_plan_model *m,
                               mo_error *err)
{
    const mo_model_spec *f = mo_checkpoint_spec(model);
    mo_encoder *e = NULL;
    mo_resize_rule rule = {0};
    if (!o->asked->mmproj || o->experts.alone || o->range.first > 0) {
        return MO_OK;
    }
    mo_status status = mo_encoder_open(o->asked->mmproj, true, &e, err);
    if (status == MO_OK) {
        status = mo_requirements_fit_encoder(e, o->asked->mmproj, f, err);
    }
    if (status == MO_OK) {
        status = mo_encoder_rule(e, o->asked->image_min_tokens, o->asked->image_max_tokens, &rule, err);
    }
    if (status == MO_OK) {
        const int64_t rows = rule.max_pixels / (rule.align * rule.align);
        const int64_t made = mo_plan_times(rows * mo_vision_row(mo_encoder_spec(e)), sizeof(float));
        /* the encoder's input is kept, to be saved */
        m->encoder_bytes = mo_encoder_weight_bytes(e) + mo_encoder_most_bytes(e, &rule, o->threads) + made +
                           3 * rule.max_pixels;
        m->other_bytes = mo_plan_sum(m->other_bytes, m->encoder_bytes);
        leave_for_pictures(e, &rule, m);
        if (f->pictures.both_ways && !o->batch) {
            drop_batches(m, rows);
        }
    }
    mo_encoder_close(e);
    return status;
}

const char *mo_head_path(const char *path, const mo_model_options *asked, bool beside, char *made,
                         size_t size)
{
    static const char end[] = ".gguf";
    const size_t length = strlen(path), name = length - (sizeof end - 1);
    if (!beside || asked->draft_model) {
        return asked->draft_model ? asked->draft_model : path;
    }
    if (length < sizeof end || strcmp(path + name, end) != 0 || length + sizeof "-mtp" > size) {
        return NULL;
    }
    snprintf(made, size, "%.*s-mtp%s", (int)name, path, end);
    return made;
}

/* The MTP head or draft model is always in RAM as a whole. */
static mo_status count_head(const char *path, const mo_checkpoint *model, const mo_requirements_options *o,
                            mo_plan_model *m, mo_error *err)
{
    const mo_load_options describe = {
        .describe = true, .head = !o->whole, .interleave = o->interleave, .context = o->context};
    const int64_t sessions = o->asked->sessions > 1 ? o->asked->sessions : 1;
    mo_checkpoint *head = NULL;
    size_t count = 0, bytes = 0;
    char made[PATH_MAX];
    mo_status status =
        mo_checkpoint_load(mo_head_path(path, o->asked, o->beside, made, sizeof made), &describe, &head, err);
    if (status == MO_OK) {
        status = mo_checkpoint_borrow(head, model, err);
    }
    if (status == MO_OK) {
        const mo_model_spec *spec = mo_checkpoint_spec(head);
        const bool late =
            !o->whole && mo_head_is_late(mo_checkpoint_spec(model), o->asked->speculate == MO_SPECULATE_AUTO);
        mo_state_size states = mo_requirements_states(o, 0, m->context, false);
        states.kept_bytes = 0;
        const mo_home *homes = mo_checkpoint_homes(head, &count);
        mo_checkpoint_region(head, &bytes);
        int64_t all = (int64_t)bytes;
        m->work_bytes =
            mo_plan_sum(m->work_bytes, (int64_t)mo_head_bytes(spec, &states, m->batch, late, o->threads));
        for (int i = 0; i < m->batch_count; i++) {
            mo_plan_batch *p = &m->batches[i];
            p->work_bytes =
                mo_plan_sum(p->work_bytes, (int64_t)mo_head_bytes(spec, &states, p->batch, late, o->threads));
        }
        for (size_t i = 0; i < count; i++) {
            all += mo_load_bytes(homes[i].bytes);
        }
        all = mo_plan_sum(all, mo_plan_times(sessions, (int64_t)mo_head_session_bytes(spec, m->context)));
        if (o->whole) {
            all += HEADER_STRING_BYTES *
                   (strings_of(head, "tokenizer.ggml.tokens") + strings_of(head, "tokenizer.ggml.merges"));
        }
        m->head_bytes = mo_plan_sum(all, (int64_t)mo_head_bytes(spec, &states, m->batch, late, o->threads));
        m->other_bytes = mo_plan_sum(m->other_bytes, all);
    }
    mo_checkpoint_free(head);
    return status;
}

/* Products saturate; the plan's sums need a margin. */
static mo_status check_sessions(const mo_requirements_options *o, const mo_plan_model *m, mo_error *err)
{
    const int64_t most = (int64_t)1 << 60;
    if (o->asked->positions && o->asked->positions < m->context) {
        return mo_fail(err, MO_EINVAL, "`positions` (%lld) is less than the `context` of one session (%lld)",
                       (long long)o->asked->positions, (long long)m->context);
    }
    if (m->kv_bytes <= most && m->device_kv_bytes <= most && m->work_bytes <= most) {
        return MO_OK;
    }
    return mo_fail(err, MO_EINVAL,
                   "`sessions` of %d with a `context` of %lld tokens and a `batch` of "
                   "%lld tokens need more memory than can be represented; reduce them",
                   o->asked->sessions, (long long)m->context, (long long)m->batch);
}

mo_status mo_requirements_of(const char *path, const mo_requirements_options *options, mo_plan_model *out,
                             mo_error *err)
{
    const mo_load_options describe = {.describe = true,
                                      .interleave = options->interleave,
                                      .range = options->range,
                                      .experts = options->experts};
    mo_checkpoint *model = NULL;
    mo_expert_table *experts = NULL;
    mo_plan_layer *layers = NULL;
    *out = (mo_plan_model){0};
    mo_status status = mo_checkpoint_load(path, &describe, &model, err);
    if (status == MO_OK) {
        status = mo_expert_table_create(model, &experts, err);
    }
    if (status == MO_OK) {
        layers = calloc((size_t)mo_checkpoint_spec(model)->layer_count + 1, sizeof *layers);
        status =
            layers ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for a plan; free some and try again");
    }
    if (status == MO_OK && layers) {
        count_model(model, experts, options, layers, out);
        status = check_sessions(options, out, err);
    }
    if (status == MO_OK && layers) {
        status = count_adapters(model, options, layers, out, err);
    }
    if (status == MO_OK && layers && options->head) {
        status = count_head(path, model, options, out, err);
    }
    if (status == MO_OK && layers) {
        status = count_encoder(model, options, out, err);
    }
    mo_expert_table_destroy(experts);
    mo_checkpoint_free(model);
    if (status != MO_OK) {
        mo_requirements_drop(out);
    }
    return status;
}

void mo_requirements_drop(mo_plan_model *model)
{
    free((mo_plan_layer *)model->layer);
    *model = (mo_plan_model){0};
}
