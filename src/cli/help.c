#include "cli/help.h"

#include <stdio.h>
#include <string.h>

#include "cli/print/terminal.h"

/* Options by topic, in the order of printing. All others are printed first, as the command's own. */
static const struct {
    const char *title, *names;
} groups[] = {
    {"Answer", "system max-tokens n-predict stop schema grammar session history json raw think no-think "
               "ignore-eos quiet chat-template "
               "chat-template-file chat-template-kwargs reasoning reasoning-format reasoning-budget"},
    {"Sampling",
     "temp top-k top-p min-p repeat-penalty presence-penalty frequency-penalty repeat-last-n top-nsigma "
     "typical "
     "xtc-probability xtc-threshold dynatemp-range dynatemp-exp mirostat mirostat-ent mirostat-lr "
     "dry-multiplier dry-base dry-allowed-length dry-penalty-last-n dry-sequence-breaker samplers logit-bias "
     "seed"},
    {"Server", "host port unix api-key api-key-file ssl-cert-file ssl-key-file cors-origins allow-hosts "
               "api-prefix max-body "
               "max-connections sse-ping-interval timeout grace log-format log-level log-requests metrics "
               "no-metrics slots "
               "no-slots slot-save-path no-ui jinja"},
    {"Models and requests",
     "models-dir models-file models-max warm strict-model model alias parallel queue between-ms stalled-s "
     "cache-ram share-prefixes cache-dir cache-dir-mib pin sleep-idle-seconds"},
    {"Model and memory", "ctx ctx-size batch batch-size kv ram mmap threads isa lora lora-scaled "
                         "lora-init-without-apply streaming"},
    {"Pictures", "image mmproj no-mmproj image-min-tokens image-max-tokens image-urls"},
    {"Experts and disk",
     "policy predict readers io skip-missing discover profile warm-file moe-layer-perf-out"},
    {"Speculative decoding", "speculate draft-max draft-model"},
    {"GPU",
     "device vram cpu-moe postfetch postfetch-enable prompt-precision moe-hot-cache moe-hot-cache-max-mib "
     "moe-hot-cache-auto-reserve-mib "
     "moe-hot-cache-update-rate moe-hot-cache-weighting moe-hot-cache-layer-curve"},
    {"Several machines", "divide rank-timeout hosts"},
};

enum { GROUPS = sizeof groups / sizeof *groups, GROUPED_FROM = 20 };

/* The group of an option; -1: the command's own. */
static int group_of(const char *name)
{
    const size_t length = strlen(name);
    for (int g = 0; g < GROUPS; g++) {
        for (const char *at = groups[g].names; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
            if (strncmp(at, name, length) == 0 && (at[length] == ' ' || at[length] == '\0')) {
                return g;
            }
        }
    }
    return -1;
}

static void print_option(const char *name, char letter, const char *value, const char *help)
{
    char left[80];
    char dash[8] = "    ";
    if (letter) {
        snprintf(dash, sizeof dash, "-%c, ", letter);
    }
    snprintf(left, sizeof left, "%s--%s%s%s", dash, name, value ? " " : "", value ? value : "");
    if (strlen(left) > 25) {
        printf("  %s\n  %26s", left, "");
    } else {
        printf("  %-26s", left);
    }
    cli_terminal_wrap(help, 28);
}

static void print_heading(const char *title)
{
    printf("\n%s%s%s\n", cli_terminal_bold(), title, cli_terminal_plain());
}

/* Prints the options of a group with its title; group -1 has those without a group. */
static void print_group(const cli_usage *u, int group, const char *title)
{
    bool begun = false;
    for (int i = 0; i < u->option_count; i++) {
        const cli_option *o = &u->options[i];
        if (u->option_count < GROUPED_FROM || group_of(o->name) == group) {
            if (!begun) {
                print_heading(title);
            }
            begun = true;
            print_option(o->name, o->letter, o->value, o->help);
        }
    }
    if (group < 0) {
        if (!begun) {
            print_heading(title);
        }
        print_option("help", 'h', NULL, "print this help and exit");
    }
}

void cli_help_print(const cli_usage *u)
{
    printf("usage: moraine %s%s%s%s\n\n", u->command, u->option_count ? " [options]" : "",
           u->arguments ? " " : "", u->arguments ? u->arguments : "");
    cli_terminal_wrap(u->description, 0);
    print_group(u, -1, "Options");
    for (int g = 0; g < GROUPS && u->option_count >= GROUPED_FROM; g++) {
        print_group(u, g, groups[g].title);
    }
    if (u->examples) {
        print_heading("Examples");
        printf("%s", u->examples);
    }
}
