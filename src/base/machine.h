/* Machine: fills mo_machine_info (moraine.h). */
#ifndef MO_BASE_MACHINE_H
#define MO_BASE_MACHINE_H

#include "moraine_tools.h"

/* mo_machine_describe() with `root` as a prefix of all paths in /proc and /sys ("" for the real machine).
   Results of instructions and system calls (affinity, features, page size) are the real machine's. */
void mo_machine_read_at(const char *root, mo_machine_info *out);

/* The number of cores that this process may use: its affinity mask, limited by the CPU quota of its cgroups,
   rounded up. At least 1. Any thread. */
int mo_machine_cores_usable(const char *root);

#endif
