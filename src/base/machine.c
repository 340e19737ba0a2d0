#include "base/machine.h"
#include "base/growing.h"

#include "base/cgroup.h"
#include "base/host.h"
#include "base/textfile.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The kernel rejects masks smaller than its own, so tries growing ones. */
static int cores_in_affinity(void)
{
    for (int cores = 1024; cores <= 1 << 20; cores *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cores);
        if (!set) {
            break;
        }
        size_t bytes = CPU_ALLOC_SIZE((size_t)cores);
        int failed = sched_getaffinity(0, bytes, set) ? errno : 0;
        int count = failed ? 0 : CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
        if (count > 0) {
            return count;
        }
        if (failed != EINVAL) {
            break;
        }
    }
    return 0;
}

int mo_machine_cores_usable(const char *root)
{
    int cores = cores_in_affinity();
    if (cores < 1) {
        cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    int millicores = mo_cgroup_read(root).cpu_millicores;
    int quota = millicores / 1000 + (millicores % 1000 != 0);
    if (quota > 0 && quota < cores) {
        cores = quota;
    }
    return cores > 0 ? cores : 1;
}

/* Names of Arm cores; the kernel only gives numbers. */
static void read_arm_model(const char *cpuinfo, char *model, size_t bytes)
{
    static const struct {
        unsigned long part;
        const char *name;
    } cores[] = {{0xd08, "Cortex-A72"},  {0xd0b, "Cortex-A76"},    {0xd0c, "Neoverse-N1"},
                 {0xd40, "Neoverse-V1"}, {0xd41, "Cortex-A78"},    {0xd49, "Neoverse-N2"},
                 {0xd4f, "Neoverse-V2"}, {0xd83, "Neoverse-V3AE"}, {0xd84, "Neoverse-V3"},
                 {0xd8e, "Neoverse-N3"}};
    char implementer[32] = "?", part[32] = "?";
    mo_textfile_value(cpuinfo, "CPU implementer", implementer, sizeof implementer);
    mo_textfile_value(cpuinfo, "CPU part", part, sizeof part);
    if (part[0] == '?') {
        snprintf(model, bytes, "unknown");
        return;
    }
    for (size_t i = 0; i < sizeof cores / sizeof cores[0]; i++) {
        if (strtoul(implementer, NULL, 16) == 0x41 && strtoul(part, NULL, 16) == cores[i].part) {
            snprintf(model, bytes, "Arm %s", cores[i].name);
            return;
        }
    }
    snprintf(model, bytes, "Arm implementer %s part %s", implementer, part);
}

static void read_model(const char *root, mo_machine_info *out)
{
    char cpuinfo[4096]; /* the first core's paragraph */
    mo_textfile_read(cpuinfo, sizeof cpuinfo, "%s/proc/cpuinfo", root);
    if (!mo_textfile_value(cpuinfo, "model name", out->cpu_model, sizeof out->cpu_model)) {
        read_arm_model(cpuinfo, out->cpu_model, sizeof out->cpu_model);
    }
}

static void append_word(char *text, size_t bytes, bool wanted, const char *word)
{
    size_t used = strlen(text);
    if (wanted) {
        snprintf(text + used, bytes - used, "%s%s", used ? " " : "", word);
    }
}

static void read_isa(mo_machine_info *out)
{
    const mo_cpu *cpu = mo_host_cpu();
    append_word(out->isa, sizeof out->isa, cpu->avx2, "avx2");
    append_word(out->isa, sizeof out->isa, cpu->avx_vnni, "avx-vnni");
    append_word(out->isa, sizeof out->isa, cpu->avx512_vnni, "avx512-vnni");
    append_word(out->isa, sizeof out->isa, cpu->amx_int8, "amx-int8");
    append_word(out->isa, sizeof out->isa, cpu->dotprod, "dotprod");
    append_word(out->isa, sizeof out->isa, cpu->i8mm, "i8mm");
}

/* A size as written by the kernel: 48K, 2048K, 300M. 0 for other text. */
static uint64_t parse_size(const char *text)
{
    char *end;
    uint64_t n = strtoull(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    return n <= UINT64_MAX >> shift ? n << shift : 0;
}

static void read_caches(const char *root, mo_machine_info *out)
{
    uint64_t *bytes[3] = {&out->l1d_bytes, &out->l2_bytes, &out->l3_bytes};
    for (int i = 0; i < 16; i++) {
        char level[16], type[32], size[32];
        if (!mo_textfile_read(level, sizeof level, "%s/sys/devices/system/cpu/cpu0/cache/index%d/level", root,
                              i)) {
            break;
        }
        mo_textfile_read(type, sizeof type, "%s/sys/devices/system/cpu/cpu0/cache/index%d/type", root, i);
        mo_textfile_read(size, sizeof size, "%s/sys/devices/system/cpu/cpu0/cache/index%d/size", root, i);
        int n = level[0] - '1';
        if (n >= 0 && n < 3 && strncmp(type, "Instruction", 11) != 0) {
            *bytes[n] = parse_size(size);
        }
    }
    static const int names[3] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    for (int n = 0; n < 3; n++) {
        long answer = *bytes[n] == 0 ? sysconf(names[n]) : 0;
        if (answer > 0) {
            *bytes[n] = (uint64_t)answer;
        }
    }
}

static uint64_t meminfo_bytes(const char *meminfo, const char *key)
{
    char value[64];
    uint64_t kib = mo_textfile_value(meminfo, key, value, sizeof value) ? strtoull(value, NULL, 10) : 0;
    return kib <= UINT64_MAX >> 10 ? kib << 10 : 0;
}

static void read_memory(const char *root, mo_machine_info *out)
{
    char meminfo[8192];
    mo_textfile_read(meminfo, sizeof meminfo, "%s/proc/meminfo", root);
    out->ram_total_bytes = meminfo_bytes(meminfo, "MemTotal");
    out->ram_available_bytes = meminfo_bytes(meminfo, "MemAvailable");
    out->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    mo_cgroup group = mo_cgroup_read(root);
    out->cgroup_limit_bytes = group.memory_limit_bytes;
    if (group.memory_limit_bytes && group.memory_available_bytes < out->ram_available_bytes) {
        out->ram_available_bytes = group.memory_available_bytes;
    }
}

/* The file lists the modes with the current one in brackets: "always [madvise] never". */
static void read_huge_pages(const char *root, mo_machine_info *out)
{
    char text[128];
    mo_textfile_read(text, sizeof text, "%s/sys/kernel/mm/transparent_hugepage/enabled", root);
    char *begin = strchr(text, '['), *end = begin ? strchr(begin, ']') : NULL;
    snprintf(out->huge_pages, sizeof out->huge_pages, "%.*s", end ? (int)(end - begin - 1) : 11,
             end ? begin + 1 : "unavailable");
    mo_textfile_read(text, sizeof text, "%s/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", root);
    out->huge_page_bytes = strtoull(text, NULL, 10);
}

void mo_machine_read_at(const char *root, mo_machine_info *out)
{
    memset(out, 0, sizeof *out);
    read_model(root, out);
    read_isa(out);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    out->cores_online = online > 0 ? (int)online : 1;
    out->cores_usable = mo_machine_cores_usable(root);
    read_caches(root, out);
    read_memory(root, out);
    read_huge_pages(root, out);
}

void mo_machine_describe(mo_machine_info *out, size_t size)
{
    mo_machine_info info;
    mo_machine_read_at("", &info);
    mo_report_write(out, size, &info, sizeof info);
}
