#include "cli/commands/plan_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/messages.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/terminal.h"
#include "moraine_server.h"

/* ---- For people ---- */

static void heading(const char *text)
{
    printf("\n%s%s%s\n", cli_terminal_bold(), text, cli_terminal_plain());
}

static void print_hosts(const mo_plan_hosts_report *r)
{
    const bool experts = strcmp(r->way, "experts") == 0;
    char part[64], held[32], memory[32], disk[64], size[32];
    printf("\n%s%-20s %-22s %10s  %10s%s\n", cli_terminal_bold(), "Hosts",
           experts ? "experts per layer" : "layers", "holds", "of", cli_terminal_plain());
    for (int i = 0; i < r->host_count; i++) {
        const mo_plan_report_host *h = &r->hosts[i];
        const int first = experts ? h->first_expert : h->first_layer,
                  count = experts ? h->experts : h->layers;
        const int64_t bytes = experts ? h->experts_bytes : h->layers_bytes;
        const int64_t beyond = experts ? h->experts_disk_bytes : h->layers_disk_bytes;
        if (count > 0) {
            snprintf(part, sizeof part, "%d to %d%s", first, first + count - 1,
                     experts && i == 0 ? ", and the core" : "");
        } else {
            snprintf(part, sizeof part, "%s", i == 0 ? "core only" : "none");
        }
        snprintf(disk, sizeof disk, "%s%s%s", beyond ? ", " : "",
                 beyond ? cli_bytes_text((uint64_t)beyond, size) : "", beyond ? " on disk" : "");
        printf("  %-18.18s %-22s %10s  %10s%s\n", h->name, part,
               cli_bytes_text((uint64_t)(bytes - beyond), held),
               cli_bytes_text((uint64_t)(h->ram_bytes + h->vram_bytes), memory), disk);
    }
}

static void print_pair(const char *label, const char *format, double a, bool has_a, double b, bool has_b)
{
    char left[32] = "-", right[32] = "-";
    if (has_a) {
        snprintf(left, sizeof left, format, a);
    }
    if (has_b) {
        snprintf(right, sizeof right, format, b);
    }
    printf("  %-26s%14s%14s\n", label, left, right);
}

static void print_ways(const mo_plan_hosts_report *r)
{
    const mo_plan_report_way *a = &r->by_layers, *b = &r->by_experts;
    const bool has_a = a->possible, has_b = b->possible;
    printf("\n%s%-28s%14s%14s%s\n", cli_terminal_bold(), "Per token, ms", "by layers", "by experts",
           cli_terminal_plain());
    print_pair("core", "%.2f", 1e3 * a->core_seconds, has_a, 1e3 * b->core_seconds, has_b);
    if (r->experts) {
        print_pair("experts", "%.2f", 1e3 * a->expert_seconds, has_a, 1e3 * b->expert_seconds, has_b);
    }
    if (a->disk_seconds + b->disk_seconds > 0) {
        print_pair("  disk reads in both", "%.2f", 1e3 * a->disk_seconds, has_a, 1e3 * b->disk_seconds,
                   has_b);
    }
    print_pair("message latency", "%.2f", 1e3 * a->latency_seconds, has_a, 1e3 * b->latency_seconds, has_b);
    print_pair("message transfer", "%.2f", 1e3 * a->wire_seconds, has_a, 1e3 * b->wire_seconds, has_b);
    print_pair("total", "%.2f", 1e3 * a->token_seconds, has_a, 1e3 * b->token_seconds, has_b);
    print_pair("messages", "%.0f", a->token_messages, has_a, b->token_messages, has_b);
    print_pair("KiB on the network", "%.1f", a->token_bytes / 1024, has_a, b->token_bytes / 1024, has_b);
    heading("Tokens/s");
    print_pair("generation, one sequence", "%.2f", a->tokens_per_second, has_a, b->tokens_per_second, has_b);
    print_pair("prompts", "%.0f", a->prompt_tokens_per_second, has_a, b->prompt_tokens_per_second, has_b);
}

static void print_reason(const char *label, const mo_plan_report_way *w)
{
    char text[256];
    if (w->possible) {
        snprintf(text, sizeof text, "tokens are bound by %s, prompts by %s", w->bound, w->prompt_bound);
    } else {
        snprintf(text, sizeof text, "not possible: %s", w->why_not);
    }
    printf("  %-18s", label);
    cli_terminal_wrap(text, 20);
}

static bool any_device(const mo_plan_hosts_report *r)
{
    for (int i = 0; i < r->host_count; i++) {
        if (r->hosts[i].vram_bytes > 0) {
            return true;
        }
    }
    return false;
}

static void print_table(const char *path, const mo_plan_hosts_report *r)
{
    printf("%s\nsplit by %s across %d host%s, context of %lld tokens, steps of %lld tokens\n", path, r->way,
           r->host_count, r->host_count == 1 ? "" : "s", (long long)r->context, (long long)r->batch);
    print_hosts(r);
    print_ways(r);
    heading("Why");
    printf("  %-18s%s: ", "way", r->way);
    cli_terminal_wrap(r->why, 20);
    print_reason("by layers", &r->by_layers);
    print_reason("by experts", &r->by_experts);
    if (any_device(r)) {
        printf("  %-18s", "devices");
        cli_terminal_wrap("VRAM sizes are those of the hosts file; split by layers, ranks "
                          "use their assigned devices; split by experts, only their CPUs",
                          20);
    }
}

/* ---- For programs ---- */

static json_t *way_json(const mo_plan_report_way *w)
{
    if (!w->possible) {
        return json_pack("{s:b, s:s}", "possible", 0, "why_not", w->why_not);
    }
    json_t *token =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "seconds", w->token_seconds, "core_seconds",
                  w->core_seconds, "expert_seconds", w->expert_seconds, "disk_seconds", w->disk_seconds,
                  "latency_seconds", w->latency_seconds, "wire_seconds", w->wire_seconds, "messages",
                  w->token_messages, "bytes", w->token_bytes);
    return json_pack("{s:b, s:o, s:f, s:f, s:s, s:s}", "possible", 1, "token", token, "tokens_per_second",
                     w->tokens_per_second, "prompt_tokens_per_second", w->prompt_tokens_per_second, "bound",
                     w->bound, "prompt_bound", w->prompt_bound);
}

static json_t *hosts_json(const mo_plan_hosts_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->host_count; i++) {
        const mo_plan_report_host *h = &r->hosts[i];
        json_array_append_new(
            list, json_pack("{s:o, s:I, s:I, s:i, s:i, s:I, s:I, s:i, s:i, s:I, s:I}", "name",
                            cli_json_string(h->name), "ram_bytes", (json_int_t)h->ram_bytes, "vram_bytes",
                            (json_int_t)h->vram_bytes, "first_layer", h->first_layer, "layers", h->layers,
                            "layers_bytes", (json_int_t)h->layers_bytes, "layers_disk_bytes",
                            (json_int_t)h->layers_disk_bytes, "first_expert", h->first_expert, "experts",
                            h->experts, "experts_bytes", (json_int_t)h->experts_bytes, "experts_disk_bytes",
                            (json_int_t)h->experts_disk_bytes));
    }
    return list;
}

static int print_json(const char *path, const mo_plan_hosts_report *r)
{
    return cli_json_print(json_pack(
        "{s:o, s:s, s:o, s:o, s:o, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:o}", "model", cli_json_string(path),
        "way", r->way, "why", cli_json_string(r->why), "by_layers", way_json(&r->by_layers), "by_experts",
        way_json(&r->by_experts), "layers", r->layers, "routed_layers", r->routed_layers, "experts",
        r->experts, "experts_used", r->experts_used, "context", (json_int_t)r->context, "batch",
        (json_int_t)r->batch, "prompt_tokens", (json_int_t)r->prompt_tokens, "hosts", hosts_json(r)));
}

int cli_plan_hosts(const char *path, const char *hosts, const char *divide, const mo_model_options *ask,
                   bool json)
{
    mo_error err = {0};
    mo_plan_hosts_report *report = calloc(1, sizeof *report); /* too large for a stack */
    if (!report) {
        fprintf(stderr, "moraine plan: out of memory for a plan\n");
        return CLI_FAILED;
    }
    const mo_status status = mo_plan_hosts(path, hosts, divide, ask, report, sizeof *report, &err);
    int code = status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
    if (status != MO_OK) {
        cli_say_error("plan", &err);
    } else if (json) {
        code = print_json(path, report);
    } else {
        print_table(path, report);
        code = CLI_OK;
    }
    free(report);
    return code;
}
