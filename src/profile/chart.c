#include "profile/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "moraine_server.h"
#include "profile/drawing.h"

enum { SERIES_LIMIT = 16 };

/* ---- Hit rate against budget -------------------------------------------------------------------- */

enum { LEFT = 60, TOP = 52, WIDE = 520, HIGH = 320, LEGEND = 130, BELOW = 56 };

static const char *const colours[] = {"#d1495b", "#2e86ab", "#3a9d5d", "#e08e1b", "#8a63d2", "#7a8490"};

static bool is_optimum(const char *policy)
{
    return strcmp(policy, "optimum") == 0;
}

/* Lists the policies in order of first use. Returns their number. */
static int find_series(const mo_replay_point *points, int count, const char **series)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        int k = 0;
        while (k < found && strcmp(series[k], points[i].policy) != 0) {
            k++;
        }
        if (k == found && found < SERIES_LIMIT) {
            series[found++] = points[i].policy;
        }
    }
    return found;
}

static double place_x(double share, double end)
{
    return LEFT + WIDE * share / end;
}

static double place_y(double rate)
{
    return TOP + HIGH * (1.0 - rate);
}

static void draw_axes(mo_drawing *d, double end)
{
    char text[32];
    for (int i = 0; i <= 10; i += 2) {
        const double y = place_y(i / 10.0);
        fprintf(d->out, "<line class=\"faint\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>\n", LEFT, y,
                LEFT + WIDE, y);
        snprintf(text, sizeof text, "%d %%", 10 * i);
        mo_drawing_label(d, LEFT - 8, y + 4, "end", NULL, text);
    }
    const double step = end > 0.55 ? 0.2 : end > 0.25 ? 0.1 : end > 0.1 ? 0.05 : end / 4.0;
    for (double share = 0.0; share < end + step / 100.0; share += step) {
        const double x = place_x(share, end);
        fprintf(d->out, "<line class=\"faint\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n", x, TOP, x,
                TOP + HIGH);
        snprintf(text, sizeof text, "%.3g %%", 100.0 * share);
        mo_drawing_label(d, x, TOP + HIGH + 20, "middle", NULL, text);
    }
    fprintf(d->out, "<path class=\"axis\" fill=\"none\" d=\"M%d %dv%dh%d\"/>\n", LEFT, TOP, HIGH, WIDE);
    mo_drawing_label(d, LEFT + WIDE / 2.0, TOP + HIGH + 44, "middle", NULL,
                     "budget, share of all expert bytes");
    mo_drawing_label(d, LEFT, TOP - 10, "start", NULL, "hit rate");
}

static void draw_series(mo_drawing *d, const mo_replay_point *points, int count, const char *name, int number,
                        double end)
{
    const char *colour =
        is_optimum(name) ? "currentColor" : colours[(size_t)number % (sizeof colours / sizeof *colours)];
    const double y = TOP + 10 + 24.0 * number;
    const char *class = is_optimum(name) ? "line dashed" : "line";
    fprintf(d->out, "<polyline class=\"%s\" stroke=\"%s\" points=\"", class, colour);
    for (int i = 0; i < count; i++) {
        if (strcmp(points[i].policy, name) == 0) {
            fprintf(d->out, "%.1f,%.1f ", place_x(points[i].budget_share, end), place_y(points[i].hit_rate));
        }
    }
    fputs("\"/>\n", d->out);
    for (int i = 0; i < count; i++) {
        if (strcmp(points[i].policy, name) == 0) {
            fprintf(d->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"><title>",
                    place_x(points[i].budget_share, end), place_y(points[i].hit_rate), colour);
            mo_drawing_text(d, name);
            fprintf(d->out, ": %.1f %% at %.3g %%</title></circle>\n", 100.0 * points[i].hit_rate,
                    100.0 * points[i].budget_share);
        }
    }
    fprintf(d->out, "<path class=\"%s\" stroke=\"%s\" d=\"M%d %.1fh24\"/>\n", class, colour, LEFT + WIDE + 20,
            y);
    mo_drawing_label(d, LEFT + WIDE + 52, y + 4, "start", NULL, name);
}

mo_status mo_replay_chart(const mo_replay_point *points, int count, const char *title, const char *path,
                          mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, points, title, path)
    const char *series[SERIES_LIMIT];
    double end = 0.0;
    mo_drawing d;
    for (int i = 0; i < count; i++) {
        if (!(points[i].budget_share > 0.0 && points[i].budget_share <= 1.0 && points[i].hit_rate >= 0.0 &&
              points[i].hit_rate <= 1.0)) {
            return mo_fail(err, MO_EINVAL, "budgets and hit rates of a chart must be 0 to 1");
        }
        end = fmax(end, points[i].budget_share);
    }
    if (count < 1) {
        return mo_fail(err, MO_EINVAL, "a chart needs at least one result");
    }
    const mo_status status = mo_drawing_begin(&d, path, LEFT + WIDE + LEGEND, TOP + HIGH + BELOW, err);
    if (status != MO_OK) {
        return status;
    }
    mo_drawing_label(&d, LEFT, 24, "start", "title", title);
    draw_axes(&d, end);
    const int found = find_series(points, count, series);
    for (int i = 0; i < found; i++) {
        draw_series(&d, points, count, series[i], i, end);
    }
    return mo_drawing_finish(&d, path, err);
}

/* ---- Picks by layer and expert ------------------------------------------------------------------ */

enum { LEVELS = 10 };

typedef struct heat {
    const mo_trace_shape *shape;
    const uint64_t *picks;
    double cell_wide, cell_high;
} heat;

/* 0: never, up to LEVELS: each level is 1.5 times the one below; five is the average. */
static int level_of(uint64_t picks, double even)
{
    if (picks == 0) {
        return 0;
    }
    const int level = 5 + (int)lround(log((double)picks / even) / log(1.5));
    return level < 1 ? 1 : level > LEVELS ? LEVELS : level;
}

static double even_picks(const heat *h, int layer)
{
    uint64_t sum = 0;
    for (int e = 0; e < h->shape->experts; e++) {
        sum += h->picks[(size_t)layer * (size_t)h->shape->experts + (size_t)e];
    }
    return (double)sum / h->shape->experts;
}

/* Draws all cells of a level as one path, and adjacent cells as one rectangle. */
static void draw_level(mo_drawing *d, const heat *h, int level)
{
    const int experts = h->shape->experts;
    fprintf(d->out, "<path fill=\"#d1495b\" fill-opacity=\"%.2f\" d=\"", (double)level / LEVELS);
    for (int layer = 0; layer < h->shape->layers; layer++) {
        const uint64_t *row = h->picks + (size_t)layer * (size_t)experts;
        const double even = even_picks(h, layer);
        for (int e = 0; e < experts; e++) {
            const int first = e;
            while (e < experts && level_of(row[e], even) == level) {
                e++;
            }
            if (e > first) {
                fprintf(d->out, "M%.2f %.2fh%.2fv%.2fh-%.2fz", LEFT + first * h->cell_wide,
                        TOP + layer * h->cell_high, (e - first) * h->cell_wide, h->cell_high,
                        (e - first) * h->cell_wide);
            }
        }
    }
    fputs("\"/>\n", d->out);
}

static void draw_heat_labels(mo_drawing *d, const heat *h, const char *title)
{
    const mo_trace_shape *s = h->shape;
    const double wide = s->experts * h->cell_wide, high = s->layers * h->cell_high;
    const int every = (int)ceil(16.0 / h->cell_high), step = (s->experts + 7) / 8;
    char text[32];
    mo_drawing_label(d, LEFT, 24, "start", "title", title);
    for (int i = 0; i < s->layers; i += every) {
        snprintf(text, sizeof text, "%d", s->layer[i]);
        mo_drawing_label(d, LEFT - 8, TOP + (i + 0.5) * h->cell_high + 4, "end", NULL, text);
    }
    for (int e = 0; e < s->experts; e += step) {
        snprintf(text, sizeof text, "%d", e);
        mo_drawing_label(d, LEFT + (e + 0.5) * h->cell_wide, TOP + high + 18, "middle", NULL, text);
    }
    mo_drawing_label(d, LEFT, TOP - 10, "start", NULL, "layer (down), expert (across)");
    fprintf(d->out,
            "<rect class=\"faint\" fill=\"none\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%.1f\"/>\n", LEFT,
            TOP, wide, high);
    const double y = TOP + high + 30;
    for (int i = 0; i <= LEVELS; i++) {
        fprintf(
            d->out,
            "<rect class=\"faint\" fill=\"#d1495b\" fill-opacity=\"%.2f\" x=\"%d\" y=\"%.1f\" width=\"16\" "
            "height=\"12\"/>\n",
            (double)i / LEVELS, LEFT + 60 + 18 * i, y);
    }
    mo_drawing_label(d, LEFT, y + 11, "start", NULL, "never");
    mo_drawing_label(d, LEFT + 66 + 18 * (LEVELS + 1), y + 11, "start", NULL,
                     "7 times the uniform rate, or more");
}

mo_status mo_trace_chart(const mo_trace *trace, const char *title, const char *path, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, trace, title, path)
    const mo_trace_shape *s = &trace->shape;
    uint64_t *picks = calloc((size_t)s->layers * (size_t)s->experts, sizeof *picks);
    heat h = {.shape = s,
              .picks = picks,
              .cell_wide = fmin(14.0, fmax(1.0, 960.0 / s->experts)),
              .cell_high = fmin(16.0, fmax(4.0, 560.0 / s->layers))};
    const double wide = fmax(s->experts * h.cell_wide, 560.0);
    mo_drawing d;
    if (!picks) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory for a chart", path);
    }
    mo_trace_picks(trace, picks);
    mo_status status = mo_drawing_begin(&d, path, (int)(LEFT + wide + 20),
                                        (int)(TOP + s->layers * h.cell_high + BELOW), err);
    if (status == MO_OK) {
        for (int level = 1; level <= LEVELS; level++) {
            draw_level(&d, &h, level);
        }
        draw_heat_labels(&d, &h, title);
        status = mo_drawing_finish(&d, path, err);
    }
    free(picks);
    return status;
}
