/* moraine doctor: reasons why models are slow on this machine, and fixes. */
#include <moraine_tools.h>

#include <stdio.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/terminal.h"
#include "cli/pulled.h"

enum { NAME_COLUMN = 7, TEXT_COLUMN = 25 };

static int count_wrong(const mo_doctor *doctor)
{
    mo_finding_info f;
    int wrong = 0;
    for (int i = 0; mo_doctor_finding(doctor, i, &f, sizeof f); i++) {
        wrong += f.wrong;
    }
    return wrong;
}

static int print_json(const mo_doctor *doctor)
{
    mo_finding_info f;
    json_t *list = json_array();
    for (int i = 0; mo_doctor_finding(doctor, i, &f, sizeof f); i++) {
        json_array_append_new(list, json_pack("{s:s, s:b, s:o, s:o}", "name", f.name, "wrong", f.wrong,
                                              "what", cli_json_string(f.what), "mend",
                                              f.mend[0] ? cli_json_string(f.mend) : json_null()));
    }
    return cli_json_print(json_pack("{s:i, s:o}", "wrong", count_wrong(doctor), "findings", list));
}

static void print_table(const mo_doctor *doctor)
{
    const int wrong = count_wrong(doctor);
    mo_finding_info f;
    for (int i = 0; mo_doctor_finding(doctor, i, &f, sizeof f); i++) {
        char name[32];
        snprintf(name, sizeof name, "%s", f.name);
        for (char *p = name; (p = strchr(p, '_'));) {
            *p = ' ';
        }
        printf("%s%-*s%-*s%s", f.wrong ? cli_terminal_bold() : "", NAME_COLUMN, f.wrong ? "slow" : "ok",
               TEXT_COLUMN - NAME_COLUMN, name, f.wrong ? cli_terminal_plain() : "");
        cli_terminal_wrap(f.what, TEXT_COLUMN);
        if (f.mend[0]) { /* on one line, for copying */
            printf("%*s%s\n", TEXT_COLUMN, "", f.mend);
        }
    }
    if (wrong) {
        printf("\n%d problem%s found that slow%s models down.\n", wrong, wrong == 1 ? "" : "s",
               wrong == 1 ? "s" : "");
    } else {
        printf("\nNo problems found.\n");
    }
}

int cli_doctor(int argc, char **argv)
{
    bool json = false;
    const char *device = "auto";
    const cli_option options[] = {
        {"json", 0, CLI_FLAG, NULL, "print JSON", &json, 0, 0},
        {"device", 0, CLI_TEXT, "NAME", "GPU to check: none, cuda or auto (default: auto)", &device, 0, 0},
    };
    const cli_usage usage = {
        .command = "doctor",
        .arguments = "[MODEL]",
        .description = "Checks this machine for anything that slows "
                       "models down: huge pages, locked memory, limits, "
                       "cores and their clock, other programs, swapping, "
                       "io_uring, the GPU; with a model also its disk "
                       "and file system. Each finding comes with the "
                       "command that fixes it; nothing is changed. "
                       "Exit code 0: no problems, 1: problems found.",
        .examples =
            "  moraine doctor\n  moraine doctor model.gguf\n  moraine doctor --json | jq '.findings[] | "
            "select(.wrong)'\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .max_arguments = 1,
    };
    int first, code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    mo_doctor_options o = mo_doctor_options_default();
    mo_doctor *doctor = NULL;
    mo_error err;
    if (first < argc && !(o.model = cli_pulled_path("doctor", argv[first], &code))) {
        return code;
    }
    o.device = device;
    if (mo_doctor_open(&o, &doctor, &err) != MO_OK) {
        cli_say_error("doctor", &err);
        return err.status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
    }
    const int wrong = count_wrong(doctor);
    if (json) {
        code = print_json(doctor);
    } else {
        print_table(doctor);
        code = CLI_OK;
    }
    mo_doctor_close(doctor);
    return code == CLI_OK && wrong ? CLI_FAILED : code;
}
