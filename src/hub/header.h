/* Header: a plan for a model of which nothing is here yet: its header is fetched, some megabytes, and put into files of the model's size
 * that are holes otherwise. */
#ifndef HUB_HEADER_H
#define HUB_HEADER_H

#include "hub/web.h"
#include "moraine_server.h"

typedef struct hub_header_file {
    const char *name; /* without folders */
    const char *url;
    int64_t bytes;
} hub_header_file;

/* directory: on whose disk the holes are made, in a folder that is removed again; it is made if need be. */
mo_status hub_header_plan(const hub_web *web, const char *directory, const hub_header_file *files, int count,
                          mo_plan_report *report, mo_error *err);

#endif
