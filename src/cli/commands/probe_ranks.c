#include "cli/commands/probe_ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/cluster.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/terminal.h"

static void print_wire(double latency_s, double bytes_s)
{
    if (bytes_s > 0) {
        printf(" %8.1f %8.2f", latency_s * 1e6, bytes_s * 8e-9);
    } else {
        printf(" %8s %8s", "-", "-");
    }
}

static void print_table(const mo_probe_ranks_report *r)
{
    char ram[32];
    bool guessed = false;
    printf("%-4s %-18s %10s %8s %6s %17s %17s\n", "", "", "", "products", "disk", "to rank 0", "to the next");
    printf("%s%-4s %-18s %10s %8s %6s %8s %8s %8s %8s%s\n", cli_terminal_bold(), "rank", "host", "RAM",
           "GB/s", "GB/s", "us", "Gbit/s", "us", "Gbit/s", cli_terminal_plain());
    for (int i = 0; i < r->count; i++) {
        const mo_probe_rank *k = &r->ranks[i];
        printf("%4d %-18.18s %10s %7.1f%s %6.2f", i, k->host, cli_bytes_text((uint64_t)k->ram_bytes, ram),
               k->product_bytes_s * 1e-9, k->measured ? " " : "?", k->disk_bytes_s * 1e-9);
        print_wire(k->latency_s, k->bytes_s);
        print_wire(k->next_latency_s, k->next_bytes_s);
        printf("\n");
        guessed |= !k->measured;
    }
    if (guessed) {
        printf("?: estimated; without --network it is measured\n");
    }
}

static json_t *ranks_json(const mo_probe_ranks_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->count; i++) {
        const mo_probe_rank *k = &r->ranks[i];
        json_array_append_new(list, json_pack("{s:o, s:I, s:f, s:f, s:b, s:f, s:f, s:f, s:f, s:f}", "host",
                                              cli_json_string(k->host), "ram_bytes", (json_int_t)k->ram_bytes,
                                              "product_bytes_s", k->product_bytes_s, "disk_bytes_s",
                                              k->disk_bytes_s, "measured", (int)k->measured, "latency_s",
                                              k->latency_s, "bytes_s", k->bytes_s, "message_s", k->message_s,
                                              "next_latency_s", k->next_latency_s, "next_bytes_s",
                                              k->next_bytes_s));
    }
    return list;
}

static int show(const mo_probe_ranks_report *report, const char *output, bool keep, bool json)
{
    char saved[4096];
    mo_error err = {0};
    if (keep && mo_probe_ranks_save(report, sizeof *report, output, saved, sizeof saved, &err) != MO_OK) {
        cli_say_error("probe", &err);
        return CLI_FAILED;
    }
    if (json) {
        return cli_json_print(json_pack("{s:o, s:o?}", "ranks", ranks_json(report), "saved",
                                        keep ? cli_json_string(saved) : NULL));
    }
    print_table(report);
    if (keep) {
        fprintf(stderr, "saved to %s for moraine plan --hosts%s\n", saved, output ? "" : " probed");
    }
    return CLI_OK;
}

int cli_probe_ranks(const mo_probe_report *own, const char *output, bool keep, bool json)
{
    mo_error err = {0};
    mo_probe_ranks_report *report = calloc(1, sizeof *report);
    if (!report) {
        fprintf(stderr, "moraine probe: out of memory for the reports of the ranks\n");
        return CLI_FAILED;
    }
    int code = CLI_OK;
    if (mo_probe_ranks(cli_cluster(), own, own ? sizeof *own : 0, report, sizeof *report, &err) != MO_OK) {
        fprintf(stderr, "moraine probe: rank %d: %s\n", cli_cluster_rank(), err.detail);
        code = CLI_FAILED;
    } else if (cli_cluster_rank() == 0) {
        code = show(report, output, keep, json);
    }
    free(report);
    return code;
}
