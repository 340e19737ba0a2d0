/* The processor: instruction sets, cores, their clock, and other users. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/doctor/findings.h"
#include "base/cgroup.h"
#include "base/textfile.h"

/* Reads a file without its trailing newline. */
static bool read_word(char *text, size_t bytes, const char *root, const char *path)
{
    const bool there = mo_textfile_read(text, bytes, "%s%s", root, path);
    text[strcspn(text, "\n")] = 0;
    return there;
}

static void look_at_instructions(mo_visit *v)
{
    if (v->machine.isa[0]) {
        mo_visit_well(v, "instruction_sets", "the kernels can use %s", v->machine.isa);
    } else {
        mo_visit_wrong(
            v, "instruction_sets", "",
            "The processor has none of the instruction sets that the kernels support; they run as plain "
            "C, many times slower. A virtual machine may hide the instruction sets (with QEMU: -cpu host)");
    }
}

static void look_at_cores(mo_visit *v)
{
    const mo_machine_info *m = &v->machine;
    const int quota = mo_cgroup_read(v->root).cpu_millicores;
    if (m->cores_usable >= m->cores_online) {
        mo_visit_well(v, "cores", "all %d are usable", m->cores_online);
    } else if (quota && (quota + 999) / 1000 <= m->cores_usable) {
        mo_visit_wrong(v, "cores",
                       "sudo systemctl set-property --runtime UNIT CPUQuota=   "
                       "(for a container: docker update --cpus 0 NAME)",
                       "This process may use %d of %d cores: its control group has a quota of %.1f",
                       m->cores_usable, m->cores_online, quota / 1000.0);
    } else {
        char mend[64];
        snprintf(mend, sizeof mend, "taskset -cp 0-%d $$", m->cores_online - 1);
        mo_visit_wrong(v, "cores", mend,
                       "This process may use %d of %d cores: its CPU affinity is restricted", m->cores_usable,
                       m->cores_online);
    }
}

/* Drivers that choose the clock themselves call their default "powersave"; their goal is in another file. */
static void look_at_governor(mo_visit *v)
{
    char governor[64], driver[64], aim[64];
    if (!read_word(governor, sizeof governor, v->root,
                   "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")) {
        return; /* a virtual machine, or a fixed clock */
    }
    read_word(driver, sizeof driver, v->root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
    const bool self = strcmp(driver, "intel_pstate") == 0 || strcmp(driver, "amd-pstate-epp") == 0;
    const bool slow = strcmp(governor, "powersave") == 0 || strcmp(governor, "conservative") == 0;
    if (slow && !self) {
        mo_visit_wrong(v, "governor",
                       "echo schedutil | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
                       "The clock of the cores is kept low: the governor is %s", governor);
        return;
    }
    if (self &&
        read_word(aim, sizeof aim, v->root,
                  "/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference") &&
        (strcmp(aim, "power") == 0 || strcmp(aim, "balance_power") == 0)) {
        mo_visit_wrong(v, "governor",
                       "echo balance_performance | sudo tee "
                       "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference",
                       "The clock of the cores is kept low to save energy (%s)", aim);
        return;
    }
    mo_visit_well(v, "governor", "%s", governor);
}

/* On battery, most laptops run at a fraction of their speed. */
static void look_at_power(mo_visit *v)
{
    char path[512], type[32], online[8];
    snprintf(path, sizeof path, "%s/sys/class/power_supply", v->root);
    DIR *d = opendir(path);
    bool mains = false, on = false;
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] != '.' && strlen(e->d_name) < 64 &&
            mo_textfile_read(type, sizeof type, "%s/%s/type", path, e->d_name) &&
            strncmp(type, "Mains", 5) == 0 &&
            mo_textfile_read(online, sizeof online, "%s/%s/online", path, e->d_name)) {
            mains = true;
            on |= online[0] == '1';
        }
    }
    if (d) {
        closedir(d);
    }
    if (mains && !on) {
        mo_visit_wrong(v, "power", "",
                       "The machine runs on battery, which usually lowers its speed; plug it in");
    } else if (mains) {
        mo_visit_well(v, "power", "plugged in");
    }
}

static void look_at_load(mo_visit *v)
{
    char text[128];
    if (!mo_textfile_read(text, sizeof text, "%s/proc/loadavg", v->root)) {
        return;
    }
    const double load = strtod(text, NULL);
    if (load > 0.5 * v->machine.cores_usable) {
        mo_visit_wrong(v, "load", "top -o %CPU",
                       "Other programs keep %.1f cores busy (this machine has %d); every token waits for the "
                       "slowest thread",
                       load, v->machine.cores_usable);
    } else {
        mo_visit_well(v, "load", "other programs use %.1f of %d cores", load, v->machine.cores_usable);
    }
}

void mo_visit_processor(mo_visit *visit)
{
    look_at_instructions(visit);
    look_at_cores(visit);
    look_at_governor(visit);
    look_at_power(visit);
    look_at_load(visit);
}
