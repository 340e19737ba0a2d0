/* What keeps models slow, on machines made of files: each finding is there when its cause is, with a command that fixes it, and
 * not when it is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "check.h"
#include "folder.h"
#include "moraine_tools.h"

static void put(const char *path, const char *text)
{
    assert_int_equal(folder_put(path, text), 0);
}

/* A machine on which nothing is wrong, as far as files say. */
static int make_machine(void **state)
{
    if (folder_make(state) != 0) {
        return -1;
    }
    setenv("XDG_CACHE_HOME", folder, 1);
    put("/proc/cpuinfo", "model name : Test\n");
    put("/proc/meminfo",
        "MemTotal: 33554432 kB\nMemAvailable: 30000000 kB\nSwapTotal: 8388608 kB\nSwapFree: 8388608 kB\n");
    put("/proc/loadavg", "0.00 0.01 0.05 1/100 999\n");
    put("/proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units\n"
                             "Max locked memory         unlimited            unlimited            bytes\n");
    put("/proc/self/stat", "77 (moraine) R 1\n");
    put("/proc/self/status", "Name: moraine\nCapEff:\t0000000000000000\n");
    put("/proc/sys/kernel/io_uring_disabled", "0\n");
    put("/proc/sys/vm/overcommit_memory", "0\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil\n");
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n");
    put("/sys/devices/system/node/has_memory", "0\n");
    put("/sys/class/power_supply/AC/type", "Mains\n");
    put("/sys/class/power_supply/AC/online", "1\n");
    put("/moraine/rates.json", "{\"ram_bytes_s\": 2e10, \"disk_bytes_s\": 3e9}\n");
    return 0;
}

/* The finding of that name, or one whose name is NULL; fails when there is more than one that is wrong. */
static mo_finding_info look(const char *name, const char *model, mo_doctor **doctor)
{
    mo_error err;
    mo_doctor_options o = mo_doctor_options_default();
    mo_finding_info f, found = {0};
    o.root = folder;
    o.model = model;
    o.device = "auto";
    check_status(mo_doctor_open(&o, doctor, &err), &err);
    for (int i = 0; mo_doctor_finding(*doctor, i, &f, sizeof f); i++) {
        assert_true(f.what[0] != 0);
        assert_true(f.wrong || f.mend[0] == 0);
        if (f.wrong && strcmp(f.name, name) != 0 && strcmp(f.name, "instruction_sets") != 0 &&
            strcmp(f.name, "cores") != 0 && strcmp(f.name, "file_system") != 0) { /* the real machine's */
            fail_msg("%s is wrong as well: %s", f.name, f.what);
        }
        if (strcmp(f.name, name) == 0) {
            found = f;
        }
    }
    return found;
}

static void check_wrong(const char *name, const char *model, const char *what, const char *mend)
{
    mo_doctor *doctor;
    const mo_finding_info f = look(name, model, &doctor);
    if (!f.name || !f.wrong || !strstr(f.what, what) || !strstr(f.mend, mend)) {
        fail_msg("%s: %s; %s; wanted: %s; %s", name, f.what ? f.what : "-", f.mend ? f.mend : "-", what,
                 mend);
    }
    mo_doctor_close(doctor);
}

static void check_well(const char *name)
{
    mo_doctor *doctor;
    const mo_finding_info f = look(name, NULL, &doctor);
    if (f.name && f.wrong) {
        fail_msg("%s is wrong: %s", name, f.what);
    }
    mo_doctor_close(doctor);
}

static void a_good_machine_has_no_findings(void **state)
{
    (void)state;
    check_well("nothing");
}

static void huge_pages(void **state)
{
    (void)state;
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    check_wrong("huge_pages", NULL, "are off", "echo madvise | sudo tee");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
    check_well("huge_pages");
}

static void locked_memory(void **state)
{
    (void)state;
    put("/proc/self/limits", "Max locked memory         8388608              8388608              bytes\n");
    check_wrong("locked_memory", NULL, "Only 8.0 MiB", "memlock unlimited");
    put("/proc/self/status", "CapEff:\t0000000000004000\n"); /* may lock what it likes */
    check_well("locked_memory");
}

static void governor(void **state)
{
    (void)state;
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    check_wrong("governor", NULL, "governor is powersave", "scaling_governor");
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n");
    put("/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "balance_performance\n");
    check_well("governor");
    put("/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "power\n");
    check_wrong("governor", NULL, "save energy", "energy_performance_preference");
}

static void power_and_load(void **state)
{
    (void)state;
    put("/sys/class/power_supply/AC/online", "0\n");
    check_wrong("power", NULL, "battery", "");
    put("/sys/class/power_supply/AC/online", "1\n");
    put("/proc/loadavg", "700.00 0.01 0.05 1/100 999\n");
    check_wrong("load", NULL, "700.0 cores busy", "top");
}

static void limits_of_control_groups(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/job\n");
    put("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/job/memory.max", "2147483648\n");
    check_wrong("memory_limit", NULL, "2.0 of the machine's 32.0 GiB", "MemoryMax=infinity");
    mo_doctor *doctor;
    assert_false(look("memory_limit", MO_TEST_MODEL, &doctor).wrong); /* it fits */
    mo_doctor_close(doctor);
    put("/sys/fs/cgroup/job/memory.max", "max\n");
    put("/sys/fs/cgroup/job/cpu.max", "50000 100000\n");
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
        check_wrong("cores", NULL, "quota of 0.5", "CPUQuota");
    }
}

static void swapping_and_other_programs(void **state)
{
    (void)state;
    put("/proc/meminfo",
        "MemTotal: 33554432 kB\nMemAvailable: 30000000 kB\nSwapTotal: 8388608 kB\nSwapFree: 4194304 kB\n");
    check_wrong("swap", NULL, "4.0 GiB are swapped out", "swapoff");
    put("/proc/meminfo",
        "MemTotal: 33554432 kB\nMemAvailable: 30000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n");
    put("/proc/77/statm", "9000000 8000000 1\n"); /* ourselves */
    put("/proc/77/comm", "moraine\n");
    check_well("other_programs");
    put("/proc/4242/statm", "9000000 4194304 1\n");
    put("/proc/4242/comm", "browser\n");
    check_wrong("other_programs", NULL, "browser (process 4242)", "kill 4242");
}

static void nodes_and_overcommit(void **state)
{
    (void)state;
    put("/sys/devices/system/node/has_memory", "0-1\n");
    check_wrong("nodes", NULL, "several NUMA nodes (0-1)", "numactl --interleave=all");
    put("/proc/self/numa_maps", "00400000 interleave:0-1 file=/usr/bin/moraine\n");
    check_well("nodes");
    put("/proc/sys/vm/overcommit_memory", "2\n");
    check_wrong("overcommit", NULL, "overcommit_memory is 2", "sysctl");
}

static void reading(void **state)
{
    (void)state;
    put("/proc/sys/kernel/io_uring_disabled", "2\n");
    check_wrong("io_uring", NULL, "io_uring_disabled is 2", "sudo sysctl kernel.io_uring_disabled=0");
    put("/proc/sys/kernel/io_uring_disabled", "0\n");
    put("/moraine/rates.json", "{\"ram_bytes_s\": 2e10, \"disk_bytes_s\": 2e8}\n");
    check_wrong("rates", NULL, "0.20 GB/s", "");
    assert_int_equal(remove(in_folder("moraine/rates.json")), 0);
    check_wrong("rates", NULL, "has not been measured", "moraine probe");
}

/* What the model's file is on: numbers of its device are those of the real machine. */
static void the_models_disk(void **state)
{
    (void)state;
    struct stat st;
    char path[200], text[200];
    assert_int_equal(stat(MO_TEST_MODEL, &st), 0);
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/queue/rotational", major(st.st_dev), minor(st.st_dev));
    put(path, "1\n");
    check_wrong("disk", MO_TEST_MODEL, "hard disk", "cp '");
    put(path, "0\n");
    snprintf(text, sizeof text, "1 2 %u:%u / / rw - nfs4 server:/models rw\n", major(st.st_dev),
             minor(st.st_dev));
    put("/proc/self/mountinfo", text);
    check_wrong("file_system", MO_TEST_MODEL, "network file system (nfs4)", "cp '");
    snprintf(text, sizeof text, "1 2 %u:%u / / rw - tmpfs none rw\n", major(st.st_dev), minor(st.st_dev));
    put("/proc/self/mountinfo", text);
    check_wrong("file_system", MO_TEST_MODEL, "in memory (tmpfs)", "mv '");
}

/* There is one in the machine, but nothing here can use it. */
static void a_gpu_that_is_not_used(void **state)
{
    (void)state;
    put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x8086\n");
    put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n");
    check_well("gpu");
    put("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x10de\n");
    put("/sys/bus/pci/devices/0000:02:00.0/class", "0x030200\n");
    mo_doctor *doctor;
    const mo_finding_info f = look("gpu", NULL, &doctor);
    const bool used = !f.wrong; /* this machine has one */
    assert_true(used || strstr(f.what, "The GPU is not used: "));
    mo_doctor_close(doctor);
    if (!used) {
        return; /* two things would be wrong now */
    }
    put("/sys/bus/pci/devices/0000:02:00.0/current_link_width", "4\n");
    put("/sys/bus/pci/devices/0000:02:00.0/max_link_width", "16\n");
    check_wrong("gpu_link", NULL, "4 of its 16 PCIe lanes", "");
}

static void a_model_that_is_none(void **state)
{
    (void)state;
    mo_error err;
    mo_doctor *doctor;
    mo_doctor_options o = mo_doctor_options_default();
    o.model = in_folder("nothing.gguf");
    assert_int_equal(mo_doctor_open(&o, &doctor, &err), MO_ENOENT);
    check_says(&err, "nothing.gguf");
    assert_null(doctor);
}

/* Files of strangers: nothing but nonsense in them. */
static void nonsense(void **state)
{
    (void)state;
    static const char *const files[] = {"/proc/meminfo",
                                        "/proc/loadavg",
                                        "/proc/self/limits",
                                        "/proc/self/status",
                                        "/proc/self/stat",
                                        "/proc/self/mountinfo",
                                        "/proc/self/cgroup",
                                        "/sys/kernel/mm/transparent_hugepage/enabled",
                                        "/sys/devices/system/node/has_memory",
                                        "/sys/class/power_supply/AC/type",
                                        "/proc/999/statm",
                                        "/proc/999/comm"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put(files[i], "[\\ -9999999999999999999999999 ::: %s%n\n]]]]");
    }
    mo_error err;
    mo_doctor *doctor;
    mo_doctor_options o = mo_doctor_options_default();
    o.root = folder;
    o.model = MO_TEST_MODEL;
    check_status(mo_doctor_open(&o, &doctor, &err), &err);
    mo_doctor_close(doctor);
}

#define ON_A_MACHINE(test) cmocka_unit_test_setup_teardown(test, make_machine, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_A_MACHINE(a_good_machine_has_no_findings),
        ON_A_MACHINE(huge_pages),
        ON_A_MACHINE(locked_memory),
        ON_A_MACHINE(governor),
        ON_A_MACHINE(power_and_load),
        ON_A_MACHINE(limits_of_control_groups),
        ON_A_MACHINE(swapping_and_other_programs),
        ON_A_MACHINE(nodes_and_overcommit),
        ON_A_MACHINE(reading),
        ON_A_MACHINE(the_models_disk),
        ON_A_MACHINE(a_gpu_that_is_not_used),
        ON_A_MACHINE(a_model_that_is_none),
        ON_A_MACHINE(nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
