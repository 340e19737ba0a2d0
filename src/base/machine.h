/* Machine: reads what mo_machine_info (moraine.h) tells. */
#ifndef MO_BASE_MACHINE_H
#define MO_BASE_MACHINE_H

#include "moraine_tools.h"

/* mo_machine_describe() with `root` put before every path of /proc and /sys ("" for the real machine). What
 * comes from instructions and system calls (affinity, features, page size) is the real machine's. */
void mo_machine_read_at(const char *root, mo_machine_info *out);

/* Cores this process may keep busy: its affinity mask, and the processor quota of its cgroups rounded up
 * to whole cores. At least 1. Any thread. */
int mo_machine_cores_usable(const char *root);

#endif
