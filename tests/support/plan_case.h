/* Models to plan for, and plans of them, for tests. */
#ifndef MO_TESTS_PLAN_CASE_H
#define MO_TESTS_PLAN_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/make.h"
#include "random.h"

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)
#define GB  ((int64_t)1000000000)

static const mo_rates fast = {
    .ram_bytes_s = 50e9, .compute_share = 0.8, .disk_bytes_s = 4e9, .measured = true};

static inline mo_plan_limits ceiling_of(int64_t bytes)
{
    return (mo_plan_limits){.ram_bytes = bytes};
}

static inline mo_run_plan planned(const mo_plan_model *m, int64_t ceiling, const mo_rates *r)
{
    mo_run_plan p;
    mo_error err;
    const mo_plan_limits l = ceiling_of(ceiling);
    const mo_status status = mo_plan_make(m, &l, r, &p, &err);
    if (status != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return p;
}

/* The fewest slots of a class. */
static inline int64_t fewest(const mo_plan_model *m, const mo_plan_class *c)
{
    const int64_t n = (c->used ? c->used : m->used) + (m->in_flight ? m->in_flight : MO_PLAN_IN_FLIGHT);
    return n < c->experts ? n : c->experts;
}

/* ---- Models ---- */

/* The first 12 layers of Qwen3-30B-A3B: two sizes of experts, half of the layers each. */
static inline mo_plan_model qwen(void)
{
    return (mo_plan_model){
        .layers = 12,
        .routed_layers = 12,
        .experts = 128,
        .used = 8,
        .core_bytes = 390 * 1000000,
        .output_bytes = 260 * 1000000,
        .vector_bytes = 13 * 1000000,
        .table_bytes = 175 * 1000000,
        .classes =
            {{.bytes = 3023872, .slot_bytes = 3035136, .experts = 768, .used_per_token = 48, .used = 8},
             {.bytes = 2654208, .slot_bytes = 2678784, .experts = 768, .used_per_token = 48, .used = 8}},
        .class_count = 2,
        .dense_layers = 12,
        .dense_bytes = 129 * 1000000,
        .dense_layer_bytes = 11 * 1000000,
        .dense_buffer_bytes = 11 * 1000000 + 49152,
        .kv_bytes = 100 * 1000000,
        .work_bytes = 60 * 1000000,
        .other_bytes = 20 * 1000000,
        .staging_bytes = 65536,
    };
}

/* The model of the three tiers' design: 70B in Q6_K, 80 layers of 669 MB. */
static inline mo_plan_model dense_70b(int64_t context)
{
    const int64_t layer = 669 * 1000000, output = 862 * 1000000;
    return (mo_plan_model){
        .layers = 80,
        .core_bytes = 80 * layer + output,
        .output_bytes = output,
        .vector_bytes = 6 * 1000000,
        .table_bytes = output,
        .dense_layers = 80,
        .dense_bytes = 80 * layer,
        .dense_layer_bytes = layer,
        .dense_buffer_bytes = layer + 65536,
        .kv_bytes = context * 327680,
        .work_bytes = 200 * 1000000,
        .other_bytes = 40 * 1000000,
    };
}

static inline mo_plan_model gpt_oss_120b(int64_t context)
{
    return (mo_plan_model){
        .layers = 36,
        .routed_layers = 36,
        .experts = 128,
        .used = 4,
        .core_bytes = 1640 * 1000000,
        .output_bytes = 620 * 1000000,
        .vector_bytes = 60 * 1000000,
        .table_bytes = 620 * 1000000,
        .classes =
            {{.bytes = 13219200, .slot_bytes = 13238272, .experts = 4608, .used_per_token = 144, .used = 4}},
        .class_count = 1,
        .dense_layers = 36,
        .dense_bytes = 36 * (int64_t)28000000,
        .dense_layer_bytes = 28000000,
        .dense_buffer_bytes = 28040000,
        .kv_bytes = context * 73728,
        .work_bytes = 100 * 1000000,
        .other_bytes = 40 * 1000000,
    };
}

static inline void assert_says(const mo_error *err, const char *words)
{
    if (!strstr(err->detail, words)) {
        fail_msg("\"%s\" is not in: %s", words, err->detail);
    }
}

static inline mo_plan_model random_model(uint64_t *seed)
{
    mo_plan_model m = {.layers = (int)random_below(seed, 60) + 1, .used = (int)random_below(seed, 16) + 1};
    m.tied = random_below(seed, 2);
    m.table_bytes = random_below(seed, GIB);
    m.output_bytes = random_below(seed, GIB);
    m.core_bytes = m.output_bytes + random_below(seed, GIB);
    m.vector_bytes = random_below(seed, MIB);
    m.kv_bytes = random_below(seed, GIB);
    m.work_bytes = random_below(seed, 64 * MIB);
    m.other_bytes = random_below(seed, 64 * MIB);
    m.staging_bytes = random_below(seed, MIB);
    m.in_flight = (int)random_below(seed, 9);
    m.class_count = (int)random_below(seed, MO_PLAN_CLASSES + 1);
    for (int i = 0; i < m.class_count; i++) {
        mo_plan_class *c = &m.classes[i];
        c->bytes = random_below(seed, random_below(seed, 2) ? 16 * MIB : 4096) + 1;
        c->slot_bytes = c->bytes + random_below(seed, 16384);
        c->experts = random_below(seed, random_below(seed, 2) ? 2000 : 8);
        c->used_per_token = (double)random_below(seed, 200) / 3;
        c->used = (int)random_below(seed, 10);
    }
    if (m.class_count == 0 || random_below(seed, 2)) {
        m.dense_layers = m.layers;
        m.dense_layer_bytes = random_below(seed, 200 * MIB) + 1;
        m.dense_buffer_bytes = m.dense_layer_bytes + random_below(seed, 65536);
        m.dense_bytes = m.dense_layer_bytes * m.layers - random_below(seed, m.dense_layer_bytes);
        m.core_bytes += m.dense_bytes;
    }
    return m;
}

#endif
