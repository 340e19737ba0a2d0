#include "cli/commands/plan_for.h"

#include <stdio.h>
#include <string.h>

#include "cli/messages.h"
#include "cli/print/json.h"
#include "cli/print/plan_words.h"
#include "cli/print/terminal.h"

enum { CONTEXTS = 2 };
static const int64_t contexts[CONTEXTS] = {8192, 32768};

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void print_placement(const mo_plan_report *r)
{
    const mo_plan_report_device *d = &r->device;
    int64_t slots = 0, experts = 0;
    for (int i = 0; i < r->class_count; i++) {
        slots += strcmp(r->mode, "resident") == 0 ? r->classes[i].experts : r->classes[i].slots;
        experts += r->classes[i].experts;
    }
    if (experts == 0 || r->streamed_layers > 0 || d->slots >= experts) {
        printf("%s", cli_plan_words(r));
        return;
    }
    if (d->ceiling_bytes) {
        printf("VRAM has %d of %d layers' cores and %.0f %% of the experts, ", d->layers, r->layers,
               percent(d->slots, experts));
    }
    const int64_t others = slots < experts - d->slots ? slots : experts - d->slots;
    printf("RAM %.0f %%, disk %.0f %%", percent(others, experts),
           percent(experts - d->slots - others, experts));
}

static void print_line(const mo_plan_report *r)
{
    char speed[32], wait[32];
    const char *unit = cli_speed_text(r->tokens_per_second, speed);
    print_placement(r);
    printf("; %s %s", speed, unit);
    if (r->prompt_tokens_per_second > 0) {
        const double seconds = (double)r->prompt_tokens / r->prompt_tokens_per_second;
        printf("; first token of a prompt of %lld after %s", (long long)r->prompt_tokens,
               cli_seconds_text(seconds, wait));
    }
    printf("\n");
}

/* Plans with one context size; adds JSON to the list (NULL: prints a line). */
static int plan_one(const cli_model_header *h, const mo_plan_pc *pc, mo_model_options *o, json_t *list)
{
    mo_plan_report r;
    mo_error err;
    char *text = NULL, ram[32];
    mo_status status = mo_plan_file(h->path, o, &pc->extra, &r, sizeof r, &err);
    if (!list && o->context == contexts[0] && status == MO_OK) {
        fprintf(stderr, "%s on a PC with %s of RAM, %s\n", h->name,
                cli_bytes_text((uint64_t)pc->extra.pc_ram_bytes, ram), r.described);
    }
    if (status == MO_OK && list) {
        status = mo_plan_report_json(&r, sizeof r, &text, &err);
        json_array_append_new(list, status == MO_OK ? json_loads(text, 0, NULL) : json_null());
        mo_free(text);
    }
    if (status != MO_OK && status != MO_ENOMEM && status != MO_EDEVICE) {
        cli_model_header_say(h, err.detail, sizeof err.detail);
        cli_say_error("plan", &err);
        return status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
    }
    if (!list) {
        printf("%2lldk context  ", (long long)(o->context >> 10));
    }
    if (status != MO_OK && list) {
        json_array_append_new(list, json_null());
    } else if (status != MO_OK) {
        cli_model_header_say(h, err.detail, sizeof err.detail);
        cli_name_options(err.detail, sizeof err.detail);
        printf("does not run: %s\n", err.detail);
    } else if (!list) {
        print_line(&r);
    }
    return CLI_OK;
}

int cli_plan_for(const cli_model_header *h, const char *words, const cli_loading *l, bool json)
{
    mo_plan_pc pc;
    mo_error err;
    int code = CLI_OK;
    mo_model_options o = l->model;
    json_t *list = json ? json_array() : NULL;
    if (mo_plan_pc_read(words, &pc, &err) != MO_OK) {
        fprintf(stderr, "moraine plan: --for: %s\n", err.detail);
        return CLI_USAGE;
    }
    o.ram_bytes = 0; /* the PC's memory, minus the part for other programs */
    for (int i = 0; i < CONTEXTS && code == CLI_OK; i++) {
        o.context = contexts[i];
        code = plan_one(h, &pc, &o, list);
    }
    if (json && code == CLI_OK) {
        return cli_json_print(list);
    }
    json_decref(list);
    return code;
}
