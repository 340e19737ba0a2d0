/* Plan chart: what of a model is where, as a picture. */
#ifndef CLI_PLAN_CHART_H
#define CLI_PLAN_CHART_H

#include <moraine_server.h>

/* Draws the plan for the model at `path` into the file `svg`. False after saying what went wrong. */
bool cli_plan_chart(const char *path, const mo_plan_report *r, const char *svg);

#endif
