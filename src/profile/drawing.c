#include "profile/drawing.h"

#include <stdlib.h>

#include "base/output.h"
#include "base/status.h"

mo_status mo_drawing_begin(mo_drawing *d, const char *path, int width, int height, mo_error *err)
{
    *d = (mo_drawing){0};
    d->out = open_memstream(&d->text, &d->bytes);
    if (!d->out) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory for a chart", path);
    }
    /* Colors with contrast to white and black, distinguishable for color-blind readers. */
    fprintf(
        d->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
        "font-family=\"system-ui, sans-serif\" font-size=\"13\">\n"
        "<style>\n"
        "svg { color: #1b1f24; background: #ffffff }\n"
        "@media (prefers-color-scheme: dark) { svg { color: #e4e7eb; background: #14171a } }\n"
        "@media print { svg { color: #000000; background: #ffffff } }\n"
        "text { fill: currentColor } .title { font-size: 16px; font-weight: 600 }\n"
        ".faint { stroke: currentColor; stroke-opacity: 0.18 } .axis { stroke: currentColor }\n"
        ".line { fill: none; stroke-width: 2.5; stroke-linejoin: round } .dashed { stroke-dasharray: 6 5 }\n"
        "</style>\n",
        width, height, width, height);
    return MO_OK;
}

void mo_drawing_text(mo_drawing *d, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': fputs("&lt;", d->out); break;
        case '>': fputs("&gt;", d->out); break;
        case '&': fputs("&amp;", d->out); break;
        case '"': fputs("&quot;", d->out); break;
        default: fputc((unsigned char)*text < ' ' ? ' ' : *text, d->out); break;
        }
    }
}

void mo_drawing_label(mo_drawing *d, double x, double y, const char *anchor, const char *class,
                      const char *text)
{
    fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s%s%s>", x, y, anchor,
            class ? " class=\"" : "", class ? class : "", class ? "\"" : "");
    mo_drawing_text(d, text);
    fputs("</text>\n", d->out);
}

mo_status mo_drawing_finish(mo_drawing *d, const char *path, mo_error *err)
{
    mo_output *o = NULL;
    fputs("</svg>\n", d->out);
    const bool written = !ferror(d->out);
    if (fclose(d->out) != 0 || !written) {
        free(d->text);
        return mo_fail(err, MO_ENOMEM, "%s: out of memory for a chart", path);
    }
    mo_status status = mo_output_create(path, d->bytes, &o, err);
    if (status == MO_OK) {
        status = mo_output_append(o, d->text, d->bytes, err);
    }
    free(d->text);
    if (status != MO_OK) {
        mo_output_abort(o);
        return status;
    }
    return mo_output_commit(o, err);
}
