/* Plan for hosts: the output of moraine plan --hosts. */
#ifndef MO_CLI_PLAN_HOSTS_H
#define MO_CLI_PLAN_HOSTS_H

#include <moraine_tools.h>

#include <stdbool.h>

/* Plans and prints; returns the exit code. */
int cli_plan_hosts(const char *path, const char *hosts, const char *divide, const mo_model_options *ask,
                   bool json);

#endif
