#include "cli/commands/plan_chart.h"

#include <stdio.h>
#include <string.h>

#include "cli/messages.h"
#include "cli/print/terminal.h"

enum { PIECES = 10 };

typedef struct tier {
    mo_bar_piece pieces[PIECES];
    char label[160], note[80];
} tier;

static void add(tier *t, mo_bar *b, const char *label, int64_t bytes)
{
    t->pieces[b->count++] = (mo_bar_piece){label, (double)bytes};
}

static void finish(tier *t, mo_bar *b, int64_t used, int64_t ceiling)
{
    char a[32], c[32];
    if (ceiling > 0) {
        snprintf(t->note, sizeof t->note, "%s of %s", cli_bytes_text((uint64_t)used, a),
                 cli_bytes_text((uint64_t)ceiling, c));
    } else {
        snprintf(t->note, sizeof t->note, "%s", cli_bytes_text((uint64_t)used, a));
    }
    b->label = t->label;
    b->note = t->note;
    b->pieces = t->pieces;
    /* A ceiling far above the used bytes would make the bars invisible. */
    b->limit = (double)ceiling > 4.0 * (double)used ? 0.0 : (double)ceiling;
}

bool cli_plan_chart(const char *path, const mo_plan_report *r, const char *svg)
{
    const mo_plan_report_device *d = &r->device;
    const char *slash = strrchr(path, '/');
    tier tiers[3];
    mo_bar bars[3] = {{.count = 0}};
    char title[320];
    char speed[32];
    int count = 0;
    mo_error err;
    if (d->name[0]) {
        tier *t = &tiers[count];
        mo_bar *b = &bars[count++];
        snprintf(t->label, sizeof t->label, "VRAM (%s)", d->name);
        add(t, b, "experts", d->slot_bytes);
        add(t, b, "core", d->core_bytes + d->vector_bytes);
        add(t, b, "KV cache", d->kv_bytes);
        add(t, b, "working memory", d->work_bytes);
        add(t, b, "staging and buffers", d->staging_bytes + d->layer_buffer_bytes);
        finish(t, b, d->used_bytes, d->ceiling_bytes);
    }
    tier *ram = &tiers[count];
    mo_bar *b = &bars[count++];
    snprintf(ram->label, sizeof ram->label, "RAM");
    add(ram, b, "experts", r->slot_bytes);
    add(ram, b, "core", r->core_bytes + r->vector_bytes);
    add(ram, b, "KV cache", r->kv_bytes);
    add(ram, b, "working memory", r->work_bytes);
    add(ram, b, "staging and buffers", r->staging_bytes);
    add(ram, b, "embedding", r->table_bytes);
    add(ram, b, "program", r->other_bytes);
    finish(ram, b, r->used_bytes, r->ceiling_bytes);
    tier *disk = &tiers[count];
    b = &bars[count++];
    snprintf(disk->label, sizeof disk->label, "Disk");
    add(disk, b, "experts", r->disk_expert_bytes);
    add(disk, b, "core", r->disk_core_bytes);
    add(disk, b, "embedding", r->disk_table_bytes);
    finish(disk, b, r->disk_expert_bytes + r->disk_core_bytes + r->disk_table_bytes, 0);
    const char *unit = cli_speed_text(r->tokens_per_second, speed);
    snprintf(title, sizeof title, "%.200s: %s %s expected", slash ? slash + 1 : path, speed, unit);
    if (mo_bar_chart(bars, count, title, svg, &err) != MO_OK) {
        cli_say_error("plan", &err);
        return false;
    }
    return true;
}
