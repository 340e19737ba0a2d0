/* The public API for measuring the parts of prompt time. */
#include "api/model.h"
#include "base/growing.h"

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

mo_split_report mo_split_report_of(const mo_split *s)
{
    int64_t parts = 0;
    for (int i = 0; i < MO_PARTS; i++) {
        parts += s->part_ns[i];
    }
    return (mo_split_report){.steps = s->steps,
                             .tokens = s->tokens,
                             .seconds = seconds(s->total_ns),
                             .attention = seconds(s->part_ns[MO_PART_ATTENTION]),
                             .products = seconds(s->part_ns[MO_PART_PRODUCTS]),
                             .experts = seconds(s->part_ns[MO_PART_EXPERTS]),
                             .routing = seconds(s->part_ns[MO_PART_ROUTING]),
                             .other = seconds(s->part_ns[MO_PART_OTHER]),
                             .copies = seconds(s->part_ns[MO_PART_COPIES]),
                             .host = seconds(s->total_ns - parts)};
}

void mo_model_split(mo_model *model, bool on, mo_split_report *out, size_t size)
{
    mo_engine *engine = model->engine;
    mo_engine_take_turn(engine);
    const mo_split_report report = mo_split_report_of(&engine->split);
    engine->splits = on;
    engine->split = (mo_split){0};
    pthread_mutex_unlock(&engine->lock);
    if (out) {
        mo_report_write(out, size, &report, sizeof report);
    }
}
