/* moraine plan: the placement of a model under given limits, and its speed. Loads nothing. */
#include <moraine_server.h>

#include <stdio.h>
#include <string.h>

#include "cli/check.h"
#include "cli/commands/commands.h"
#include "cli/commands/plan_chart.h"
#include "cli/commands/plan_for.h"
#include "cli/commands/plan_hosts.h"
#include "cli/default_model.h"
#include "cli/described.h"
#include "cli/idle.h"
#include "cli/images.h"
#include "cli/loading.h"
#include "cli/messages.h"
#include "cli/model_header.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/plan_words.h"
#include "cli/print/terminal.h"

/* ---- Table ---- */

static void heading(const char *text)
{
    printf("\n%s%s%s\n", cli_terminal_bold(), text, cli_terminal_plain());
}

/* Prints one use of memory; nothing for 0 bytes. */
static void print_place(const char *label, int64_t bytes, const char *note)
{
    char size[32];
    if (bytes > 0) {
        printf("  %-18s%10s%s%s\n", label, cli_bytes_text((uint64_t)bytes, size), *note ? "  " : "", note);
    }
}

static void count_experts(const mo_plan_report *r, int64_t *slots, int64_t *experts)
{
    *slots = *experts = 0;
    for (int i = 0; i < r->class_count; i++) {
        *slots += r->classes[i].slots;
        *experts += r->classes[i].experts;
    }
}

static void print_device(const mo_plan_report *r, const char *kv)
{
    const mo_plan_report_device *d = &r->device;
    char positions[64], buffers[128], slots[96], ceiling[32], together[64], layers[64] = "", kv_in_ram[96];
    int64_t in_slots, experts;
    if (d->ceiling_bytes == 0) {
        return;
    }
    count_experts(r, &in_slots, &experts);
    snprintf(positions, sizeof positions, "%lld tokens, %s", (long long)r->context, kv);
    const int length =
        snprintf(buffers, sizeof buffers, "%d layer%s streamed through %d buffer%s", d->streamed_layers,
                 d->streamed_layers == 1 ? "" : "s", d->layer_buffers, d->layer_buffers == 1 ? "" : "s");
    if (d->cpu_layers) {
        snprintf(buffers + length, sizeof buffers - (size_t)length,
                 "; the CPU computes %d of them for single tokens", d->cpu_layers);
    }
    snprintf(slots, sizeof slots, "%lld of %lld experts, %.0f %%", (long long)d->slots, (long long)experts,
             experts ? 100.0 * (double)d->slots / (double)experts : 0.0);
    snprintf(together, sizeof together, "of %s", cli_bytes_text((uint64_t)d->ceiling_bytes, ceiling));
    if (d->streamed_layers) {
        snprintf(layers, sizeof layers, "output matrix and %d of %d layers", d->layers, r->layers);
    }
    heading("In VRAM");
    print_place("core", d->core_bytes, layers);
    print_place("vectors", d->vector_bytes, "");
    print_place("experts", d->slot_bytes, slots);
    print_place("KV cache", d->kv_bytes, positions);
    if (r->device_cold_layers) {
        snprintf(kv_in_ram, sizeof kv_in_ram, "of %d layer%s, in RAM, read over the link",
                 r->device_cold_layers, r->device_cold_layers > 1 ? "s" : "");
        print_place("  kept in RAM", r->device_cold_bytes, kv_in_ram);
    }
    print_place("working memory", d->work_bytes, "");
    if (r->device_encoder_bytes) {
        print_place("  for pictures", r->device_encoder_bytes, "while they are encoded");
    }
    print_place("staging", d->staging_bytes, "for experts in transit");
    print_place("layer buffers", d->layer_buffer_bytes, buffers);
    print_place("total", d->used_bytes, together);
}

/* Prints parts of other lines: memory for drafts and for pictures. */
static void print_guesses(const mo_plan_report *r)
{
    char note[96];
    if (r->drafts) {
        snprintf(note, sizeof note, "up to %lld a step; part of the lines above", (long long)r->drafts);
        print_place("  for guesses", r->draft_bytes, note);
    }
    if (r->head_bytes) {
        print_place(r->draft_model ? "  draft model" : "  MTP head", r->head_bytes,
                    "with its KV cache; part of the lines above");
    }
    if (r->encoder_bytes) {
        print_place("  encoder", r->encoder_bytes,
                    "of pictures, with its working memory; part of the lines above");
    }
}

static void print_ram(const mo_plan_report *r, const char *kv)
{
    char positions[64], batch[64], buffers[64] = "", slots[96] = "", ceiling[32], together[64];
    int64_t in_slots, experts;
    count_experts(r, &in_slots, &experts);
    snprintf(positions, sizeof positions, "%lld tokens, %s", (long long)r->context, kv);
    snprintf(batch, sizeof batch, "%lld tokens per step", (long long)r->batch);
    const int used =
        snprintf(slots, sizeof slots, "%lld of %lld experts", (long long)in_slots, (long long)experts);
    if (r->device.slots > 0 && in_slots < experts) { /* excluding those in VRAM */
        const int64_t sum = in_slots + r->device.slots < experts ? in_slots + r->device.slots : experts;
        snprintf(slots + used, sizeof slots - (size_t)used, "; %lld (%.0f %%) together with VRAM",
                 (long long)sum, 100.0 * (double)sum / (double)experts);
    }
    if (r->layer_buffers) {
        snprintf(buffers, sizeof buffers, "buffers for %d layers", r->layer_buffers);
    }
    snprintf(together, sizeof together, "of %s", cli_bytes_text((uint64_t)r->ceiling_bytes, ceiling));
    heading("In RAM");
    print_place("core", r->core_bytes, r->streamed_layers ? "with the resident layers" : "");
    print_place("vectors", r->vector_bytes, "");
    print_place("embedding", r->table_bytes, "also the output matrix");
    print_place("experts", r->slot_bytes, slots);
    print_place("KV cache", r->kv_bytes, positions);
    print_place("working memory", r->work_bytes, batch);
    print_place("staging", r->staging_bytes, buffers);
    print_place("program, other", r->other_bytes, "");
    print_guesses(r);
    print_place("total", r->used_bytes, together);
}

static void print_classes(const mo_plan_report *r)
{
    char bytes[32], slot[32];
    if (r->class_count < 2) {
        return;
    }
    const bool device = r->device.ceiling_bytes > 0;
    printf("\n%s%-18s%10s  %10s  %8s  %8s%s%s\n", cli_terminal_bold(), "Expert sizes", "bytes", "slot",
           "experts", "in RAM", device ? "   in VRAM" : "", cli_terminal_plain());
    for (int i = 0; i < r->class_count; i++) {
        const mo_plan_report_class *c = &r->classes[i];
        printf("  %-16d%10s  %10s  %8lld  %8lld", i + 1, cli_bytes_text((uint64_t)c->bytes, bytes),
               cli_bytes_text((uint64_t)c->slot_bytes, slot), (long long)c->experts, (long long)c->slots);
        if (device) {
            printf("  %8lld", (long long)c->device_slots);
        }
        printf("\n");
    }
}

static void print_disk(const mo_plan_report *r)
{
    char layers[64];
    if (r->disk_core_bytes + r->disk_table_bytes + r->disk_expert_bytes == 0) {
        return;
    }
    snprintf(layers, sizeof layers, "%d of %d layers", r->streamed_layers, r->layers);
    heading("Only on disk");
    print_place("layers", r->disk_core_bytes, layers);
    print_place("experts", r->disk_expert_bytes, "");
    print_place("embedding", r->disk_table_bytes, "one row read per token");
}

/* Prints a line without its end. */
static void print_rate(const char *label, double tokens_per_second)
{
    char number[32];
    const char *unit = cli_speed_text(tokens_per_second, number);
    printf("  %-18s%10s  %s", label, number, unit);
}

static void print_speed(const mo_plan_report *r)
{
    const mo_plan_report_device *d = &r->device;
    const bool device = d->ceiling_bytes > 0;
    heading(r->experts ? "Per token, with uniform routing" : "Per token");
    print_place("from VRAM", d->token_bytes, "");
    print_place("over the link", d->token_link_bytes, "");
    print_place("from RAM", r->token_ram_bytes, "");
    print_place("from disk", r->token_disk_bytes, "");
    if (r->experts && device) {
        printf("  %-18s%8.1f %%  of the chosen experts are in VRAM\n", "hits", 100 * d->hit_rate);
    }
    if (r->experts && strcmp(r->mode, "resident") != 0) {
        printf("  %-18s%8.1f %%  of the chosen experts are in RAM%s\n", device ? "" : "hits",
               100 * r->hit_rate, device ? " or VRAM" : "");
    }
    printf("  %-18s%7.1f ms\n", "core", 1e3 * r->core_seconds);
    if (r->experts) {
        printf("  %-18s%7.1f ms\n", "experts", 1e3 * r->expert_seconds);
    }
    if (device && d->link_seconds > 0) {
        printf("  %-18s%7.1f ms  for streamed layers, beyond their compute time\n", "link",
               1e3 * d->link_seconds);
    }
    if (device) {
        printf("  %-18s%7.1f ms  launches and round trips\n", "overhead", 1e3 * d->overhead_seconds);
    }
    if (r->disk_seconds > 0) {
        printf("  %-18s%7.1f ms  overlapped with compute\n", "reads", 1e3 * r->disk_seconds);
    }
    print_rate("expected", r->tokens_per_second);
    printf("\n");
    if (r->attention_seconds > 0) {
        print_rate("  empty context", r->empty_tokens_per_second);
        printf("\n");
        print_rate("  full context", r->full_tokens_per_second);
        printf(": the KV cache of %lld tokens takes %.1f ms\n", (long long)r->context,
               1e3 * r->attention_seconds);
    }
    if (r->prompt_tokens_per_second > 0) {
        print_rate("prompts", r->prompt_tokens_per_second);
        printf(", for a prompt of %lld in steps of %lld\n", (long long)r->prompt_tokens, (long long)r->batch);
    }
    if (r->full_prompt_tokens_per_second > 0) {
        print_rate("  full context", r->full_prompt_tokens_per_second);
        printf(", for the last step\n");
    }
}

static void print_hot_cache(const mo_plan_report *r)
{
    const mo_plan_report_hot *h = &r->hot;
    const bool device = r->device.ceiling_bytes > 0;
    char budget[96], size[32];
    int64_t in_slots, experts;
    if (h->budget_bytes == 0) {
        return;
    }
    count_experts(r, &in_slots, &experts);
    snprintf(budget, sizeof budget, "of %s in %s%s", cli_bytes_text((uint64_t)h->budget_bytes, size),
             device ? "VRAM" : "RAM", h->moves ? ", with slots for exchanges" : "");
    heading("Hot cache");
    print_place("used", h->used_bytes, budget);
    printf("  %-18s%10lld  of %lld, in %d of %d layers", "experts", (long long)h->experts, (long long)experts,
           h->layers, r->routed_layers);
    if (h->whole_layers) {
        printf("; %d %s all experts", h->whole_layers, h->whole_layers == 1 ? "has" : "have");
    }
    printf("\n");
    if (h->filled) {
        printf("  %-18s%10lld  not in the profile\n", "added", (long long)h->filled);
    }
    printf("  %-18s%8.1f %%  of the profile's picks\n", "hits", 100 * h->hit_rate);
    print_rate("expected", h->tokens_per_second);
    printf(", for texts that match the profile\n");
}

static void print_devices(const mo_plan_report *r)
{
    for (int i = 0; i < r->card_count; i++) {
        const mo_plan_report_card *c = &r->cards[i];
        char used[32], ceiling[32];
        printf("    layers %d to %d on %s: %s of %s, %lld experts (%.0f %% of picks), %.2f ms per token\n",
               c->first_layer, c->first_layer + c->layers - 1, c->name,
               cli_bytes_text((uint64_t)c->used_bytes, used),
               cli_bytes_text((uint64_t)c->ceiling_bytes, ceiling), (long long)c->slots, 100 * c->hit_rate,
               c->seconds * 1e3);
    }
}

static void print_device_reasons(const mo_plan_report *r)
{
    const mo_plan_report_device *d = &r->device;
    char a[32], b[32];
    if (d->ceiling_bytes == 0) {
        if (d->why[0]) {
            printf("  %-18s", "no GPU");
            cli_terminal_wrap(d->why, 20);
        }
        return;
    }
    printf("  %-18s%s\n", "device", d->name);
    print_devices(r);
    printf("  %-18s", "VRAM ceiling");
    cli_terminal_wrap(d->why, 20);
    printf("  %-18sminimum %s; %s to hold everything\n", "VRAM needed",
           cli_bytes_text((uint64_t)d->least_bytes, a), cli_bytes_text((uint64_t)d->whole_bytes, b));
    printf("  %-18s", "fetch lane");
    cli_terminal_wrap(d->lane, 20);
    printf("  %-18sVRAM %.0f GB/s, link %.1f GB/s, RAM while both are busy %.1f GB/s\n", "GPU rates",
           d->memory_bytes_s / 1e9, d->link_bytes_s / 1e9, d->host_bytes_s / 1e9);
    if (!d->measured && !r->described[0]) {
        printf("  %-18sat least in part estimated; moraine probe measures them\n", "");
    }
}

/* Prints the reason for the batch size, and its alternatives. */
static void print_batches(const mo_plan_report *r)
{
    char work[32], prompt[32], all[32];
    const long long tokens = (long long)r->prompt_tokens;
    if (!r->batches[0].batch && !r->batches[2].batch) {
        return;
    }
    printf("\n%s%-18s%10s  %16s  %12s  %12s%s\n", cli_terminal_bold(), "Batch", "work memory",
           r->experts == 0               ? ""
           : r->device.ceiling_bytes > 0 ? "experts VRAM/RAM"
                                         : "experts in RAM",
           "prompt", "with answer", cli_terminal_plain());
    for (int i = 0; i < 3; i++) {
        const mo_plan_report_batch *b = &r->batches[i];
        char experts[48] = "";
        if (b->batch == 0) {
            continue;
        }
        if (r->experts && r->device.ceiling_bytes > 0) {
            snprintf(experts, sizeof experts, "%lld / %lld", (long long)b->vram_experts,
                     (long long)b->ram_experts);
        } else if (r->experts) {
            snprintf(experts, sizeof experts, "%lld", (long long)b->ram_experts);
        }
        printf("%c %-16lld%11s  %16s  %12s  %12s\n", i == 1 ? '*' : ' ', (long long)b->batch,
               cli_bytes_text((uint64_t)b->work_bytes, work), experts,
               cli_seconds_text(b->prompt_seconds, prompt), cli_seconds_text(b->seconds, all));
    }
    printf("  chosen for a chat: a prompt of %lld tokens, an answer of %lld\n", tokens, tokens / 8);
}

static void print_reasons(const mo_plan_report *r)
{
    char a[32], b[32], batch[256];
    heading("Why");
    if (r->described[0]) {
        printf("  %-18s", "described machine");
        cli_terminal_wrap(r->described, 20);
    }
    printf("  %-18s", "ceiling");
    cli_terminal_wrap(r->why, 20);
    printf("  %-18sminimum %s; %s to hold everything\n", "needed",
           cli_bytes_text((uint64_t)r->least_bytes, a), cli_bytes_text((uint64_t)r->whole_bytes, b));
    printf("  %-18smemory %.1f GB/s, matrix products reach %.0f %% of it; disk %.2f GB/s%s\n", "rates",
           r->ram_bytes_s / 1e9, 100 * r->compute_share, r->disk_bytes_s / 1e9,
           r->disk_learned ? ", measured during earlier runs" : "");
    if (r->described[0]) {
        printf("  %-18sderived from published figures, not measured\n", "");
    } else if (!r->measured) {
        printf("  %-18sat least in part conservative defaults; moraine probe measures them\n", "");
    }
    snprintf(batch, sizeof batch, "%lld tokens: %s", (long long)r->batch, r->batch_why);
    printf("  %-18s", "batch");
    cli_terminal_wrap(batch, 20);
    print_device_reasons(r);
}

static int print_table(const char *path, const mo_plan_report *r, const char *kv)
{
    printf("%s\n%s (mode: %s)\n", path, cli_plan_words(r), r->mode);
    print_device(r, kv);
    print_ram(r, kv);
    print_classes(r);
    print_disk(r);
    print_speed(r);
    print_hot_cache(r);
    print_batches(r);
    print_reasons(r);
    return CLI_OK;
}

/* ---- JSON ---- */

static int print_json(const char *path, const mo_plan_report *r, const char *kv)
{
    mo_error err;
    char *text = NULL;
    if (mo_plan_report_json(r, sizeof *r, &text, &err) != MO_OK) {
        cli_say_error("plan", &err);
        return CLI_FAILED;
    }
    json_t *plan = json_loads(text, 0, NULL),
           *root = json_pack("{s:o, s:s}", "model", cli_json_string(path), "kv", kv);
    mo_free(text);
    json_object_update(root, plan);
    json_decref(plan);
    return cli_json_print(root);
}

/* ---- Command ---- */

typedef struct request {
    const char *model, *svg, *hosts, *divide, *pc;
    mo_plan_extra extra;
    bool json;
} request;

static int make_plan(const cli_model_header *h, const cli_loading *l, const request *q)
{
    const char *kv = cli_kv_name(l->model.kv);
    mo_error err;
    mo_plan_report report;
    const mo_status status = mo_plan_file(h->path, &l->model, &q->extra, &report, sizeof report, &err);
    if (status != MO_OK) {
        cli_model_header_say(h, err.detail, sizeof err.detail);
        cli_say_error("plan", &err);
        return status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
    }
    cli_idle_tell_plan(l, &report);
    cli_name_options(report.why, sizeof report.why);
    cli_name_options(report.device.why, sizeof report.device.why);
    cli_name_options(report.device.lane, sizeof report.device.lane);
    cli_name_options(report.batch_why, sizeof report.batch_why);
    if (q->svg && !cli_plan_chart(h->name, &report, q->svg)) {
        return CLI_FAILED;
    }
    return q->json ? print_json(h->name, &report, kv) : print_table(h->name, &report, kv);
}

static bool describes(const mo_plan_extra *e)
{
    return e->cpu || e->disk || strcmp(e->gpu, "auto") != 0;
}

/* The name of an option that has no effect with several machines. NULL: none is set. */
static const char *idle_with_hosts(const request *q, const cli_loading *l)
{
    const mo_model_options *m = &l->model;
    return m->ram_bytes                                ? "--ram"
           : q->extra.machine                          ? "--machine"
           : describes(&q->extra)                      ? "a described machine (--gpu, --cpu, --disk)"
           : q->pc                                     ? "--for"
           : strcmp(m->device, "auto") != 0            ? "--device"
           : l->vram.count                             ? "--vram"
           : l->postfetch                              ? "--postfetch"
           : m->prompt_precision != MO_PRECISION_EXACT ? "--prompt-precision"
           : l->lora.count                             ? "--lora"
           : l->lora_scaled.count                      ? "--lora-scaled"
           : m->cpu_moe                                ? "--cpu-moe"
           : m->learning.hot_cache.file                ? "--moe-hot-cache"
           : m->speculate != MO_SPECULATE_OFF          ? "--speculate"
           : m->draft_max                              ? "--draft-max"
           : m->draft_model                            ? "--draft-model"
           : q->svg                                    ? "--svg"
                                                       : NULL;
}

/* Rejects contradictory descriptions of a machine. False after printing the error. */
static bool check_machine(const request *q, const cli_loading *l)
{
    const mo_plan_extra *e = &q->extra;
    const bool gpu = strcmp(e->gpu, "auto") != 0;
    const char *wrong =
        e->machine && describes(e) ? "give --machine or its parts (--gpu, --cpu, --disk), not both"
        : gpu && strcmp(l->model.device, "auto") != 0
            ? "--gpu describes a GPU that need not be here; omit --device"
        : gpu && l->vram.count > 1 ? "--gpu describes one GPU; give --vram one size"
        : q->pc && (e->machine || describes(e) || l->model.ram_bytes || l->vram.count || l->model.context)
            ? "--for says what the PC has, and plans for two contexts; omit --ram, --vram, --ctx, --gpu, "
              "--cpu, "
              "--disk and --machine"
        : q->pc && q->svg ? "--for prints two plans; --svg draws one"
                          : NULL;
    if (wrong) {
        fprintf(stderr, "moraine plan: %s\n", wrong);
    }
    return !wrong;
}

static int plan_for(const request *q, cli_loading *l)
{
    cli_model_header h;
    if (!cli_loading_set("plan", l)) {
        return CLI_USAGE;
    }
    const char *idle = q->hosts ? idle_with_hosts(q, l) : q->divide ? "--divide" : NULL;
    if (idle) {
        fprintf(stderr, "moraine plan: %s has no effect %s --hosts; omit it\n", idle,
                q->hosts ? "with" : "without");
        return CLI_USAGE;
    }
    if (!check_machine(q, l)) {
        return CLI_USAGE;
    }
    if (!cli_check_writable("plan", "--svg", q->svg)) {
        return CLI_FAILED;
    }
    cli_idle_streaming("plan", l);
    int code = cli_model_header_open("plan", q->model, q->json, &h);
    if (code != CLI_OK) {
        return code;
    }
    if (!cli_images_find_encoder("plan", h.path, CLI_ENCODER_NAMED, l)) {
        cli_model_header_close(&h);
        return CLI_USAGE;
    }
    cli_check_length("plan", h.path, l);
    code = q->hosts ? cli_plan_hosts(h.path, q->hosts, q->divide, &l->model, q->json)
           : q->pc  ? cli_plan_for(&h, q->pc, l, q->json)
                    : make_plan(&h, l, q);
    cli_model_header_close(&h);
    return code;
}

static int list_gpus(void)
{
    mo_known_gpu_info g;
    char memory[32];
    printf("%s%-18s %-24s %10s  %12s  %s%s\n", cli_terminal_bold(), "Name", "GPU", "memory", "memory rate",
           "link, expected", cli_terminal_plain());
    for (int i = 0; mo_known_gpu(i, &g, sizeof g); i++) {
        printf("%-18s %-24s %10s  %7.0f GB/s  %7.1f GB/s\n", g.name, g.title,
               cli_bytes_text((uint64_t)g.memory_bytes, memory), g.memory_bytes_s / 1e9,
               g.link_bytes_s / 1e9);
    }
    return CLI_OK;
}

int cli_plan(int argc, char **argv)
{
    request q = {.extra = {.size = sizeof q.extra, .gpu = "auto"}};
    cli_loading l = cli_loading_default();
    const cli_option own[] = {
        {"ram", 0, CLI_SIZE, "SIZE",
         "RAM limit, as in 24G (default: available memory or the cgroup limit, less a reserve)",
         &l.model.ram_bytes, 1, 0},
        {"kv", 0, CLI_TEXT, "FORMAT", "KV cache format: i16, f32 or q8_0 (default: i16)", &l.kv, 0, 0},
        {"machine", 0, CLI_TEXT, "FILE",
         "plan for another machine: a JSON file with "
         "ram_bytes, ram_bytes_s, disk_bytes_s and others, "
         "as written by moraine probe (default: this machine)",
         &q.extra.machine, 0, 0},
        CLI_DESCRIBED_OPTIONS(q.extra),
        {"for", 0, CLI_TEXT, "PC",
         "two lines for a PC: GPU, RAM and, if they differ from a common PC's, memory and disk, "
         "as in \"rtx-3060, 32G, ddr5, nvme-4\"",
         &q.pc, 0, 0},
        {"hosts", 0, CLI_TEXT, "FILE",
         "plan for several machines that share the model: a text file with "
         "one line per machine, as in \"anna ram=64G link=10Gbit/s latency=30us\"; "
         "probed: the machines measured by moraine probe under mpirun",
         &q.hosts, 0, 0},
        {"divide", 0, CLI_TEXT, "HOW",
         "with --hosts: layers, experts or auto, the faster one (default: auto)", &q.divide, 0, 0},
        {"cpu-moe", 0, CLI_FLAG, NULL, "keep experts out of GPU memory, except for the hot cache",
         &l.model.cpu_moe, 0, 0},
        {"json", 0, CLI_FLAG, NULL, "print JSON", &q.json, 0, 0},
        {"svg", 0, CLI_TEXT, "FILE", "write a chart of the placement", &q.svg, 0, 0},
    };
    cli_options all = {0}, options = {0};
    CLI_OPTIONS_ADD(&all, own); /* first, because their help replaces that of other commands */
    cli_loading_options(&all, &l);
    cli_image_options(&all, &l);
    cli_learning_options(&all, &l);
    cli_speculation_options(&all, &l);
    cli_options_pick(
        &options, &all,
        "ram ctx batch kv gpu cpu disk for machine hosts divide lora lora-scaled mmproj no-mmproj "
        "image-min-tokens image-max-tokens device vram "
        "postfetch postfetch-enable speculate draft-max draft-model "
        "prompt-precision cpu-moe moe-hot-cache moe-hot-cache-max-mib "
        "moe-hot-cache-auto-reserve-mib moe-hot-cache-update-rate moe-hot-cache-weighting "
        "moe-hot-cache-layer-curve streaming json svg");
    const cli_usage usage = {
        .command = "plan",
        .arguments = "[MODEL]",
        .description =
            "Shows, before anything is loaded or downloaded, which parts of a "
            "model would be in GPU memory, in RAM and on disk, "
            "what a token reads from each, and the expected speed. MODEL is a file, a pulled model, "
            "a name that moraine synth --list prints, such as gpt-oss-120b, or owner/repo[:quant], of "
            "which only the header is downloaded." CLI_DEFAULT_MODEL_HELP,
        .examples = "  moraine plan gpt-oss-120b --gpu rtx-4070 --ram 64G\n"
                    "  moraine plan gpt-oss-120b --for \"rtx-3060, 32G\"\n"
                    "  moraine plan unsloth/GLM-4.5-Air-GGUF:Q4_K_M --vram 12G --ram 32G\n"
                    "  moraine plan --ram 24G model.gguf\n"
                    "  moraine plan --ctx 32768 --kv q8_0 model.gguf\n"
                    "  moraine plan --device cuda --vram 8G model.gguf\n"
                    "  moraine plan --moe-hot-cache profile.json --moe-hot-cache-max-mib -1 model.gguf\n"
                    "  moraine plan --machine laptop.json --json model.gguf | jq .tokens_per_second\n"
                    "  moraine plan --hosts four-nodes.txt model.gguf\n",
        .options = options.item,
        .foreign = true,
        .option_count = options.count,
        .max_arguments = 1,
    };
    int first;
    const int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    q.model = argv[first];
    if (strcmp(q.extra.gpu, "list") == 0) {
        return list_gpus();
    }
    return plan_for(&q, &l);
}
