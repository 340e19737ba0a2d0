/* Plan chart: a chart of where the parts of a model are. */
#ifndef CLI_PLAN_CHART_H
#define CLI_PLAN_CHART_H

#include <moraine_server.h>

/* Draws the plan for the model at `path` into the file `svg`. False after printing the error. */
bool cli_plan_chart(const char *path, const mo_plan_report *r, const char *svg);

#endif
