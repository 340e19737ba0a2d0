/* The disk: however bytes come, in whatever order, they are the file's bytes, or the read says why not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "check.h"
#include "counted_memory.h"
#include "disk/choice.h"
#include "plan/probe/probe.h"
#include "random.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- Two files, the second of an odd size, beside the program: tmpfs has no direct reads ---- */

enum { FILES = 2, PIECE = 64 << 10, MOST = 700000, SLOTS = 16 };
static const int64_t sizes[FILES] = {(24 << 20) + 8192, (3 << 20) + 123};
static char paths[FILES][64];
static const char *const path_list[FILES] = {paths[0], paths[1]};
static uint8_t *content[FILES];
static char no_direct[1100], no_uring[1100]; /* why, or "" */
static uint8_t *arena;                       /* SLOTS places of PLACE bytes */
#define PLACE ((size_t)(MOST + 3 * MO_DISK_ALIGN) / MO_DISK_ALIGN * MO_DISK_ALIGN)
static uint8_t blank[PLACE]; /* how places look before */

static void write_file(const char *path, const uint8_t *bytes, int64_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, (size_t)size, f), size);
    assert_int_equal(fclose(f), 0);
}

static void nap_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static mo_disk *open_disk(const mo_disk_options *options)
{
    mo_disk *disk;
    mo_error err;
    if (mo_disk_open(path_list, FILES, options, &disk, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return disk;
}

static void find_methods(void)
{
    mo_disk *disk;
    mo_error err;
    const mo_disk_options direct = {.io = MO_IO_DIRECT, .plain = true};
    if (mo_disk_open(path_list, FILES, &direct, &disk, &err) == MO_EUNSUPPORTED) {
        snprintf(no_direct, sizeof no_direct, "%s", err.detail);
    } else {
        mo_disk_close(disk);
    }
    const mo_disk_options uring = {.io = MO_IO_CACHED, .uring = true};
    if (mo_disk_open(path_list, FILES, &uring, &disk, &err) == MO_EUNSUPPORTED) {
        snprintf(no_uring, sizeof no_uring, "%s", err.detail);
    } else {
        mo_disk_close(disk);
    }
}

static int set_up(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < FILES; i++) {
        snprintf(paths[i], sizeof paths[i], "test_disk.%d.%d.bin", (int)getpid(), i);
        content[i] = malloc((size_t)sizes[i] + 8);
        for (int64_t at = 0; at < sizes[i]; at += 8) {
            const uint64_t r = random_next(&seed);
            memcpy(content[i] + at, &r, 8);
        }
        write_file(paths[i], content[i], sizes[i]);
    }
    arena = aligned_alloc(MO_DISK_ALIGN, SLOTS * PLACE);
    memset(blank, 0xA5, sizeof blank);
    find_methods();
    return arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < FILES; i++) {
        unlink(paths[i]);
        free(content[i]);
    }
    free(arena);
    return 0;
}

static void need_direct(void)
{
    if (no_direct[0]) {
        print_message("skipped: %s\n", no_direct);
        skip();
    }
}

static void need_uring(void)
{
    if (no_uring[0]) {
        print_message("skipped: %s\n", no_uring);
        skip();
    }
}

/* ---- Reads ---- */

static int state_of(const mo_read *r)
{
    return atomic_load_explicit(&r->state, memory_order_acquire);
}

static bool over(const mo_read *r)
{
    return state_of(r) == MO_READ_DONE || state_of(r) == MO_READ_FAILED;
}

static void wait_for(mo_disk *disk, const mo_read *r)
{
    for (;;) {
        const uint64_t seen = mo_disk_ended(disk);
        if (over(r)) {
            return;
        }
        mo_disk_wait(disk, seen);
    }
}

/* A read is counted just after its state can be seen: the last of them may not be counted yet. */
static void assert_all_ended(mo_disk *disk, uint64_t count)
{
    uint64_t ended = mo_disk_ended(disk);
    while (ended < count) {
        ended = mo_disk_wait(disk, ended);
    }
    assert_int_equal(ended, count);
}

static void submit(mo_disk *disk, mo_read *r)
{
    mo_disk_submit(disk, &r, 1);
}

static void aim(mo_read *r, int part, int64_t offset, int64_t bytes, uint8_t *place)
{
    *r = (mo_read){.part = part, .offset = offset, .bytes = bytes, .memory = place};
}

static void aim_anywhere(mo_read *r, uint64_t *seed, uint8_t *place)
{
    const int part = (int)random_below(seed, FILES);
    const int64_t most = random_below(seed, 3) ? MOST : 5000;
    const int64_t bytes = 1 + random_below(seed, most);
    const int64_t last = sizes[part] - bytes; /* one in eight touches the end of the file */
    aim(r, part, random_below(seed, 8) ? random_below(seed, last + 1) : last, bytes, place);
}

static bool is_right(const mo_read *r)
{
    return memcmp(mo_disk_data(r), content[r->part] + r->offset, (size_t)r->bytes) == 0;
}

/* Cached reads touch nothing but the bytes asked for, direct ones nothing behind their place. */
static bool is_tidy(const mo_read *r, bool direct)
{
    const uint8_t *begin = direct ? r->memory : mo_disk_data(r);
    const uint8_t *end = direct ? r->memory + mo_disk_capacity(r->offset, r->bytes) : begin + r->bytes;
    return memcmp(r->memory, blank, (size_t)(begin - r->memory)) == 0 &&
           memcmp(end, blank, (size_t)(r->memory + PLACE - end)) == 0;
}

static void read_at_random(const mo_disk_options *options, int count)
{
    static mo_read reads[SLOTS];
    mo_disk *disk = open_disk(options);
    uint64_t seed = 7;
    uint64_t bytes = 0;
    assert_int_equal(mo_disk_io(disk), options->io);
    assert_int_equal(mo_disk_chosen(disk), options->uring ? MO_DISK_URING : MO_DISK_THREADS);
    assert_int_equal(mo_disk_readers(disk), options->readers);
    const int before = allocations; /* none after opening */
    for (int i = 0; i < count + SLOTS; i++) {
        mo_read *r = &reads[i % SLOTS];
        if (i >= SLOTS) {
            wait_for(disk, r);
            assert_int_equal(state_of(r), MO_READ_DONE);
            assert_true(is_right(r));
            assert_true(is_tidy(r, options->io == MO_IO_DIRECT));
            bytes += (uint64_t)r->bytes;
        }
        if (i < count) {
            memcpy(arena + (size_t)(i % SLOTS) * PLACE, blank, PLACE);
            aim_anywhere(r, &seed, arena + (size_t)(i % SLOTS) * PLACE);
            r->urgency = (mo_urgency)(i % 3);
            submit(disk, r);
        }
    }
    assert_int_equal(allocations, before);
    assert_all_ended(disk, count);
    const mo_disk_counters c = mo_disk_count(disk);
    assert_int_equal(c.reads, count);
    assert_int_equal(c.bytes, bytes);
    assert_int_equal(c.failed, 0);
    assert_true(c.busy_ns > 0);
    mo_disk_close(disk);
}

static void threads_read_right(mo_io io)
{
    for (int readers = 1; readers <= 4; readers++) {
        read_at_random(&(mo_disk_options){.io = io, .plain = true, .readers = readers, .piece = PIECE}, 150);
    }
    read_at_random(&(mo_disk_options){.io = io, .plain = true, .readers = 2, .piece = MO_DISK_ALIGN}, 20);
}

static void uring_reads_right(mo_io io)
{
    const size_t half = SLOTS / 2 * PLACE; /* the other half is not registered */
    for (int readers = 1; readers <= 16; readers *= 4) {
        for (int registered = 0; registered < 2; registered++) {
            read_at_random(&(mo_disk_options){.io = io,
                                              .uring = true,
                                              .readers = readers,
                                              .piece = PIECE,
                                              .regions = &arena,
                                              .region_bytes = &half,
                                              .region_count = registered},
                           100);
        }
    }
}

static void threads_cached(void **state)
{
    (void)state;
    threads_read_right(MO_IO_CACHED);
}

static void threads_direct(void **state)
{
    (void)state;
    need_direct();
    threads_read_right(MO_IO_DIRECT);
}

static void uring_cached(void **state)
{
    (void)state;
    need_uring();
    uring_reads_right(MO_IO_CACHED);
}

static void uring_direct(void **state)
{
    (void)state;
    need_uring();
    need_direct();
    uring_reads_right(MO_IO_DIRECT);
}

/* Puts another file in the place of the only io_uring of the process. */
static void break_uring(void)
{
    char name[40], target[64];
    for (int fd = 3; fd < 1024; fd++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        if (strcmp(target, "anon_inode:[io_uring]") == 0) {
            const int null = open("/dev/null", O_RDONLY);
            assert_int_equal(dup2(null, fd), fd);
            close(null);
            return;
        }
    }
    fail_msg("no io_uring is open");
}

/* A kernel that refuses io_uring for good fails the reads, and ends neither the process nor waits for ever. */
static void uring_is_refused_later(void **state)
{
    (void)state;
    need_uring();
    static mo_read reads[SLOTS];
    mo_disk *disk =
        open_disk(&(mo_disk_options){.io = MO_IO_CACHED, .uring = true, .readers = 4, .piece = PIECE});
    aim(&reads[0], 0, 0, 5000, arena);
    submit(disk, &reads[0]);
    wait_for(disk, &reads[0]);
    assert_int_equal(state_of(&reads[0]), MO_READ_DONE);
    nap_ms(20);
    break_uring();
    int failed = 0;
    for (int i = 0; i < SLOTS; i++) {
        aim(&reads[i], 0, 0, MOST, arena + (size_t)i * PLACE);
        submit(disk, &reads[i]);
        wait_for(disk, &reads[i]);
        if (state_of(&reads[i]) == MO_READ_FAILED) {
            check_says(&reads[i].error, "the kernel no longer accepts reads by io_uring");
            failed++;
        }
    }
    assert_true(failed >= SLOTS - 1);
    mo_disk_close(disk);
}

/* ---- Faults ---- */

typedef struct faults {
    _Atomic int calls;
    int fail_at;      /* this call fails; -1: none */
    int64_t cut_to;   /* a read at most so long; 0: no cut, -1: nothing comes */
    bool late;        /* reads in the first MiB take 40 ms, in the second 30 */
    _Atomic int turn; /* if > 0: a read waits until this is 1 + the MiB it begins in */
    _Atomic int gate; /* while 1, reads wait */
    _Atomic int held; /* reads that wait there */
    int64_t order[64];
} faults;

static mo_status inject(void *user, const mo_read *read, int64_t offset, int64_t *bytes)
{
    faults *f = user;
    const int call = atomic_fetch_add(&f->calls, 1);
    (void)read;
    if (call < 64) {
        f->order[call] = offset;
    }
    atomic_fetch_add(&f->held, 1);
    while (atomic_load(&f->gate)) {
        nap_ms(1);
    }
    atomic_fetch_sub(&f->held, 1);
    while (atomic_load(&f->turn) > 0 && atomic_load(&f->turn) != 1 + (int)(offset >> 20)) {
        nap_ms(1);
    }
    if (f->late) {
        nap_ms(40 - 10 * (int)(offset >> 20));
    }
    if (f->cut_to) {
        const int64_t most = f->cut_to > 0 ? f->cut_to : 0;
        *bytes = *bytes < most ? *bytes : most;
    }
    return call == f->fail_at ? MO_EIO : MO_OK;
}

static mo_disk *open_faulty(faults *f, mo_io io, int readers, int64_t piece)
{
    return open_disk(
        &(mo_disk_options){.io = io, .readers = readers, .piece = piece, .fault = inject, .fault_user = f});
}

static void wait_held(faults *f, int count)
{
    while (atomic_load(&f->held) < count) {
        nap_ms(1);
    }
}

static mo_io best_io(void)
{
    return no_direct[0] ? MO_IO_CACHED : MO_IO_DIRECT;
}

static void arrival_in_reverse(void **state)
{
    (void)state;
    faults f = {.fail_at = -1, .turn = 100};
    mo_disk *disk = open_faulty(&f, best_io(), 4, 1 << 20);
    mo_read reads[4];
    mo_read *list[4];
    for (int i = 0; i < 4; i++) {
        aim(&reads[i], 0, (int64_t)i << 20, 5000, arena + (size_t)i * PLACE);
        list[i] = &reads[i];
    }
    mo_disk_submit(disk, list, 4);
    for (int i = 3; i >= 0; i--) {
        for (int k = 0; k <= i; k++) {
            assert_int_equal(state_of(&reads[k]), MO_READ_QUEUED);
        }
        atomic_store(&f.turn, 1 + i);
        wait_for(disk, &reads[i]);
        assert_int_equal(state_of(&reads[i]), MO_READ_DONE);
        assert_true(is_right(&reads[i]));
        assert_true(i == 3 || reads[i].time_ns > reads[i + 1].time_ns);
    }
    mo_disk_close(disk);
}

/* Six reads of several pieces each; returns how many physical reads that took. */
static int read_six(faults *f, mo_io io, mo_read *reads)
{
    mo_disk *disk = open_faulty(f, io, 3, PIECE);
    mo_read *list[6];
    for (int i = 0; i < 6; i++) {
        aim(&reads[i], i % FILES, 1000 + (int64_t)i * 300000, 60000 + i * 40000, arena + (size_t)i * PLACE);
        list[i] = &reads[i];
    }
    mo_disk_submit(disk, list, 6);
    for (int i = 0; i < 6; i++) {
        wait_for(disk, &reads[i]);
    }
    assert_all_ended(disk, 6);
    const int calls = f->calls;
    for (int i = 0; i < 6; i++) { /* what failed can be read again */
        if (state_of(&reads[i]) == MO_READ_FAILED && f->fail_at >= 0) {
            assert_int_equal(mo_disk_count(disk).failed, 1);
            const mo_error error = reads[i].error;
            submit(disk, &reads[i]);
            wait_for(disk, &reads[i]);
            assert_int_equal(state_of(&reads[i]), MO_READ_DONE);
            assert_true(is_right(&reads[i]));
            atomic_store(&reads[i].state, MO_READ_FAILED);
            reads[i].error = error;
        }
    }
    mo_disk_close(disk);
    return calls;
}

static void every_read_fails_once(void **state)
{
    (void)state;
    mo_read reads[6];
    for (int io = MO_IO_DIRECT; io <= MO_IO_CACHED; io++) {
        if (io == MO_IO_DIRECT && no_direct[0]) {
            continue;
        }
        faults clean = {.fail_at = -1};
        const int calls = read_six(&clean, (mo_io)io, reads);
        assert_true(calls > 12);
        for (int k = 0; k < calls; k++) {
            faults f = {.fail_at = k};
            read_six(&f, (mo_io)io, reads);
            int failed = 0;
            for (int i = 0; i < 6; i++) {
                if (state_of(&reads[i]) == MO_READ_FAILED) {
                    failed++;
                    assert_int_equal(reads[i].error.status, MO_EIO);
                    assert_non_null(strstr(reads[i].error.detail, paths[reads[i].part]));
                    assert_non_null(strstr(reads[i].error.detail, "offset"));
                } else {
                    assert_true(is_right(&reads[i]));
                }
            }
            assert_int_equal(failed, 1);
        }
    }
}

static void short_reads(void **state)
{
    (void)state;
    static const int64_t cuts[] = {1000, MO_DISK_ALIGN, 5000, 20000};
    mo_read reads[6];
    for (int io = MO_IO_DIRECT; io <= MO_IO_CACHED; io++) {
        for (size_t c = io == MO_IO_DIRECT; c < sizeof cuts / sizeof cuts[0]; c++) {
            if (io == MO_IO_DIRECT && (no_direct[0] || cuts[c] % MO_DISK_ALIGN)) {
                continue; /* the kernel itself refuses such lengths */
            }
            faults f = {.fail_at = -1, .cut_to = cuts[c]};
            read_six(&f, (mo_io)io, reads);
            for (int i = 0; i < 6; i++) {
                assert_int_equal(state_of(&reads[i]), MO_READ_DONE);
                assert_true(is_right(&reads[i]));
            }
        }
        faults nothing = {.fail_at = -1, .cut_to = -1};
        if (io == MO_IO_CACHED || !no_direct[0]) {
            read_six(&nothing, (mo_io)io, reads);
            assert_int_equal(state_of(&reads[0]), MO_READ_FAILED);
            assert_int_equal(reads[0].error.status, MO_EFORMAT);
            assert_non_null(strstr(reads[0].error.detail, "reading stopped"));
        }
    }
}

/* ---- Files that change under us ---- */

enum { SMALL = 300000 };

static mo_status read_small(mo_disk *disk, int64_t offset, char *detail)
{
    mo_read r;
    aim(&r, 0, offset, 20000, arena);
    submit(disk, &r);
    wait_for(disk, &r);
    snprintf(detail, 1024, "%s", state_of(&r) == MO_READ_FAILED ? r.error.detail : "");
    if (state_of(&r) == MO_READ_DONE) {
        assert_true(is_right(&r));
        return MO_OK;
    }
    return r.error.status;
}

static void change_under(const mo_disk_options *options)
{
    char path[80], other[80], detail[1024];
    snprintf(path, sizeof path, "%s.changing", paths[0]);
    snprintf(other, sizeof other, "%s.other", paths[0]);
    const char *const list[] = {path};
    for (int kind = 0; kind < 4; kind++) {
        mo_disk *disk;
        write_file(path, content[0], SMALL);
        nap_ms(15); /* file times may have steps of 10 ms */
        assert_int_equal(mo_disk_open(list, 1, options, &disk, NULL), MO_OK);
        assert_int_equal(read_small(disk, SMALL - 20000, detail), MO_OK);
        int fd = open(path, O_WRONLY);
        assert_true(fd >= 0);
        switch (kind) {
        case 0: /* cut short, the read beyond the new end */
            assert_int_equal(ftruncate(fd, 100000), 0);
            assert_int_equal(read_small(disk, SMALL - 20000, detail), MO_EFORMAT);
            assert_non_null(strstr(detail, "from 300000 to 100000"));
            assert_int_equal(read_small(disk, 0, detail), MO_EFORMAT); /* and before it */
            break;
        case 1: /* written over */
            assert_int_equal(pwrite(fd, "x", 1, 290000), 1);
            assert_int_equal(read_small(disk, 0, detail), MO_EFORMAT);
            assert_non_null(strstr(detail, "modified"));
            break;
        case 2: /* longer */
            assert_int_equal(pwrite(fd, "x", 1, SMALL), 1);
            assert_int_equal(read_small(disk, 0, detail), MO_EFORMAT);
            break;
        default: /* another file under the name: ours is still whole */
            write_file(other, content[0] + 5, SMALL);
            assert_int_equal(rename(other, path), 0);
            assert_int_equal(read_small(disk, 70000, detail), MO_OK);
            break;
        }
        if (kind < 3) {
            assert_non_null(strstr(detail, path));
            assert_non_null(strstr(detail, "offset"));
            assert_non_null(strstr(detail, "reopen the model"));
        }
        close(fd);
        mo_disk_close(disk);
        unlink(path);
    }
}

static void files_change(void **state)
{
    (void)state;
    change_under(&(mo_disk_options){.io = MO_IO_CACHED, .plain = true});
    if (!no_direct[0]) {
        change_under(&(mo_disk_options){.io = MO_IO_DIRECT, .plain = true});
    }
    if (!no_uring[0]) {
        change_under(&(mo_disk_options){.io = MO_IO_CACHED, .uring = true});
    }
    if (!no_uring[0] && !no_direct[0]) {
        change_under(&(mo_disk_options){.io = MO_IO_DIRECT, .uring = true});
    }
}

static void reads_past_the_end(void **state)
{
    (void)state;
    for (int io = MO_IO_DIRECT; io <= MO_IO_CACHED; io++) {
        for (int uring = 0; uring < 2; uring++) {
            if ((io == MO_IO_DIRECT && no_direct[0]) || (uring && no_uring[0])) {
                continue;
            }
            mo_disk *disk = open_disk(&(mo_disk_options){.io = (mo_io)io, .uring = uring, .plain = !uring});
            mo_read r;
            aim(&r, 1, sizes[1] - 100, 101, arena);
            submit(disk, &r);
            wait_for(disk, &r);
            assert_int_equal(state_of(&r), MO_READ_FAILED);
            assert_int_equal(r.error.status, MO_EFORMAT);
            aim(&r, 1, sizes[1] + 100000, 10, arena);
            submit(disk, &r);
            wait_for(disk, &r);
            assert_int_equal(state_of(&r), MO_READ_FAILED);
            mo_disk_close(disk);
        }
    }
}

/* ---- Order ---- */

/* One reader, held at the gate by the first read, so that the others queue up. */
static mo_disk *open_held(faults *f, mo_read *first)
{
    *f = (faults){.fail_at = -1, .gate = 1};
    mo_disk *disk = open_faulty(f, MO_IO_CACHED, 1, PIECE);
    aim(first, 0, 0, 100, arena);
    submit(disk, first);
    wait_held(f, 1);
    return disk;
}

static void urgent_reads_first(void **state)
{
    (void)state;
    static const mo_urgency urgencies[6] = {MO_READ_GUESS, MO_READ_AHEAD, MO_READ_NOW,
                                            MO_READ_GUESS, MO_READ_NOW,   MO_READ_AHEAD};
    static const int expected[6] = {2, 4, 1, 5, 0, 3};
    faults f;
    mo_read first, reads[6];
    mo_read *list[6];
    mo_disk *disk = open_held(&f, &first);
    for (int i = 0; i < 6; i++) {
        aim(&reads[i], 0, 1000 * (i + 1), 100, arena + (size_t)(i + 1) * PLACE);
        reads[i].urgency = urgencies[i];
        list[i] = &reads[i];
    }
    mo_disk_submit(disk, list, 6);
    atomic_store(&f.gate, 0);
    for (int i = 0; i < 6; i++) {
        wait_for(disk, &reads[i]);
    }
    for (int i = 0; i < 6; i++) {
        assert_int_equal(f.order[i + 1], 1000 * (expected[i] + 1));
    }
    mo_disk_close(disk);
}

static void raise_queued(void **state)
{
    (void)state;
    faults f;
    mo_read first, reads[4];
    mo_disk *disk = open_held(&f, &first);
    for (int i = 1; i < 4; i++) {
        aim(&reads[i], 0, 1000 * (i + 1), 100, arena + (size_t)(i + 1) * PLACE);
        reads[i].urgency = MO_READ_GUESS;
        submit(disk, &reads[i]);
    }
    mo_disk_raise_priority(disk, &first); /* under way */
    mo_disk_raise_priority(disk, &reads[3]);
    mo_disk_raise_priority(disk, &reads[2]);
    assert_int_equal(mo_disk_ended(disk), 0);
    atomic_store(&f.gate, 0);
    for (int i = 1; i < 4; i++) {
        wait_for(disk, &reads[i]);
        assert_true(is_right(&reads[i]));
    }
    mo_disk_raise_priority(disk, &reads[1]); /* done */
    assert_int_equal(f.order[1], 4000);
    assert_int_equal(f.order[2], 3000);
    assert_int_equal(f.order[3], 2000);
    assert_int_equal(f.calls, 4);
    assert_all_ended(disk, 4);
    mo_disk_close(disk);
}

static void raise_the_rest(void **state)
{
    (void)state;
    faults f = {.fail_at = -1, .gate = 1};
    mo_disk *disk = open_faulty(&f, MO_IO_CACHED, 1, PIECE);
    mo_read guess, now;
    aim(&guess, 0, 0, 3 * PIECE, arena);
    guess.urgency = MO_READ_AHEAD;
    submit(disk, &guess);
    wait_held(&f, 1); /* its first piece */
    mo_disk_raise_priority(disk, &guess);
    aim(&now, 0, 1 << 20, 100, arena + PLACE);
    submit(disk, &now);
    atomic_store(&f.gate, 0);
    wait_for(disk, &now);
    assert_int_equal(state_of(&guess), MO_READ_DONE);
    assert_int_equal(f.order[3], 1 << 20);
    mo_disk_close(disk);
}

/* All of them, and none where one has begun or ended; what was taken back can be asked for again. */
static void withdraw_queued(void **state)
{
    (void)state;
    faults f;
    mo_read first, reads[3];
    mo_disk *disk = open_held(&f, &first);
    for (int i = 0; i < 3; i++) {
        aim(&reads[i], 0, 1000 * (i + 1), 100, arena + (size_t)(i + 1) * PLACE);
        reads[i].urgency = MO_READ_GUESS;
        submit(disk, &reads[i]);
    }
    assert_false(mo_disk_withdraw(disk, (mo_read *[]){&reads[0], &first}, 2));
    assert_int_equal(state_of(&reads[0]), MO_READ_QUEUED);
    assert_true(mo_disk_withdraw(disk, (mo_read *[]){&reads[0], &reads[2]}, 2));
    assert_int_equal(state_of(&reads[0]), MO_READ_IDLE);
    assert_false(mo_disk_withdraw(disk, (mo_read *[]){&reads[2]}, 1)); /* no longer there */
    submit(disk, &reads[2]);
    atomic_store(&f.gate, 0);
    wait_for(disk, &reads[1]);
    wait_for(disk, &reads[2]);
    assert_false(mo_disk_withdraw(disk, (mo_read *[]){&reads[1]}, 1)); /* done */
    assert_true(is_right(&reads[1]) && is_right(&reads[2]));
    assert_all_ended(disk, 3 + 1); /* who waits for one that is taken back wakes too */
    assert_int_equal(f.calls, 3);
    mo_disk_close(disk);
}

static void close_with_queued(void **state)
{
    (void)state;
    static mo_read reads[200];
    for (int uring = 0; uring < 2; uring++) {
        if (uring && no_uring[0]) {
            continue;
        }
        mo_disk *disk = open_disk(&(mo_disk_options){
            .io = best_io(), .readers = 2, .piece = PIECE, .uring = uring, .plain = !uring});
        uint64_t seed = 3;
        for (int i = 0; i < 200; i++) { /* places are shared: nobody looks at them */
            aim_anywhere(&reads[i], &seed, arena + (size_t)(i % SLOTS) * PLACE);
            submit(disk, &reads[i]);
        }
        mo_disk_close(disk);
        int cancelled = 0;
        for (int i = 0; i < 200; i++) {
            assert_true(over(&reads[i]));
            if (state_of(&reads[i]) == MO_READ_FAILED) {
                assert_int_equal(reads[i].error.status, MO_ECANCELLED);
                cancelled++;
            }
        }
        assert_true(cancelled > 0);
    }
    mo_disk_close(NULL);
}

static void close_under_way(void **state)
{
    (void)state;
    faults f;
    mo_read first, second;
    mo_disk *disk = open_held(&f, &first);
    aim(&second, 0, 5000, 100, arena + PLACE);
    submit(disk, &second);
    f.late = true; /* closing meets the first one still under way */
    atomic_store(&f.gate, 0);
    mo_disk_close(disk);
    assert_int_equal(state_of(&first), MO_READ_DONE);
    assert_true(is_right(&first));
    assert_true(over(&second));
}

/* ---- Crowds ---- */

enum { SUBMITTERS = 4, EACH = 1000, OWN = 4 };

typedef struct crowd {
    mo_disk *disk;
    int index, wrong;
} crowd;

static void *submit_many(void *arg)
{
    crowd *c = arg;
    mo_read reads[OWN];
    uint64_t seed = (uint64_t)c->index + 100;
    int sent = 0;
    memset(reads, 0, sizeof reads);
    for (int done = 0; done < EACH;) {
        const uint64_t seen = mo_disk_ended(c->disk);
        bool moved = false;
        for (int i = 0; i < OWN; i++) {
            mo_read *r = &reads[i];
            const int state = state_of(r);
            if (state == MO_READ_QUEUED) {
                if (random_below(&seed, 50) == 0) {
                    mo_disk_raise_priority(c->disk, r);
                }
                continue;
            }
            if (state != MO_READ_IDLE) {
                c->wrong += state != MO_READ_DONE || !is_right(r);
                atomic_store(&r->state, MO_READ_IDLE);
                done++;
            }
            if (sent < EACH) {
                aim_anywhere(r, &seed, arena + (size_t)(c->index * OWN + i) * PLACE);
                r->bytes = r->bytes < 30000 ? r->bytes : 30000;
                r->urgency = (mo_urgency)random_below(&seed, 3);
                submit(c->disk, r);
                sent++;
                moved = true;
            }
        }
        if (!moved && done < EACH) {
            mo_disk_wait(c->disk, seen);
        }
    }
    return NULL;
}

static void crowd_on(const mo_disk_options *options)
{
    mo_disk *disk = open_disk(options);
    crowd crowds[SUBMITTERS];
    pthread_t threads[SUBMITTERS];
    for (int i = 0; i < SUBMITTERS; i++) {
        crowds[i] = (crowd){.disk = disk, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, submit_many, &crowds[i]), 0);
    }
    for (int i = 0; i < SUBMITTERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(crowds[i].wrong, 0);
    }
    assert_all_ended(disk, SUBMITTERS * EACH);
    assert_int_equal(mo_disk_count(disk).reads, SUBMITTERS * EACH);
    mo_disk_close(disk);
}

static void many_submitters(void **state)
{
    (void)state;
    assert_true(SUBMITTERS * OWN <= SLOTS);
    crowd_on(&(mo_disk_options){.io = best_io(), .plain = true, .piece = 8192, .readers = 3});
    if (!no_uring[0]) {
        crowd_on(&(mo_disk_options){.io = best_io(), .uring = true, .piece = 8192, .readers = 5});
    }
}

static void busy_time(void **state)
{
    (void)state;
    faults f = {.fail_at = -1, .late = true};
    mo_disk *disk = open_faulty(&f, MO_IO_CACHED, 4, PIECE);
    mo_read reads[2];
    const int64_t start = mo_clock_ns();
    for (int i = 0; i < 2; i++) { /* both at once, 40 and 30 ms: not their sum */
        aim(&reads[i], 0, (int64_t)i << 20, 100, arena + (size_t)i * PLACE);
        submit(disk, &reads[i]);
    }
    wait_for(disk, &reads[0]);
    wait_for(disk, &reads[1]);
    const uint64_t busy = mo_disk_count(disk).busy_ns;
    assert_true(busy >= 39000000 && busy <= (uint64_t)(mo_clock_ns() - start));
    nap_ms(5);
    assert_int_equal(mo_disk_count(disk).busy_ns, busy); /* idle time does not count */
    mo_disk_close(disk);
}

/* ---- Choosing ---- */

static void chooses_by_itself(void **state)
{
    (void)state;
    mo_disk *disk = open_disk(&(mo_disk_options){0});
    assert_true(mo_disk_io(disk) == MO_IO_CACHED || !no_direct[0]);
    assert_true(mo_disk_io(disk) != MO_IO_AUTO);
    assert_true(mo_disk_reason(disk)[0]);
    assert_true(mo_disk_readers(disk) >= 1);
    mo_read r;
    aim(&r, 1, 77, 100000, arena);
    submit(disk, &r);
    wait_for(disk, &r);
    assert_true(state_of(&r) == MO_READ_DONE && is_right(&r));
    mo_disk_close(disk);

    const char *const larger[] = {paths[0], paths[0]}; /* enough to be measured */
    const size_t bytes = SLOTS * PLACE;
    const int64_t start = mo_clock_ns();
    const mo_disk_options with_memory = {.regions = &arena, .region_bytes = &bytes, .region_count = 1};
    assert_int_equal(mo_disk_open(larger, 2, &with_memory, &disk, NULL), MO_OK);
    print_message("chosen in %.0f ms: %s\n", (double)(mo_clock_ns() - start) * 1e-6, mo_disk_reason(disk));
    mo_disk_close(disk);
}

static void refused_direct(void **state)
{
    (void)state;
    const char *const list[] = {"/proc/version"}; /* tmpfs has direct reads on recent kernels */
    mo_disk *disk;
    mo_error err = {0};
    assert_int_equal(mo_disk_open(list, 1, &(mo_disk_options){.io = MO_IO_DIRECT}, &disk, &err),
                     MO_EUNSUPPORTED);
    assert_null(disk);
    assert_non_null(strstr(err.detail, list[0]));
    assert_int_equal(mo_disk_open(list, 1, &(mo_disk_options){0}, &disk, &err), MO_OK);
    assert_int_equal(mo_disk_io(disk), MO_IO_CACHED);
    assert_non_null(strstr(mo_disk_reason(disk), "O_DIRECT"));
    mo_disk_close(disk);
}

static void bad_requests(void **state)
{
    (void)state;
    mo_disk *disk;
    mo_error err;
    const char *const missing[] = {paths[0], "no such file"};
    assert_int_equal(mo_disk_open(missing, 2, &(mo_disk_options){0}, &disk, &err), MO_ENOENT);
    assert_non_null(strstr(err.detail, "no such file"));
    assert_null(disk);
    const mo_disk_options bad[] = {
        {.readers = -1},  {.readers = MO_DISK_READERS + 1}, {.piece = 1000},
        {.piece = -4096}, {.uring = true, .plain = true},   {.uring = true, .fault = inject},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(mo_disk_open(path_list, FILES, &bad[i], &disk, &err), MO_EINVAL);
        assert_true(err.detail[0]);
    }
    assert_int_equal(mo_disk_open(path_list, 0, &(mo_disk_options){0}, &disk, &err), MO_EINVAL);
}

/* ---- Probing ---- */

typedef struct patience {
    int calls, most;
} patience;

static bool count_steps(void *user, const char *what, int done, int total)
{
    patience *p = user;
    assert_true(what[0] && done >= 0 && done <= total);
    return ++p->calls <= p->most;
}

static void probe_measures(void **state)
{
    (void)state;
    char directory[] = "test_disk.probe.XXXXXX";
    assert_non_null(mkdtemp(directory));
    patience p = {.most = 1000};
    const mo_probe_setup options = {.directory = directory,
                                    .file_bytes = 40 << 20,
                                    .memory_bytes = 4 << 20,
                                    .threads = 2,
                                    .point_ms = 10,
                                    .progress = count_steps,
                                    .user = &p};
    mo_probe_report report;
    mo_error err;
    assert_int_equal(mo_probe_run(&options, &report, &err), MO_OK);
    assert_int_equal(report.memory_count, 2);
    assert_int_equal(report.disk_count, no_uring[0] ? 12 : 24);
    for (int i = 0; i < report.disk_count; i++) {
        assert_true(report.disk[i].bytes_s > 0 && report.disk[i].read_s > 0);
        assert_int_equal(report.disk[i].io_uring, i >= 12);
    }
    const mo_rates rates = mo_probe_rates(&report);
    assert_true(rates.measured && rates.ram_bytes_s > 0 && rates.disk_bytes_s > 0 && rates.threads == 2);
    assert_int_equal(rates.cores, 2);
    assert_true(report.product_bytes_s > 0 && rates.compute_share > 0 && rates.compute_share <= 1);
    assert_true(report.slot_bytes_s > 0 && rates.slot_share > 0 && rates.slot_share <= 1);
    /* A token is more than its products. */
    assert_true(rates.ram_bytes_s * rates.compute_share < report.product_bytes_s);
    const int steps = p.calls;
    for (int k = 0; k < steps; k += 3) {
        p = (patience){.most = k};
        assert_int_equal(mo_probe_run(&options, &report, &err), MO_ECANCELLED);
        assert_int_equal(p.calls, k + 1);
    }
    assert_int_equal(rmdir(directory), 0); /* nothing was left */
    assert_int_equal(mo_probe_run(&options, &report, &err), MO_ENOENT);

    p = (patience){.most = 1000};
    mo_probe_setup files = options;
    files.paths = path_list;
    files.path_count = FILES;
    assert_int_equal(mo_probe_run(&files, &report, &err), MO_OK);
    assert_true(report.disk_bytes_s > 0 && report.disk_reason[0]);
}

/* What a copy takes beside its bytes shows in how much slower small ones are. */
static void finds_what_each_copy_costs(void **state)
{
    (void)state;
    const double link = 50e9, each = 5e-6;
    mo_probe_report r = {.ram_bytes_s = 1e10, .disk_bytes_s = 1e9};
    r.device = (mo_probe_device_report){.name = "a gpu", .link_bytes_s = link, .copy_count = 3};
    for (int i = 0; i < 3; i++) {
        const int64_t bytes = (int64_t)1 << (18 + 2 * i);
        r.device.copies[i].bytes = bytes;
        r.device.copies[i].in_bytes_s = (double)bytes / ((double)bytes / link + each);
    }
    assert_true(fabs(mo_probe_rates(&r).link_copy_s - each) < 1e-9);
    r.device.copies[0].in_bytes_s /= 2; /* others had the machine */
    assert_true(fabs(mo_probe_rates(&r).link_copy_s - each) < 1e-9);
    r.device.copies[1].in_bytes_s = link;
    assert_true(mo_probe_rates(&r).link_copy_s == 0);
    r.device.copy_count = 0;
    assert_true(mo_probe_rates(&r).link_copy_s == 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_cached),
        cmocka_unit_test(threads_direct),
        cmocka_unit_test(uring_cached),
        cmocka_unit_test(uring_direct),
        cmocka_unit_test(uring_is_refused_later),
        cmocka_unit_test(arrival_in_reverse),
        cmocka_unit_test(every_read_fails_once),
        cmocka_unit_test(short_reads),
        cmocka_unit_test(files_change),
        cmocka_unit_test(reads_past_the_end),
        cmocka_unit_test(urgent_reads_first),
        cmocka_unit_test(raise_queued),
        cmocka_unit_test(raise_the_rest),
        cmocka_unit_test(withdraw_queued),
        cmocka_unit_test(close_with_queued),
        cmocka_unit_test(close_under_way),
        cmocka_unit_test(many_submitters),
        cmocka_unit_test(busy_time),
        cmocka_unit_test(chooses_by_itself),
        cmocka_unit_test(refused_direct),
        cmocka_unit_test(bad_requests),
        cmocka_unit_test(probe_measures),
        cmocka_unit_test(finds_what_each_copy_costs),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
