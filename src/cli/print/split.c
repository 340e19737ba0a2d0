#include "cli/print/split.h"

#include <stddef.h>
#include <stdio.h>

static const struct {
    const char *name;
    size_t at;
} parts[CLI_SPLIT_PARTS] = {
    {"attention", offsetof(mo_split_report, attention)}, {"products", offsetof(mo_split_report, products)},
    {"experts", offsetof(mo_split_report, experts)},     {"routing", offsetof(mo_split_report, routing)},
    {"other", offsetof(mo_split_report, other)},         {"copies", offsetof(mo_split_report, copies)},
    {"host", offsetof(mo_split_report, host)},
};

static double *part_of(mo_split_report *s, int i)
{
    return (double *)(void *)((char *)s + parts[i].at);
}

static double seconds_of(const mo_split_report *s, int i)
{
    return *(const double *)(const void *)((const char *)s + parts[i].at);
}

void cli_split_add(mo_split_report *sum, const mo_split_report *pass)
{
    sum->steps += pass->steps;
    sum->tokens += pass->tokens;
    sum->seconds += pass->seconds;
    for (int i = 0; i < CLI_SPLIT_PARTS; i++) {
        *part_of(sum, i) += seconds_of(pass, i);
    }
}

void cli_split_print(const mo_split_report *s)
{
    const char *before = "  time spent    ";
    if (s->seconds <= 0.0) {
        return;
    }
    for (int i = 0; i < CLI_SPLIT_PARTS; i++) {
        if (seconds_of(s, i) > 0.0) {
            printf("%s%s %.1f %%", before, parts[i].name, 100.0 * seconds_of(s, i) / s->seconds);
            before = ", ";
        }
    }
    printf("\n");
}

json_t *cli_split_json(const mo_split_report *s)
{
    if (s->seconds <= 0.0) {
        return json_null();
    }
    json_t *o = json_pack("{s:I,s:I,s:f}", "steps", (json_int_t)s->steps, "tokens", (json_int_t)s->tokens,
                          "seconds", s->seconds);
    for (int i = 0; i < CLI_SPLIT_PARTS; i++) {
        json_object_set_new(o, parts[i].name, json_real(seconds_of(s, i)));
    }
    return o;
}

void cli_split_pieces(const mo_split_report *s, mo_bar_piece *pieces)
{
    for (int i = 0; i < CLI_SPLIT_PARTS; i++) {
        pieces[i] =
            (mo_bar_piece){parts[i].name, s->seconds > 0.0 ? 100.0 * seconds_of(s, i) / s->seconds : 0.0};
    }
}
