/* Bar chart: amounts as stacked bars, one below the other (mo_bar_chart() in moraine_tools.h). */
#include <math.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "moraine_server.h"
#include "profile/drawing.h"

enum { EDGE = 24, ABOVE = 60, WIDE = 680, STEP = 56, THICK = 22, KEYS_IN_ROW = 4, KEY_HIGH = 22, KINDS = 16 };

/* Colors for the names of pieces; further names reuse them. */
static const char *const colours[] = {"#2e86ab", "#e08e1b", "#3a9d5d", "#8a63d2",
                                      "#d1495b", "#7a8490", "#4fb3bf", "#b5651d"};

typedef struct kinds {
    const char *name[KINDS];
    int count;
} kinds;

/* The number of a piece's name, in order of first use. */
static int kind_of(kinds *k, const char *name)
{
    int i = 0;
    while (i < k->count && strcmp(k->name[i], name) != 0) {
        i++;
    }
    if (i == k->count && k->count < KINDS) {
        k->name[k->count++] = name;
    }
    return i < KINDS ? i : KINDS - 1;
}

static double sum_of(const mo_bar *b)
{
    double sum = 0.0;
    for (int i = 0; i < b->count; i++) {
        sum += b->pieces[i].amount;
    }
    return sum;
}

static bool is_amount(double x)
{
    return isfinite(x) && x >= 0.0;
}

static bool right(const mo_bar *bars, int count)
{
    for (int i = 0; i < count; i++) {
        if (!is_amount(bars[i].limit) || !is_amount(bars[i].scale)) {
            return false;
        }
        for (int p = 0; p < bars[i].count; p++) {
            if (!is_amount(bars[i].pieces[p].amount)) {
                return false;
            }
        }
    }
    return true;
}

static void draw_bar(mo_drawing *d, const mo_bar *b, double y, double scale, kinds *k)
{
    double x = EDGE;
    mo_drawing_label(d, EDGE, y - 8, "start", NULL, b->label);
    mo_drawing_label(d, EDGE + WIDE, y - 8, "end", NULL, b->note ? b->note : "");
    for (int i = 0; i < b->count; i++) {
        const mo_bar_piece *p = &b->pieces[i];
        const double wide = WIDE * p->amount / scale;
        if (p->amount > 0.0) {
            fprintf(d->out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>", x,
                    y, fmax(wide - 1.0, 0.5), THICK,
                    colours[(size_t)kind_of(k, p->label) % (sizeof colours / sizeof *colours)]);
            mo_drawing_text(d, p->label);
            fputs("</title></rect>\n", d->out);
            x += wide;
        }
    }
    if (b->limit > 0.0) {
        fprintf(d->out,
                "<rect class=\"axis\" x=\"%d\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"none\"/>\n",
                EDGE, y, WIDE * fmin(b->limit / scale, 1.0), THICK);
    }
}

static void draw_keys(mo_drawing *d, const kinds *k, double y)
{
    for (int i = 0; i < k->count; i++) {
        const int column = i % KEYS_IN_ROW, row = i / KEYS_IN_ROW;
        const double x = EDGE + (double)column * WIDE / KEYS_IN_ROW, top = y + (double)row * KEY_HIGH;
        fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, top,
                colours[(size_t)i % (sizeof colours / sizeof *colours)]);
        mo_drawing_label(d, x + 18, top + 11, "start", NULL, k->name[i]);
    }
}

mo_status mo_bar_chart(const mo_bar *bars, int count, const char *title, const char *path, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, bars, title, path)
    mo_drawing d;
    kinds k = {.count = 0};
    double common = 0.0;
    if (count < 1 || !right(bars, count)) {
        return mo_fail(err, MO_EINVAL, "a chart needs at least one bar, and amounts of 0 or more");
    }
    for (int i = 0; i < count; i++) {
        common = fmax(common, bars[i].scale > 0.0 ? 0.0 : fmax(sum_of(&bars[i]), bars[i].limit));
        for (int p = 0; p < bars[i].count; p++) {
            if (bars[i].pieces[p].amount > 0.0) {
                kind_of(&k, bars[i].pieces[p].label);
            }
        }
    }
    const int rows = k.count > 1 ? (k.count + KEYS_IN_ROW - 1) / KEYS_IN_ROW : 0;
    const int below = ABOVE + count * STEP;
    const mo_status status =
        mo_drawing_begin(&d, path, WIDE + 2 * EDGE, below + rows * KEY_HIGH + EDGE / 2, err);
    if (status != MO_OK) {
        return status;
    }
    mo_drawing_label(&d, EDGE, 28, "start", "title", title);
    for (int i = 0; i < count; i++) {
        const double scale = bars[i].scale > 0.0 ? fmax(bars[i].scale, sum_of(&bars[i])) : common;
        draw_bar(&d, &bars[i], ABOVE + 6 + i * (double)STEP, scale > 0.0 ? scale : 1.0, &k);
    }
    if (rows > 0) {
        draw_keys(&d, &k, below);
    }
    return mo_drawing_finish(&d, path, err);
}
