/* moraine probe: measures the rates of memory, disk and device that plans use. */
#include <moraine_server.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/check.h"
#include "cli/cluster.h"
#include "cli/commands/commands.h"
#include "cli/commands/probe_ranks.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/terminal.h"
#include "cli/pulled.h"
#include "cli/signals.h"

static bool on_progress(void *user, const char *what, int done, int total)
{
    const bool *shown = user;
    if (*shown) {
        fprintf(stderr, "\r\033[K%d of %d  %s", done, total, what);
        fflush(stderr);
    }
    return !cli_interrupted();
}

/* ---- For people ---- */

static void print_memory(const mo_probe_report *r)
{
    printf("%s%-18s%7s%s\n", cli_terminal_bold(), "Memory", "GB/s", cli_terminal_plain());
    for (int i = 0; i < r->memory_count; i++) {
        printf("%4d %-13s%7.1f\n", r->memory[i].threads, r->memory[i].threads == 1 ? "thread" : "threads",
               r->memory[i].bytes_s * 1e-9);
    }
}

/* Prints a table for a method: a line for each block size; GB/s and CPU share for each depth. */
static void print_method(const mo_probe_report *r, bool uring)
{
    int64_t block = 0;
    char size[32];
    for (int i = 0; i < r->disk_count; i++) {
        if (r->disk[i].io_uring != uring) {
            continue;
        }
        if (block == 0) {
            printf("\n%s%-18s%s", cli_terminal_bold(), uring ? "Disk, io_uring" : "Disk, threads",
                   cli_terminal_plain());
            for (int k = i; k < r->disk_count && r->disk[k].block_bytes == r->disk[i].block_bytes; k++) {
                printf("%12d x", r->disk[k].depth);
            }
        }
        if (r->disk[i].block_bytes != block) {
            block = r->disk[i].block_bytes;
            printf("\n  %-16s", cli_bytes_text((uint64_t)block, size));
        }
        printf("%7.2f (%3.0f%%)", r->disk[i].bytes_s * 1e-9, r->disk[i].cpu_share * 100);
    }
    if (block != 0) {
        printf("\n");
    }
}

static void print_copies(const mo_probe_device_report *d)
{
    char size[32];
    if (!d->name[0]) {
        return;
    }
    printf("\n%s%-18s%7s %8s %9s%s\n", cli_terminal_bold(), "Link, GB/s", "to GPU", "from GPU", "pageable",
           cli_terminal_plain());
    for (int i = 0; i < d->copy_count; i++) {
        const struct mo_probe_copy *c = &d->copies[i];
        printf("  %-16s%7.2f %8.2f %9.2f\n", cli_bytes_text((uint64_t)c->bytes, size), c->in_bytes_s * 1e-9,
               c->out_bytes_s * 1e-9, c->pageable_bytes_s * 1e-9);
    }
}

static void print_experts(const mo_probe_device_report *d)
{
    char size[32];
    if (d->expert_count == 0) {
        return;
    }
    printf("\n%s%-18s%7s %8s %9s%s\n", cli_terminal_bold(), "Experts, GB/s", "CPU", "CPU and", "copies",
           cli_terminal_plain());
    for (int i = 0; i < d->expert_count; i++) {
        const struct mo_probe_expert *e = &d->experts[i];
        printf("  %-16s%7.2f %8.2f %9.2f\n", cli_bytes_text((uint64_t)e->bytes, size), e->cpu_bytes_s * 1e-9,
               e->both_cpu_bytes_s * 1e-9, e->both_link_bytes_s * 1e-9);
    }
}

static void print_device(const mo_probe_device_report *d)
{
    char a[32], b[32];
    if (!d->name[0]) {
        if (d->why[0]) {
            printf("no GPU             ");
            cli_terminal_wrap(d->why, 19);
        }
        return;
    }
    printf("device             %s, %s free of %s\n", d->name, cli_bytes_text((uint64_t)d->free_bytes, a),
           cli_bytes_text((uint64_t)d->memory_bytes, b));
    printf("GPU memory         %.1f GB/s, in matrix products\n", d->memory_bytes_s * 1e-9);
    printf("link               %.2f GB/s to the GPU, %.2f from it; %.2f from pageable memory\n",
           d->link_bytes_s * 1e-9, d->link_out_bytes_s * 1e-9, d->pageable_bytes_s * 1e-9);
    if (d->copy_count > 1) {
        printf("                   %.2f GB/s in copies of %s\n", d->copies[1].in_bytes_s * 1e-9,
               cli_bytes_text((uint64_t)d->copies[1].bytes, a));
    }
    if (!d->pinned) {
        printf("                   the system refuses to "
               "pin memory; all copies use pageable memory\n");
    }
    printf("both at once       memory %.1f GB/s, link %.2f GB/s\n", d->both_ram_bytes_s * 1e-9,
           d->both_link_bytes_s * 1e-9);
    printf("latency            %.1f us for a launch, %.1f us for a round trip\n", d->launch_seconds * 1e6,
           d->round_trip_seconds * 1e6);
}

static void print_table(const mo_probe_report *r)
{
    print_memory(r);
    print_method(r, false);
    print_method(r, true);
    print_copies(&r->device);
    print_experts(&r->device);
    printf("GB/s by number of concurrent reads; in brackets the CPU time, relative to one core\n\n");
    printf("memory             %.1f GB/s\n", r->ram_bytes_s * 1e-9);
    printf("products           %.1f GB/s with weights in RAM, %.1f with weights read on demand\n",
           r->product_bytes_s * 1e-9, r->slot_bytes_s * 1e-9);
    printf("disk               %.2f GB/s, reads of 1 MiB %s, %d %s\n", r->disk_bytes_s * 1e-9,
           r->direct ? "bypassing the page cache" : "through the page cache", r->readers,
           r->io_uring       ? "in flight with io_uring"
           : r->readers == 1 ? "thread"
                             : "threads");
    printf("reason             ");
    cli_terminal_wrap(r->disk_reason, 19);
    print_device(&r->device);
}

/* ---- For programs ---- */

static json_t *memory_json(const mo_probe_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->memory_count; i++) {
        json_array_append_new(
            list, json_pack("{s:i, s:f}", "threads", r->memory[i].threads, "bytes_s", r->memory[i].bytes_s));
    }
    return list;
}

static json_t *disk_json(const mo_probe_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->disk_count; i++) {
        json_array_append_new(list,
                              json_pack("{s:b, s:I, s:i, s:f, s:f, s:f}", "io_uring", r->disk[i].io_uring,
                                        "block_bytes", (json_int_t)r->disk[i].block_bytes, "depth",
                                        r->disk[i].depth, "bytes_s", r->disk[i].bytes_s, "read_s",
                                        r->disk[i].read_s, "cpu_share", r->disk[i].cpu_share));
    }
    return list;
}

static json_t *copies_json(const mo_probe_device_report *d)
{
    json_t *list = json_array();
    for (int i = 0; i < d->copy_count; i++) {
        const struct mo_probe_copy *c = &d->copies[i];
        json_array_append_new(list, json_pack("{s:I, s:f, s:f, s:f}", "bytes", (json_int_t)c->bytes,
                                              "in_bytes_s", c->in_bytes_s, "out_bytes_s", c->out_bytes_s,
                                              "pageable_bytes_s", c->pageable_bytes_s));
    }
    return list;
}

static json_t *experts_json(const mo_probe_device_report *d)
{
    json_t *list = json_array();
    for (int i = 0; i < d->expert_count; i++) {
        const struct mo_probe_expert *e = &d->experts[i];
        json_array_append_new(list,
                              json_pack("{s:I, s:f, s:f, s:f}", "bytes", (json_int_t)e->bytes, "cpu_bytes_s",
                                        e->cpu_bytes_s, "both_cpu_bytes_s", e->both_cpu_bytes_s,
                                        "both_link_bytes_s", e->both_link_bytes_s));
    }
    return list;
}

static json_t *device_json(const mo_probe_device_report *d)
{
    if (!d->name[0]) {
        return json_null();
    }
    return json_pack("{s:o, s:s, s:I, s:I, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "name",
                     cli_json_string(d->name), "kind", d->kind, "memory_bytes", (json_int_t)d->memory_bytes,
                     "free_bytes", (json_int_t)d->free_bytes, "pinned", (int)d->pinned, "link_bytes_s",
                     d->link_bytes_s, "link_out_bytes_s", d->link_out_bytes_s, "pageable_bytes_s",
                     d->pageable_bytes_s, "both_ram_bytes_s", d->both_ram_bytes_s, "both_link_bytes_s",
                     d->both_link_bytes_s, "memory_bytes_s", d->memory_bytes_s, "launch_seconds",
                     d->launch_seconds, "round_trip_seconds", d->round_trip_seconds, "copies", copies_json(d),
                     "experts", experts_json(d));
}

static int print_json(const mo_probe_report *r, const char *saved)
{
    return cli_json_print(json_pack(
        "{s:i, s:I, s:f, s:f, s:f, s:f, s:b, s:b, s:i, s:o, s:o, s:o, s:o, s:o, s:f, s:b, s:o?}", "threads",
        r->threads, "ram_bytes", (json_int_t)r->ram_bytes, "ram_bytes_s", r->ram_bytes_s, "product_bytes_s",
        r->product_bytes_s, "slot_bytes_s", r->slot_bytes_s, "disk_bytes_s", r->disk_bytes_s, "direct",
        r->direct, "io_uring", r->io_uring, "readers", r->readers, "reason", cli_json_string(r->disk_reason),
        "memory", memory_json(r), "disk", disk_json(r), "device", device_json(&r->device), "why_no_device",
        r->device.why[0] ? cli_json_string(r->device.why) : json_null(), "others_cores", r->others_cores,
        "disturbed", (int)r->disturbed, "saved", saved ? cli_json_string(saved) : NULL));
}

/* ---- */

static int fail(const mo_error *err)
{
    cli_say_error("probe", err);
    return err->status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
}

/* For one of several ranks: each keeps its own rates, whatever file is given for the network. */
static int probe_in_company(const mo_probe_options *ask, bool network, const char *output, bool keep,
                            bool json)
{
    mo_probe_report report;
    mo_error err;
    char saved[4096];
    if (network) {
        return cli_probe_ranks(NULL, output, keep, json);
    }
    mo_status status = mo_probe(ask, &report, sizeof report, &err);
    if (status == MO_OK && keep) {
        status = mo_probe_save(&report, sizeof report, NULL, saved, sizeof saved, &err);
    }
    return status == MO_OK ? cli_probe_ranks(&report, output, keep, json) : fail(&err);
}

static void say_disturbed(const mo_probe_report *r, bool force)
{
    fprintf(
        stderr,
        "moraine probe: other programs kept %.1f cores busy meanwhile, so this machine is faster than these "
        "rates%s\n",
        r->others_cores,
        force ? "" : "; nothing was saved: measure again when it is quiet, or save them with --force");
}

static int probe(const mo_probe_options *ask, const char *output, bool keep, bool force, bool json)
{
    mo_probe_report report;
    mo_error err;
    char saved[4096];
    const mo_status status = mo_probe(ask, &report, sizeof report, &err);
    if (*(const bool *)ask->user) {
        fprintf(stderr, "\r\033[K");
    }
    if (status != MO_OK) {
        return fail(&err);
    }
    const bool refused = keep && report.disturbed && !force;
    keep = keep && !refused;
    if (keep && mo_probe_save(&report, sizeof report, output, saved, sizeof saved, &err) != MO_OK) {
        return fail(&err);
    }
    cli_name_options(report.device.why, sizeof report.device.why);
    int code = refused ? CLI_FAILED : CLI_OK;
    if (json) {
        const int printed = print_json(&report, keep ? saved : NULL);
        code = printed == CLI_OK ? code : printed;
    } else {
        print_table(&report);
    }
    if (report.disturbed && (refused || !json)) {
        say_disturbed(&report, !refused);
    }
    if (keep && !json) {
        fprintf(stderr, "saved to %s for moraine plan\n", saved);
    }
    return code;
}

int cli_probe(int argc, char **argv)
{
    bool json = false, dry = false, network = false, force = false;
    const char *directory = NULL, *output = NULL, *device = "auto";
    int64_t threads = 0;
    const cli_option options[] = {
        {"dir", 'd', CLI_TEXT, "DIRECTORY",
         "without MODEL: directory for a temporary test "
         "file of 1 GiB, on the disk that will hold "
         "the models (default: the current directory)",
         &directory, 0, 0},
        {"threads", 't', CLI_INTEGER, "N",
         "maximum threads for reading memory (default: one per usable core)", &threads, 1, 1024},
        {"device", 0, CLI_TEXT, "NAME",
         "also measure this device: none, cuda, auto (a usable GPU, if any) or sim (default: auto)", &device,
         0, 0},
        {"output", 'o', CLI_TEXT, "FILE",
         "save the rates to FILE (default: rates.json in the user's cache directory)", &output, 0, 0},
        {"dry", 0, CLI_FLAG, NULL, "save nothing", &dry, 0, 0},
        {"force", 'f', CLI_FLAG, NULL, "save the rates although other programs are busy", &force, 0, 0},
        {"network", 0, CLI_FLAG, NULL,
         "under mpirun: measure only the network between ranks, and use the saved rates of each machine",
         &network, 0, 0},
        {"json", 0, CLI_FLAG, NULL, "print JSON", &json, 0, 0},
    };
    const cli_usage usage = {
        .command = "probe",
        .arguments = "[MODEL]",
        .description = "Measures the speed of memory, disk and GPU on "
                       "this machine in about ten seconds and saves the "
                       "rates for moraine plan. The disk is read the way "
                       "the engine does, from MODEL if given. Other "
                       "running programs lower the rates: if they keep more than a tenth of the cores busy, "
                       "nothing is saved. Under mpirun, "
                       "all ranks are measured at once and then the network "
                       "between them, for moraine plan --hosts probed.",
        .examples = "  moraine probe\n"
                    "  moraine probe --dir /data/models\n"
                    "  moraine probe model.gguf --json\n"
                    "  mpirun -n 2 --host a,b moraine probe model.gguf\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 0,
        .max_arguments = 1,
    };
    int first;
    int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    const char *model = NULL;
    if (first < argc && !(model = cli_pulled_path("probe", argv[first], &code))) {
        return code;
    }
    const char *wrong = model && directory          ? "give a model or --dir, not both"
                        : dry && output             ? "give --output or --dry, not both"
                        : network && !cli_cluster() ? "--network needs several ranks, started by mpirun"
                                                    : NULL;
    if (wrong) {
        fprintf(stderr, "moraine probe: %s\n", wrong);
        return CLI_USAGE;
    }
    if (cli_cluster_rank() == 0 &&
        !cli_check_writable("probe", "--output", output)) { /* before seconds of measuring */
        return CLI_FAILED;
    }
    bool shown = cli_terminal_is(stderr) && !cli_cluster();
    const mo_probe_options ask = {
        .size = sizeof(mo_probe_options),
        .model = model,
        .directory = directory,
        .threads = (int)threads,
        .device = device,
        .progress = on_progress,
        .user = &shown,
    };
    return cli_cluster() ? probe_in_company(&ask, network, output, !dry, json)
                         : probe(&ask, output, !dry, force, json);
}
