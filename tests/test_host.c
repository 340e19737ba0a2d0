/* Machine information from made-up /proc and /sys trees, and the host's own primitives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cgroup.h"
#include "base/host.h"
#include "base/machine.h"

#include <fenv.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "folder.h"

static void put(const char *path, const char *text)
{
    assert_int_equal(folder_put(path, text), 0);
}

/* ---- Cgroups ---------------------------------------------------------------------------------- */

static void nothing_known(void **state)
{
    (void)state;
    mo_cgroup g = mo_cgroup_read(folder);
    assert_int_equal(g.memory_limit_bytes, 0);
    assert_int_equal(g.cpu_millicores, 0);
    mo_machine_info m;
    mo_machine_read_at(folder, &m);
    assert_true(m.cores_usable >= 1 && m.cores_usable <= m.cores_online);
    assert_int_equal(m.ram_total_bytes, 0);
    assert_int_equal(m.cgroup_limit_bytes, 0);
    assert_string_equal(m.cpu_model, "unknown");
    assert_string_equal(m.huge_pages, "unavailable");
}

static void v2_nested(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/user.slice/job/inner\n");
    put("/proc/self/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n"
                                "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/user.slice/job/inner/memory.max", "max\n");
    put("/sys/fs/cgroup/user.slice/job/inner/cpu.max", "max 100000\n");
    mo_cgroup g = mo_cgroup_read(folder);
    assert_int_equal(g.memory_limit_bytes, 0);
    assert_int_equal(g.cpu_millicores, 0);
    put("/sys/fs/cgroup/user.slice/job/memory.max", "8589934592\n");
    put("/sys/fs/cgroup/user.slice/job/memory.current", "3221225472\n");
    put("/sys/fs/cgroup/user.slice/job/memory.stat", "anon 1\nfile 5\ninactive_file 1073741824\n"
                                                     "active_file 1073741824\n");
    put("/sys/fs/cgroup/user.slice/memory.max", "17179869184\n");
    put("/sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
    g = mo_cgroup_read(folder);
    assert_int_equal(g.memory_limit_bytes, UINT64_C(8589934592));
    assert_int_equal(g.memory_available_bytes, UINT64_C(7516192768)); /* 8 GiB - (3 - 2) GiB */
    assert_int_equal(g.cpu_millicores, 1500);
    put("/sys/fs/cgroup/user.slice/memory.high", "4294967296\n");
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    g = mo_cgroup_read(folder);
    assert_int_equal(g.memory_limit_bytes, UINT64_C(4294967296));
    assert_int_equal(g.cpu_millicores, 500);
    assert_int_equal(mo_machine_cores_usable(folder), 1);
}

/* A container that sees only its own part of the hierarchy. */
static void v2_container(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/docker/abc/web\n");
    put("/proc/self/mountinfo", "31 23 0:28 /docker/abc /sys/fs/my\\040groups rw - cgroup2 cgroup rw\n");
    put("/sys/fs/my groups/web/memory.max", "2000000000\n");
    put("/sys/fs/my groups/memory.max", "1000000000\n");
    put("/sys/fs/memory.max", "5\n"); /* above the mount: not a group */
    assert_int_equal(mo_cgroup_read(folder).memory_limit_bytes, 1000000000);
    put("/proc/self/cgroup", "0::/../elsewhere\n");
    assert_int_equal(mo_cgroup_read(folder).memory_limit_bytes, 1000000000);
    put("/proc/self/cgroup", "0::/docker/abcdef\n"); /* a name that only begins like the mount's */
    assert_int_equal(mo_cgroup_read(folder).memory_limit_bytes, 1000000000);
}

static void v1_nested(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "9:name=systemd:/\n5:cpuacct,cpu:/box\n4:memory:/box/a\n0::/\n");
    put("/proc/self/mountinfo", "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpuacct,cpu\n"
                                "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                                "34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/box/a/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    mo_cgroup g = mo_cgroup_read(folder);
    assert_int_equal(g.memory_limit_bytes, 0);
    assert_int_equal(g.cpu_millicores, 0);
    put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "6000000000\n");
    put("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1000000000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "400000\n");
    g = mo_cgroup_read(folder);
    assert_int_equal(g.memory_limit_bytes, UINT64_C(6000000000));
    assert_int_equal(g.memory_available_bytes, UINT64_C(5000000000));
    assert_int_equal(g.cpu_millicores, 4000);
    put("/sys/fs/cgroup/memory/box/a/memory.stat", "cache 1\nhierarchical_memory_limit 3000000000\n");
    assert_int_equal(mo_cgroup_read(folder).memory_limit_bytes, UINT64_C(3000000000));
}

/* Files that make no sense are no limits, and no crash. */
static void nonsense(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "garbage\n::\n0:\n0::\n:::::\n4:memory\n");
    put("/proc/self/mountinfo", "1 2 3\n\n - \n31 23 0:28 / /sys/fs/cgroup rw - \n"
                                "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 x y\n");
    put("/sys/fs/cgroup/memory.max", "-5 apples\n");
    put("/sys/fs/cgroup/cpu.max", "100000 0\n");
    put("/proc/meminfo", "MemTotal\nMemAvailable: x kB");
    put("/proc/cpuinfo", "model name");
    put("/sys/devices/system/cpu/cpu0/cache/index0/level", "9\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "]always[\n");
    mo_machine_info m;
    mo_machine_read_at(folder, &m);
    assert_int_equal(m.cgroup_limit_bytes, 0);
    assert_int_equal(m.ram_total_bytes, 0);
    assert_string_equal(m.huge_pages, "unavailable");
    char long_path[6000] = "0::/";
    memset(long_path + 4, 'x', sizeof long_path - 5);
    put("/proc/self/cgroup", long_path);
    assert_int_equal(mo_cgroup_read(folder).memory_limit_bytes, 0);
}

/* ---- Machine ---------------------------------------------------------------------------------- */

static void machine_tree(void **state)
{
    (void)state;
    put("/proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 2100.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n");
    put("/proc/meminfo", "MemTotal:       16384 kB\nMemFree:   1 kB\nMemAvailable:    8192 kB\n");
    put("/sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
    put("/sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n");
    put("/sys/devices/system/cpu/cpu0/cache/index0/size", "64K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index1/level", "1\n");
    put("/sys/devices/system/cpu/cpu0/cache/index1/type", "Instruction\n");
    put("/sys/devices/system/cpu/cpu0/cache/index1/size", "32K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index2/level", "2\n");
    put("/sys/devices/system/cpu/cpu0/cache/index2/type", "Unified\n");
    put("/sys/devices/system/cpu/cpu0/cache/index2/size", "1024K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index3/level", "3\n");
    put("/sys/devices/system/cpu/cpu0/cache/index3/type", "Unified\n");
    put("/sys/devices/system/cpu/cpu0/cache/index3/size", "32M\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
    mo_machine_info m;
    mo_machine_read_at(folder, &m);
    assert_string_equal(m.cpu_model, "Arm Neoverse-V1");
    assert_int_equal(m.ram_total_bytes, 16 << 20);
    assert_int_equal(m.ram_available_bytes, 8 << 20);
    assert_int_equal(m.l1d_bytes, 64 << 10);
    assert_int_equal(m.l2_bytes, 1 << 20);
    assert_int_equal(m.l3_bytes, 32 << 20);
    assert_string_equal(m.huge_pages, "madvise");
    assert_int_equal(m.huge_page_bytes, 2 << 20);
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Quartz 9 @ 2 GHz\n");
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "4194304\n"); /* no mountinfo: the usual place */
    put("/sys/fs/cgroup/memory.current", "1048576\n");
    mo_machine_read_at(folder, &m);
    assert_string_equal(m.cpu_model, "Quartz 9 @ 2 GHz");
    assert_int_equal(m.cgroup_limit_bytes, 4 << 20);
    assert_int_equal(m.ram_available_bytes, 3 << 20);
}

static void this_machine(void **state)
{
    (void)state;
    mo_machine_info m;
    mo_machine_describe(&m, sizeof m);
    assert_true(m.cores_online >= 1 && m.cores_usable >= 1);
    assert_true(m.ram_total_bytes >= m.ram_available_bytes && m.ram_available_bytes > 0);
    assert_true(m.page_bytes >= 4096 && m.cpu_model[0]);
    print_message(
        "%s, %s; %d of %d cores; L1d %ju L2 %ju L3 %ju; RAM %ju MiB, %ju available, cgroup %ju; %s\n",
        m.cpu_model, m.isa, m.cores_usable, m.cores_online, (uintmax_t)m.l1d_bytes, (uintmax_t)m.l2_bytes,
        (uintmax_t)m.l3_bytes, (uintmax_t)m.ram_total_bytes >> 20, (uintmax_t)m.ram_available_bytes >> 20,
        (uintmax_t)m.cgroup_limit_bytes >> 20, m.huge_pages);
}

/* ---- Host ------------------------------------------------------------------------------------- */

/* What we report must agree with what the compiler's run time found. */
static void features(void **state)
{
    (void)state;
    const mo_cpu *cpu = mo_host_cpu();
    assert_ptr_equal(cpu, mo_host_cpu());
#if defined(__x86_64__)
    assert_int_equal(cpu->avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                    __builtin_cpu_supports("bmi2"));
#if !defined(__clang__) /* does not know the name */
    assert_int_equal(cpu->avx_vnni, cpu->avx2 && __builtin_cpu_supports("avxvnni"));
#endif
    assert_int_equal(cpu->avx512_vnni,
                     __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
                         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                         __builtin_cpu_supports("avx512vl"));
    assert_false(cpu->dotprod || cpu->i8mm);
#else
    assert_false(cpu->avx2 || cpu->avx_vnni || cpu->avx512_vnni || cpu->amx_int8);
#endif
}

static void float_mode(void **state)
{
    (void)state;
    volatile float tiny = 0x1p-140f, half = 0.5f, one = 1.0f, bit = 0x1.8p-24f;
    fesetround(FE_DOWNWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
    assert_true(tiny * half == 0.0f);
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode | 1u << 24));
    assert_true(tiny * half == 0.0f);
#endif
    assert_true(one + bit == 1.0f);
    mo_host_float_mode();
    assert_true(tiny * half == 0x1p-141f);
    assert_true(one + bit == 1.0f + 0x1p-23f);
}

static void huge_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4096, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 7 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p = mo_host_alloc_huge(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (2 << 20), 0);
        if (sizes[i]) {
            assert_true(p[0] == 0 && p[sizes[i] - 1] == 0);
            memset(p, 0xa5, sizes[i]);
        }
        mo_host_free_huge(p, sizes[i]);
    }
    assert_null(mo_host_alloc_huge(SIZE_MAX));
    assert_null(mo_host_alloc_huge(SIZE_MAX - (3 << 20)));
    mo_host_free_huge(NULL, 5);
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

/* The last-level caches that the system names. */
static void last_level_cache(void **state)
{
    (void)state;
    const int64_t bytes = mo_host_cache_bytes();
    assert_true(bytes >= 0 && bytes % 1024 == 0);
    if (access("/sys/devices/system/cpu/cpu0/cache/index0/size", R_OK) == 0) {
        assert_true(bytes >= 8192);
    }
    assert_true(bytes >= sysconf(_SC_LEVEL3_CACHE_SIZE) || sysconf(_SC_LEVEL3_CACHE_SIZE) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_TREE(nothing_known),
        IN_TREE(v2_nested),
        IN_TREE(v2_container),
        IN_TREE(v1_nested),
        IN_TREE(nonsense),
        IN_TREE(machine_tree),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(features),
        cmocka_unit_test(float_mode),
        cmocka_unit_test(huge_memory),
        cmocka_unit_test(last_level_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
