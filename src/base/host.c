#include "base/host.h"

#include "base/log.h"
#include "base/textfile.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#define HUGE_BYTES ((size_t)2 << 20)

/* ---- Features --------------------------------------------------------------------------------- */

static mo_cpu host_cpu; /* written once, under cpu_once */
static pthread_once_t cpu_once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)

#define BIT(word, n) (((word) >> (n)) & 1)

/* The registers that the operating system saves; a feature must not be used without its registers. */
static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Tile registers are large, so Linux provides them only on request. Threads started later have them too. */
static bool ask_for_tiles(void)
{
#ifdef SYS_arch_prctl
    const long request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}

static void read_features(void)
{
    uint32_t a, b, c, d, a7, b7, c7, d7;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !BIT(c, 27) || !__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7)) {
        return;
    }
    uint64_t saved = saved_registers();
    bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xe6) == 0xe6, tmm = (saved & 0x60000) == 0x60000;
    bool fma = BIT(c, 12), avx = BIT(c, 28), f16c = BIT(c, 29);
    host_cpu.avx2 = ymm && avx && fma && f16c && BIT(b7, 5) && BIT(b7, 8);
    uint32_t a71 = 0, b71, c71, d71; /* older processors do not have this leaf */
    if (a7 >= 1) {
        __cpuid_count(7, 1, a71, b71, c71, d71);
    }
    host_cpu.avx_vnni = host_cpu.avx2 && BIT(a71, 4);
    host_cpu.avx512_vnni = host_cpu.avx2 && zmm && BIT(b7, 16) && BIT(b7, 17) && BIT(b7, 30) && BIT(b7, 31) &&
                           BIT(c7, 1) && BIT(c7, 11);
    host_cpu.amx_int8 = host_cpu.avx512_vnni && tmm && BIT(d7, 24) && BIT(d7, 25) && ask_for_tiles();
}

#elif defined(__aarch64__)

static void read_features(void)
{
    const unsigned long hwcap_asimddp = 1ul << 20, hwcap2_i8mm = 1ul << 13;
    host_cpu.dotprod = (getauxval(AT_HWCAP) & hwcap_asimddp) != 0;
    host_cpu.i8mm = host_cpu.dotprod && (getauxval(AT_HWCAP2) & hwcap2_i8mm) != 0;
}

#else

static void read_features(void)
{
}

#endif

const mo_cpu *mo_host_cpu(void)
{
    pthread_once(&cpu_once, read_features);
    return &host_cpu;
}

/* ---- Floating point --------------------------------------------------------------------------- */

void mo_host_float_mode(void)
{
#if defined(__x86_64__)
    const unsigned wrong = 0x8000 | 0x6000 | 0x0040; /* flush to zero, rounding, denormals are zero */
    _mm_setcsr(_mm_getcsr() & ~wrong);
#elif defined(__aarch64__)
    /* Default NaN, flush to zero, rounding, flush to zero of halves, and the three bits of FEAT_AFP. */
    const uint64_t wrong = UINT64_C(1) << 25 | 1u << 24 | 3u << 22 | 1u << 19 | 7u;
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    if (mode & wrong) {
        __asm__ volatile("msr fpcr, %0" : : "r"(mode & ~wrong) : "memory");
    }
#endif
}

/* ---- Huge pages ------------------------------------------------------------------------------- */

static void warn_small_pages(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said)) {
        mo_log(MO_LOG_WARN, "host",
               "transparent huge pages are off, weights will be read more slowly; to turn them on: "
               "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    }
}

/* Bytes of the largest cache that a processor uses; 0 where the system does not say, or another processor counts it. */
static int64_t largest_cache(int cpu)
{
    int64_t most = 0;
    char text[64];
    for (int i = 0;
         mo_textfile_read(text, sizeof text, "/sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu, i);
         i++) {
        char *unit;
        const long long size = strtoll(text, &unit, 10);
        const int64_t bytes = size * (*unit == 'M' ? 1 << 20 : *unit == 'K' ? 1 << 10 : 1);
        if (bytes > most &&
            mo_textfile_read(text, sizeof text, "/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list",
                             cpu, i)) {
            most = strtol(text, NULL, 10) == cpu ? bytes : 0;
        }
    }
    return most;
}

int64_t mo_host_cache_bytes(void)
{
    int64_t all = 0;
    for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); cpu++) {
        all += largest_cache((int)cpu);
    }
    return all;
}

/* The bytes that an allocation of `bytes` actually maps; 0: failed. */
static size_t mapped_bytes(size_t bytes)
{
    return bytes > SIZE_MAX - 2 * HUGE_BYTES ? 0
           : bytes                           ? (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES
                                             : HUGE_BYTES;
}

void *mo_host_alloc_huge(size_t bytes)
{
    size_t size = mapped_bytes(bytes);
    if (size == 0) {
        return NULL;
    }
    unsigned char *raw =
        mmap(NULL, size + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
        return NULL;
    }
    size_t before = (HUGE_BYTES - (uintptr_t)raw % HUGE_BYTES) % HUGE_BYTES;
    if (before) {
        munmap(raw, before);
    }
    munmap(raw + before + size, HUGE_BYTES - before);
    char mode[64];
    if (madvise(raw + before, size, MADV_HUGEPAGE) != 0 ||
        (mo_textfile_read(mode, sizeof mode, "/sys/kernel/mm/transparent_hugepage/enabled") &&
         strstr(mode, "[never]"))) {
        warn_small_pages();
    }
    return raw + before;
}

void mo_host_touch(void *memory, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile unsigned char *at = memory;
    for (size_t i = 0; i < bytes; i += page) {
        const unsigned char byte = at[i];
        at[i] = byte;
    }
}

void mo_host_discard(void *memory, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)memory;
    const uintptr_t first = (at + page - 1) / page * page, end = (at + bytes) / page * page;
    if (first < end) {
        /* locked memory is not discarded, which does no harm */
        madvise((char *)memory + (first - at), end - first, MADV_DONTNEED);
    }
}

void mo_host_free_huge(void *memory, size_t bytes)
{
    if (memory) {
        munmap(memory, mapped_bytes(bytes));
    }
}
