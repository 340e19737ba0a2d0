/* Memory: pages, the lock limit, other limits, NUMA nodes, swapping, and other users. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/doctor/findings.h"
#include "base/textfile.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)GIB;
}

static void look_at_huge_pages(mo_visit *v)
{
    const char *mode = v->machine.huge_pages;
    if (strcmp(mode, "never") == 0) {
        mo_visit_wrong(
            v, "huge_pages", "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
            "Transparent huge pages are off: weights are read through hundreds of thousands of small pages, "
            "which costs up to a third of the speed");
    } else if (strcmp(mode, "unavailable") == 0) {
        mo_visit_wrong(v, "huge_pages", "",
                       "This kernel has no transparent huge pages, or a container hides "
                       "them; without them, reading weights costs up to a third of the speed");
    } else {
        mo_visit_well(v, "huge_pages", "%s", mode);
    }
}

/* Bit 14 of the capabilities (CAP_IPC_LOCK) allows unlimited locking. */
static bool may_lock_all(const char *root)
{
    char status[4096], value[64];
    return mo_textfile_read(status, sizeof status, "%s/proc/self/status", root) &&
           mo_textfile_value(status, "CapEff", value, sizeof value) && (strtoull(value, NULL, 16) >> 14 & 1);
}

/* "Max locked memory         8388608              8388608              bytes" */
static void look_at_locking(mo_visit *v)
{
    char limits[4096], value[128];
    if (!mo_textfile_read(limits, sizeof limits, "%s/proc/self/limits", v->root) ||
        !mo_textfile_value(limits, "Max locked memory", value, sizeof value)) {
        return;
    }
    const bool all = strncmp(value, "unlimited", 9) == 0 || may_lock_all(v->root);
    const uint64_t bytes = strtoull(value, NULL, 10);
    const uint64_t need = v->model_bytes > 0 ? (uint64_t)v->model_bytes : v->machine.ram_total_bytes / 2;
    if (all || bytes >= need) {
        mo_visit_well(v, "locked_memory", all ? "no limit" : "%.1f GiB", gib(bytes));
    } else {
        mo_visit_wrong(
            v, "locked_memory",
            "echo \"$USER - memlock unlimited\" | sudo tee /etc/security/limits.d/moraine.conf   (then log "
            "in "
            "again; in a container: --ulimit memlock=-1)",
            "Only %.1f MiB of memory can be locked: experts in RAM can be "
            "swapped out, and copies to a GPU cannot overlap with CPU work",
            (double)bytes / (double)MIB);
    }
}

static void look_at_limit(mo_visit *v)
{
    const mo_machine_info *m = &v->machine;
    const bool fits = v->model_bytes > 0 && (uint64_t)v->model_bytes + GIB / 2 < m->cgroup_limit_bytes;
    if (!m->cgroup_limit_bytes || m->cgroup_limit_bytes >= m->ram_total_bytes) {
        mo_visit_well(v, "memory_limit", "none");
    } else if (fits) {
        mo_visit_well(v, "memory_limit", "%.1f GiB, enough for the model", gib(m->cgroup_limit_bytes));
    } else {
        mo_visit_wrong(v, "memory_limit",
                       "sudo systemctl set-property --runtime UNIT MemoryMax=infinity "
                       "MemoryHigh=infinity   (for a container: docker update --memory 0 NAME)",
                       "The control group of this process is limited "
                       "to %.1f of the machine's %.1f GiB; the rest "
                       "of the model is read from disk for every token",
                       gib(m->cgroup_limit_bytes), gib(m->ram_total_bytes));
    }
}

static uint64_t meminfo_bytes(const char *meminfo, const char *key)
{
    char value[64];
    return mo_textfile_value(meminfo, key, value, sizeof value) ? strtoull(value, NULL, 10) << 10 : 0;
}

/* The process with the most memory, other than this one. */
static uint64_t largest_process(const char *root, char *name, size_t bytes, long *pid)
{
    char path[512], text[128];
    uint64_t most = 0;
    long self = 0;
    snprintf(path, sizeof path, "%s/proc", root);
    if (mo_textfile_read(text, sizeof text, "%s/self/stat", path)) {
        self = strtol(text, NULL, 10);
    }
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char *end;
        const long number = strtol(e->d_name, &end, 10);
        uint64_t all, pages;
        if (number <= 0 || *end || number == self ||
            !mo_textfile_read(text, sizeof text, "%s/%ld/statm", path, number)) {
            continue;
        }
        all = strtoull(text, &end, 10);
        pages = strtoull(end, NULL, 10);
        if (all && pages > most && mo_textfile_read(text, sizeof text, "%s/%ld/comm", path, number)) {
            most = pages;
            *pid = number;
            snprintf(name, bytes, "%.*s", (int)strcspn(text, "\n"), text);
        }
    }
    if (d) {
        closedir(d);
    }
    return most;
}

static void look_at_others(mo_visit *v)
{
    const mo_machine_info *m = &v->machine;
    char name[64], mend[128];
    long pid = 0;
    const uint64_t held = largest_process(v->root, name, sizeof name, &pid) * m->page_bytes;
    if (m->ram_total_bytes == 0) {
        return;
    }
    if (held > m->ram_total_bytes / 4) {
        snprintf(mend, sizeof mend, "kill %ld   (%s)", pid, name);
        mo_visit_wrong(v, "other_programs", mend,
                       "%s (process %ld) uses %.1f of the machine's %.1f GiB of memory", name, pid, gib(held),
                       gib(m->ram_total_bytes));
    } else {
        mo_visit_well(v, "other_programs", "none uses more than a quarter of the memory");
    }
}

static void look_at_swap(mo_visit *v)
{
    char meminfo[8192];
    if (!mo_textfile_read(meminfo, sizeof meminfo, "%s/proc/meminfo", v->root)) {
        return;
    }
    const uint64_t total = meminfo_bytes(meminfo, "SwapTotal"), left = meminfo_bytes(meminfo, "SwapFree");
    const uint64_t used = total > left ? total - left : 0;
    if (used > GIB || used > v->machine.ram_total_bytes / 10) {
        mo_visit_wrong(
            v, "swap", "sudo swapoff -a && sudo swapon -a",
            "%.1f GiB are swapped out: memory was short, and every page needs a disk read to come back",
            gib(used));
    } else {
        mo_visit_well(v, "swap", "%.1f GiB used", gib(used));
    }
}

static void look_at_nodes(mo_visit *v)
{
    char online[128], maps[4096];
    if (!mo_textfile_read(online, sizeof online, "%s/sys/devices/system/node/has_memory", v->root) &&
        !mo_textfile_read(online, sizeof online, "%s/sys/devices/system/node/online", v->root)) {
        return;
    }
    online[strcspn(online, "\n")] = 0;
    if (!strpbrk(online, "-,")) {
        mo_visit_well(v, "nodes", "one NUMA node");
        return;
    }
    mo_textfile_read(maps, sizeof maps, "%s/proc/self/numa_maps", v->root);
    if (strstr(maps, " interleave")) {
        mo_visit_well(v, "nodes", "memory is interleaved across nodes %s", online);
    } else {
        mo_visit_wrong(v, "nodes", "numactl --interleave=all moraine ...",
                       "Memory is split into several NUMA nodes "
                       "(%s), and a model in one of them is "
                       "read only at the speed of that node",
                       online);
    }
}

static void look_at_overcommit(mo_visit *v)
{
    char text[32];
    if (mo_textfile_read(text, sizeof text, "%s/proc/sys/vm/overcommit_memory", v->root) && text[0] == '2') {
        mo_visit_wrong(v, "overcommit", "sudo sysctl vm.overcommit_memory=0",
                       "The kernel does not overcommit memory (vm.overcommit_memory "
                       "is 2): large models may be refused although they would fit");
    }
}

void mo_visit_memory(mo_visit *visit)
{
    look_at_huge_pages(visit);
    look_at_locking(visit);
    look_at_limit(visit);
    look_at_others(visit);
    look_at_swap(visit);
    look_at_nodes(visit);
    look_at_overcommit(visit);
}
