/* moraine machine: a description of this machine. */
#include <moraine_tools.h>

#include <stdio.h>

#include "cli/commands/commands.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/terminal.h"

static json_t *kernel_names(void)
{
    json_t *names = json_array();
    for (int i = 0; mo_isa_name(i); i++) {
        json_array_append_new(names, json_string(mo_isa_name(i)));
    }
    return names;
}

static int print_json(const mo_machine_info *m)
{
    return cli_json_print(json_pack(
        "{s:o, s:o, s:o, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I}", "cpu",
        cli_json_string(m->cpu_model), "instruction_sets", cli_json_string(m->isa), "kernels", kernel_names(),
        "cores_online", m->cores_online, "cores_usable", m->cores_usable, "l1d_bytes",
        (json_int_t)m->l1d_bytes, "l2_bytes", (json_int_t)m->l2_bytes, "l3_bytes", (json_int_t)m->l3_bytes,
        "ram_total_bytes", (json_int_t)m->ram_total_bytes, "ram_available_bytes",
        (json_int_t)m->ram_available_bytes, "cgroup_limit_bytes", (json_int_t)m->cgroup_limit_bytes,
        "huge_pages", cli_json_string(m->huge_pages), "page_bytes", (json_int_t)m->page_bytes,
        "huge_page_bytes", (json_int_t)m->huge_page_bytes));
}

static void print_table(const mo_machine_info *m)
{
    char a[32], b[32], c[32];
    printf("processor          %s\n", m->cpu_model);
    printf("instruction sets   %s\n", m->isa[0] ? m->isa : "none used by the kernels");
    printf("kernels            ");
    for (int i = 0; mo_isa_name(i); i++) {
        printf("%s%s", i ? " " : "", mo_isa_name(i));
    }
    printf("\n");
    printf("cores              %d usable of %d\n", m->cores_usable, m->cores_online);
    printf("caches             L1d %s, L2 %s, L3 %s\n", cli_bytes_text(m->l1d_bytes, a),
           cli_bytes_text(m->l2_bytes, b), cli_bytes_text(m->l3_bytes, c));
    printf("memory             %s available of %s\n", cli_bytes_text(m->ram_available_bytes, a),
           cli_bytes_text(m->ram_total_bytes, b));
    printf("memory limit       %s\n",
           m->cgroup_limit_bytes ? cli_bytes_text(m->cgroup_limit_bytes, a) : "none");
    printf("pages              %s, huge %s (%s)\n", cli_bytes_text(m->page_bytes, a),
           m->huge_page_bytes ? cli_bytes_text(m->huge_page_bytes, b) : "none", m->huge_pages);
}

int cli_machine(int argc, char **argv)
{
    bool json = false;
    const cli_option options[] = {
        {"json", 0, CLI_FLAG, NULL, "print JSON", &json, 0, 0},
    };
    const cli_usage usage = {
        .command = "machine",
        .description = "Shows the resources of this machine and how much of them this process may use.",
        .examples = "  moraine machine\n  moraine machine --json\n",
        .options = options,
        .option_count = 1,
    };
    int first, code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    mo_machine_info machine;
    mo_machine_describe(&machine, sizeof machine);
    if (json) {
        return print_json(&machine);
    }
    print_table(&machine);
    return CLI_OK;
}
