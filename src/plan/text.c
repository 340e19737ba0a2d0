#include "plan/text.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/status.h"
#include "plan/share.h"

const char *mo_plan_size_text(int64_t bytes, char *text)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double amount = (double)bytes;
    int unit = 0;
    while (amount >= 999.5 && unit < 6) { /* show at most three digits */
        amount /= 1024;
        unit++;
    }
    snprintf(text, 32, "%.*f %s",
             unit && amount < 9.995   ? 2
             : unit && amount < 99.95 ? 1
                                      : 0,
             amount, units[unit]);
    return text;
}

const char *mo_plan_mode_text(const mo_run_plan *plan)
{
    switch (plan->mode) {
    case MO_PLAN_RESIDENT: return "resident";
    case MO_PLAN_SLOTS: return "slots";
    case MO_PLAN_STREAMED: return plan->layer_buffers > 0 ? "streamed" : "tiered";
    }
    return "unknown";
}

/* Suggestions besides more memory: a smaller context or batch, if one or both of them free enough. */
static const char *remedy(const mo_run_plan *p, int64_t missing)
{
    const bool context = p->kv > missing, batch = p->work > missing;
    if (context || batch) {
        return !batch ? "reduce `context`" : !context ? "reduce `batch`" : "reduce `context` or `batch`";
    }
    return p->kv > missing - p->work ? "reduce `context` and `batch`"
                                     : "use a smaller model: reducing `context` and `batch` is not enough";
}

/* The advice comes first: a caller may prepend the model's name and cut the end. */
mo_status mo_plan_refuse(const mo_run_plan *p, const mo_plan_advice *a, mo_error *err)
{
    char need[32], ceiling[32], weights[32], kv[32], work[32], slots[32], rest[32], experts[64] = "",
                                                                                    vram[96] = "", more[32];
    const bool countless = p->used == INT64_MAX;
    const char *const less =
        remedy(p, countless ? INT64_MAX : mo_plan_sum(p->used, a->ram_held) - a->ram_ceiling);
    char beside[48] = "", raised[80] = "that", all[32];
    mo_plan_size_text(a->ram - a->ram_held, need);
    if (a->ram_held > 0) { /* the total of all models is compared with the common ceiling */
        snprintf(beside, sizeof beside, " beside %s of other models", mo_plan_size_text(a->ram_held, all));
        snprintf(raised, sizeof raised, "%s (%" PRId64 " bytes)", mo_plan_size_text(a->ram, all), a->ram);
    }
    if (a->vram > 0) {
        snprintf(vram, sizeof vram, " and `vram_bytes` to %s (%" PRId64 " bytes)",
                 mo_plan_size_text(a->vram, more), a->vram);
    }
    mo_plan_size_text(a->ram_ceiling, ceiling);
    mo_plan_size_text(countless ? INT64_MAX : p->core + p->vectors + p->table, weights);
    mo_plan_size_text(p->kv, kv);
    mo_plan_size_text(p->work, work);
    mo_plan_size_text(p->slots, slots);
    mo_plan_size_text(countless ? INT64_MAX : p->staging + p->other, rest);
    if (p->slots > 0) { /* a dense model has no experts */
        snprintf(experts, sizeof experts, "%s %s, ",
                 p->mode == MO_PLAN_RESIDENT ? "all experts" : "one layer's experts", slots);
    }
    return mo_fail(
        err, MO_ENOMEM,
        "at least %s of memory (%" PRId64 " bytes) are needed%s, but the ceiling is %s; raise `ram_bytes` "
        "to %s%s%s or %s (needed: core %s, KV cache %s, working "
        "memory %s, %sstaging and the program %s; ceiling: %s)",
        need, a->ram - a->ram_held, beside, ceiling, raised, vram,
        a->ram_held > 0 ? ", close other models" : "", less, weights, kv, work, experts, rest, p->why);
}

/* Suggests a smaller context or step if that frees enough VRAM; "": it does not. */
static const char *device_remedy(const mo_plan_device *d, int64_t missing)
{
    const bool context = d->kv > missing, batch = d->work > missing;
    return context && batch            ? "reduce `context` or `batch`, or "
           : context                   ? "reduce `context`, or "
           : batch                     ? "reduce `batch`, or "
           : d->kv > missing - d->work ? "reduce `context` and `batch`, or "
                                       : "";
}

mo_status mo_plan_refuse_device(const mo_plan_device *d, const mo_plan_advice *a, mo_error *err)
{
    char need[32], ceiling[32], core[32], kv[32], work[32], staging[32], buffers[32], there[96] = "",
                                                                                      ram[128] = "", more[32];
    const bool countless = d->used == INT64_MAX;
    const bool possible = a->vram_there == 0 || a->vram - a->vram_held <= a->vram_there;
    const char *const less = device_remedy(d, a->vram - a->vram_ceiling);
    char beside[48] = "", raised[80] = "that", all[32];
    mo_plan_size_text(a->vram - a->vram_held, need);
    mo_plan_size_text(a->vram_ceiling, ceiling);
    if (a->vram_held > 0) {
        snprintf(beside, sizeof beside, " beside %s of other models", mo_plan_size_text(a->vram_held, all));
        snprintf(raised, sizeof raised, "%s (%" PRId64 " bytes)", mo_plan_size_text(a->vram, all), a->vram);
    }
    mo_plan_size_text(countless ? INT64_MAX : d->core + d->vectors, core);
    mo_plan_size_text(d->kv, kv);
    mo_plan_size_text(d->work, work);
    mo_plan_size_text(d->staging, staging);
    mo_plan_size_text(d->layer_buffer_bytes, buffers);
    if (!possible) {
        snprintf(there, sizeof there,
                 "the device has only %s free: ", mo_plan_size_text(a->vram_there, more));
    }
    if (a->ram > 0) {
        snprintf(ram, sizeof ram, "raise `ram_bytes` to %s (%" PRId64 " bytes) for the KV cache, %s",
                 mo_plan_size_text(a->ram, more), a->ram, less[0] ? "" : "or ");
    }
    return mo_fail(err, MO_EDEVICE,
                   "at least %s of VRAM (%" PRId64
                   " bytes) are needed%s, but the ceiling is %s; %s%s%s%s%s%srun with "
                   "`device` none (needed: output matrix and vectors %s, KV cache "
                   "%s, working memory %s, staging %s, layer buffers %s%s%s)",
                   need, a->vram - a->vram_held, beside, ceiling, there,
                   possible ? "raise `vram_bytes` to " : "", possible ? raised : "",
                   !possible           ? ""
                   : ram[0] || less[0] ? ", "
                                       : ", or ",
                   ram, less, core, kv, work, staging, buffers, d->why[0] ? "; ceiling: " : "", d->why);
}
