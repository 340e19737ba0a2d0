/* moraine probe: what plans are made with, measured: the rates of memory and disk. */
#include <moraine.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "json.h"
#include "options.h"
#include "terminal.h"

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

/* One table per way: a line for each block size, GB/s and processor share for each depth. */
static void print_way(const mo_probe_report *r, bool ring)
{
    int64_t block = 0;
    char size[32];
    for (int i = 0; i < r->disk_count; i++) {
        if (r->disk[i].ring != ring) {
            continue;
        }
        if (block == 0) {
            printf("\n%s%-18s%s", cli_terminal_bold(), ring ? "Disk, io_uring" : "Disk, threads",
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

static void print_table(const mo_probe_report *r)
{
    print_memory(r);
    print_way(r, false);
    print_way(r, true);
    printf("GB/s with so many reads under way; in brackets the processor time, of one core\n\n");
    printf("memory             %.1f GB/s\n", r->ram_bytes_s * 1e-9);
    printf("disk               %.2f GB/s, reads of 1 MiB %s, %d %s\n", r->disk_bytes_s * 1e-9,
           r->direct ? "past the page cache" : "through the page cache", r->readers,
           r->ring           ? "in the ring of io_uring"
           : r->readers == 1 ? "thread"
                             : "threads");
    printf("because            ");
    cli_terminal_wrap(r->disk_reason, 19);
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
        json_array_append_new(list, json_pack("{s:b, s:I, s:i, s:f, s:f, s:f}", "io_uring", r->disk[i].ring,
                                              "block_bytes", (json_int_t)r->disk[i].block_bytes, "depth",
                                              r->disk[i].depth, "bytes_s", r->disk[i].bytes_s, "read_s",
                                              r->disk[i].read_s, "cpu_share", r->disk[i].cpu_share));
    }
    return list;
}

static int print_json(const mo_probe_report *r, const char *saved)
{
    return cli_json_print(json_pack(
        "{s:i, s:I, s:f, s:f, s:b, s:b, s:i, s:o, s:o, s:o, s:o?}", "threads", r->threads, "ram_bytes",
        (json_int_t)r->ram_bytes, "ram_bytes_s", r->ram_bytes_s, "disk_bytes_s", r->disk_bytes_s, "direct",
        r->direct, "io_uring", r->ring, "readers", r->readers, "reason", cli_json_string(r->disk_reason),
        "memory", memory_json(r), "disk", disk_json(r), "saved", saved ? cli_json_string(saved) : NULL));
}

/* ---- */

static int fail(const mo_error *err)
{
    fprintf(stderr, "moraine probe: %s\n", err->detail);
    return err->status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
}

static int probe(const mo_probe_ask *ask, const char *output, bool keep, bool json)
{
    mo_probe_report report;
    mo_error err;
    char saved[4096];
    cli_interrupt_catch();
    const mo_status status = mo_probe(ask, &report, &err);
    if (*(const bool *)ask->user) {
        fprintf(stderr, "\r\033[K");
    }
    if (status != MO_OK) {
        return fail(&err);
    }
    if (keep && mo_probe_save(&report, output, saved, sizeof saved, &err) != MO_OK) {
        return fail(&err);
    }
    if (json) {
        return print_json(&report, keep ? saved : NULL);
    }
    print_table(&report);
    if (keep) {
        fprintf(stderr, "kept in %s for moraine plan\n", saved);
    }
    return CLI_OK;
}

int cli_probe(int argc, char **argv)
{
    bool json = false, dry = false;
    const char *directory = NULL, *output = NULL;
    int64_t threads = 0;
    const cli_option options[] = {
        {"dir", 'd', CLI_TEXT, "DIRECTORY",
         "without MODEL: where to make a file of 1 GiB to measure with, on the disk that will hold the "
         "models; "
         "it is gone afterwards (the current directory)",
         &directory, 0, 0},
        {"threads", 't', CLI_INTEGER, "N", "most threads that read memory (one per usable core)", &threads, 1,
         1024},
        {"output", 'o', CLI_TEXT, "FILE", "keep the rates in this file (rates.json in the user's cache)",
         &output, 0, 0},
        {"dry", 0, CLI_FLAG, NULL, "keep nothing", &dry, 0, 0},
        {"json", 0, CLI_FLAG, NULL, "print JSON", &json, 0, 0},
    };
    const cli_usage usage = {
        .command = "probe",
        .arguments = "[MODEL]",
        .description =
            "Measures how fast this machine reads memory and disk, which takes some ten seconds, and keeps "
            "the rates for moraine plan. The disk is read as the engine does it, from MODEL if one is "
            "named. Other programs that run meanwhile make the rates look lower.",
        .examples = "  moraine probe\n"
                    "  moraine probe --dir /data/models\n"
                    "  moraine probe model.gguf --json\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 0,
        .max_arguments = 1,
    };
    int first;
    const int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    const char *model = first < argc ? argv[first] : NULL;
    if (model && directory) {
        fprintf(stderr, "moraine probe: give a model or --dir, not both\n");
        return CLI_USAGE;
    }
    if (dry && output) {
        fprintf(stderr, "moraine probe: give --output or --dry, not both\n");
        return CLI_USAGE;
    }
    bool shown = isatty(STDERR_FILENO) == 1;
    const mo_probe_ask ask = {
        .model = model,
        .directory = directory,
        .threads = (int)threads,
        .progress = on_progress,
        .user = &shown,
    };
    return probe(&ask, output, !dry, json);
}
