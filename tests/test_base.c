/* Status, log, arena, input and output. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/input.h"
#include "base/log.h"
#include "base/mtp_name.h"
#include "base/output.h"
#include "base/status.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"

static mo_error err;

static bool exists(const char *name)
{
    struct stat st;
    return lstat(in_folder(name), &st) == 0;
}

/* ---- Status, log, arena ----------------------------------------------------------------------- */

static void status_texts(void **state)
{
    (void)state;
    for (int s = MO_OK; s <= MO_ECANCELLED; s++) {
        assert_string_not_equal(mo_status_text((mo_status)s), "unknown status");
    }
    assert_string_equal(mo_status_text((mo_status)99), "unknown status");
    assert_int_equal(mo_fail(NULL, MO_EIO, "x"), MO_EIO);
    assert_int_equal(mo_fail(&err, MO_EFORMAT, "tensor %d is bad", 7), MO_EFORMAT);
    assert_int_equal(mo_fail_prefix(&err, MO_EFORMAT, "%s", "a.gguf"), MO_EFORMAT);
    assert_string_equal(err.detail, "a.gguf: tensor 7 is bad");
    char big[3000];
    memset(big, 'y', sizeof big - 1);
    big[sizeof big - 1] = 0;
    mo_fail(&err, MO_EIO, "%s", big);
    mo_fail_prefix(&err, MO_EIO, "%s", big);
    assert_true(strlen(err.detail) < sizeof err.detail);
}

static int log_lines;
static char log_last[1100];

static void keep_line(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    assert_ptr_equal(user, log_last);
    log_lines++;
    snprintf(log_last, sizeof log_last, "%d %s %s", (int)level, subsystem, text);
}

static void log_levels(void **state)
{
    (void)state;
    mo_log(MO_LOG_ERROR, "base", "nobody listens");
    mo_log_set(keep_line, log_last, MO_LOG_WARN);
    mo_log(MO_LOG_INFO, "base", "too quiet");
    assert_int_equal(log_lines, 0);
    mo_log(MO_LOG_WARN, "base", "slot %d is %s", 3, "full");
    assert_int_equal(log_lines, 1);
    assert_string_equal(log_last, "1 base slot 3 is full");
    mo_log_set(NULL, NULL, MO_LOG_DEBUG);
    mo_log(MO_LOG_ERROR, "base", "nobody listens");
    assert_int_equal(log_lines, 1);
}

/* Waits in the callback until another thread has logged, which needs the library's lock to be free. */
static atomic_int log_waiting, log_others;

static void *log_from_another_thread(void *unused)
{
    (void)unused;
    mo_log(MO_LOG_WARN, "base", "from another thread");
    return NULL;
}

static void log_and_call(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    (void)user;
    (void)level;
    (void)subsystem;
    if (strcmp(text, "first") != 0) {
        log_others++;
        return;
    }
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, log_from_another_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    mo_log(MO_LOG_WARN, "base", "from the callback itself: dropped");
    mo_log_set(log_and_call, NULL, MO_LOG_DEBUG);
    log_waiting++;
}

static void log_callbacks_call_the_library(void **state)
{
    (void)state;
    mo_log_set(log_and_call, NULL, MO_LOG_WARN);
    mo_log(MO_LOG_WARN, "base", "first");
    assert_int_equal(log_waiting, 1);
    assert_int_equal(log_others, 1);
    mo_log(MO_LOG_DEBUG, "base", "the level was set by the callback");
    assert_int_equal(log_others, 2);
    mo_log_set(NULL, NULL, MO_LOG_WARN);
}

/* When mo_log_set() has returned, the callback before is not called any more and none of its calls is under way. */
static atomic_int log_alive, log_after;

static void log_slowly(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    (void)level;
    (void)subsystem;
    (void)text;
    usleep(1000);
    log_after += !*(atomic_int *)user;
}

static void *log_much(void *unused)
{
    (void)unused;
    for (int i = 0; i < 40; i++) {
        mo_log(MO_LOG_WARN, "base", "line %d", i);
    }
    return NULL;
}

static void log_callbacks_end(void **state)
{
    (void)state;
    pthread_t threads[4];
    log_alive = 1;
    mo_log_set(log_slowly, &log_alive, MO_LOG_WARN);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, log_much, NULL), 0);
    }
    usleep(10000);
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    log_alive = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(log_after, 0);
}

static void arena_slices(void **state)
{
    (void)state;
    mo_arena *arena = mo_arena_create(128);
    unsigned char *slices[200];
    for (int i = 0; i < 200; i++) {
        size_t bytes = (size_t)(i * 7 % 300);
        slices[i] = mo_arena_alloc(arena, bytes);
        assert_non_null(slices[i]);
        assert_int_equal((uintptr_t)slices[i] % _Alignof(max_align_t), 0);
        for (size_t k = 0; k < bytes; k++) {
            assert_int_equal(slices[i][k], 0);
        }
        memset(slices[i], i, bytes);
    }
    for (int i = 0; i < 200; i++) { /* nobody wrote into a neighbour */
        for (int k = 0; k < i * 7 % 300; k++) {
            assert_int_equal(slices[i][k], i);
        }
    }
    assert_null(mo_arena_alloc(arena, SIZE_MAX));
    assert_null(mo_arena_array(arena, SIZE_MAX / 4, 8));
    char *text = mo_arena_text(arena, "a\0bcd", 4);
    assert_memory_equal(text, "a\0bc", 5);
    assert_null(mo_arena_text(arena, "", SIZE_MAX));
    mo_arena_destroy(arena);
    mo_arena_destroy(NULL);
}

/* ---- Input ------------------------------------------------------------------------------------ */

static void write_file(const char *name, const void *data, size_t bytes)
{
    FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

static void input_reads(void **state)
{
    (void)state;
    unsigned char data[10000], got[10000];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)(i * 31 >> 3);
    }
    write_file("data", data, sizeof data);
    mo_input *in;
    assert_int_equal(mo_input_open(in_folder("data"), &in, &err), MO_OK);
    assert_int_equal(mo_input_bytes(in), sizeof data);
    assert_string_equal(mo_input_path(in), in_folder("data"));
    assert_true(mo_input_descriptor(in) >= 0);
    assert_int_equal(mo_input_read_at(in, got, sizeof got, 0, &err), MO_OK);
    assert_memory_equal(got, data, sizeof data);
    assert_int_equal(mo_input_read_at(in, got, 77, 9923, &err), MO_OK);
    assert_memory_equal(got, data + 9923, 77);
    assert_int_equal(mo_input_read_at(in, got, 0, 10000, &err), MO_OK);
    assert_int_equal(mo_input_read_at(in, got, 78, 9923, &err), MO_EFORMAT);
    check_says(&err, "9923");
    check_says(&err, "10000");
    check_says(&err, folder);
    assert_int_equal(mo_input_read_at(in, got, 1, UINT64_MAX, &err), MO_EFORMAT);
    assert_int_equal(mo_input_read_at(in, got, SIZE_MAX, 1, &err), MO_EFORMAT);
    assert_int_equal(truncate(in_folder("data"), 5000), 0);
    assert_int_equal(mo_input_read_at(in, got, 10000, 0, &err), MO_EFORMAT);
    check_says(&err, "5000");
    mo_input_close(in);
    mo_input_close(NULL);
    unlink(in_folder("data"));
}

static void input_refuses(void **state)
{
    (void)state;
    mo_input *in = (mo_input *)state;
    assert_int_equal(mo_input_open(in_folder("missing"), &in, &err), MO_ENOENT);
    assert_null(in);
    check_says(&err, "missing");
    assert_int_equal(mo_input_open(in_folder("missing/file"), &in, NULL), MO_ENOENT);
    assert_int_equal(mo_input_open(folder, &in, &err), MO_EUNSUPPORTED);
    check_says(&err, "directory");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(mo_input_open(in_folder("pipe"), &in, &err), MO_EUNSUPPORTED); /* and does not hang */
    assert_int_equal(mo_input_open("/dev/null", &in, &err), MO_EUNSUPPORTED);
    unlink(in_folder("pipe"));
    write_file("empty", "", 0);
    assert_int_equal(mo_input_open(in_folder("empty"), &in, &err), MO_OK);
    assert_int_equal(mo_input_bytes(in), 0);
    mo_input_close(in);
    unlink(in_folder("empty"));
}

/* ---- Output ----------------------------------------------------------------------------------- */

static void holds(const char *name, const void *data, size_t bytes)
{
    mo_input *in;
    char got[4096];
    assert_int_equal(mo_input_open(in_folder(name), &in, &err), MO_OK);
    assert_int_equal(mo_input_bytes(in), bytes);
    assert_true(bytes <= sizeof got);
    assert_int_equal(mo_input_read_at(in, got, bytes, 0, &err), MO_OK);
    assert_memory_equal(got, data, bytes);
    mo_input_close(in);
}

static void output_commits(void **state)
{
    (void)state;
    mo_output *out;
    for (uint64_t promised = 0; promised <= 11; promised += 11) {
        assert_int_equal(mo_output_create(in_folder("new"), promised, &out, &err), MO_OK);
        assert_true(mo_output_seekable(out));
        assert_int_equal(mo_output_append(out, "hello ", 6, &err), MO_OK);
        assert_int_equal(mo_output_append(out, "", 0, &err), MO_OK);
        assert_int_equal(mo_output_append(out, "world", 5, &err), MO_OK);
        assert_true(exists("new.moraine-part"));
        assert_int_equal(exists("new"), promised != 0); /* the second round replaces the first */
        assert_int_equal(mo_output_commit(out, &err), MO_OK);
        assert_false(exists("new.moraine-part"));
        holds("new", "hello world", 11);
    }
    assert_int_equal(mo_output_create(in_folder("new"), 3, &out, &err), MO_OK);
    mo_output_append(out, "xyz", 3, &err);
    mo_output_abort(out);
    mo_output_abort(NULL);
    assert_false(exists("new.moraine-part"));
    holds("new", "hello world", 11);
    /* Through a link: the link stays, the file behind it is replaced. */
    assert_int_equal(symlink(in_folder("new"), in_folder("link")), 0);
    assert_int_equal(mo_output_create(in_folder("link"), 0, &out, &err), MO_OK);
    assert_int_equal(mo_output_write_at(out, "end", 3, 2, &err), MO_OK);
    assert_int_equal(mo_output_commit(out, &err), MO_OK);
    holds("new", "\0\0end", 5);
    struct stat st;
    assert_true(lstat(in_folder("link"), &st) == 0 && S_ISLNK(st.st_mode));
    unlink(in_folder("link"));
    unlink(in_folder("new"));
}

typedef struct stripe {
    mo_output *out;
    int first;
    mo_status status;
} stripe;

static void *write_stripe(void *arg)
{
    stripe *s = arg;
    for (int i = s->first; i < 1024 && !s->status; i += 4) {
        unsigned char four[4] = {(unsigned char)i, (unsigned char)(i >> 8), 7, 9};
        s->status = mo_output_write_at(s->out, four, 4, (uint64_t)i * 4, NULL);
    }
    return NULL;
}

static void output_by_threads(void **state)
{
    (void)state;
    mo_output *out;
    assert_int_equal(mo_output_create(in_folder("wide"), 4096, &out, &err), MO_OK);
    pthread_t threads[4];
    stripe stripes[4];
    for (int i = 0; i < 4; i++) {
        stripes[i] = (stripe){.out = out, .first = i};
        assert_int_equal(pthread_create(&threads[i], NULL, write_stripe, &stripes[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(stripes[i].status, MO_OK);
    }
    assert_int_equal(mo_output_commit(out, &err), MO_OK);
    unsigned char want[4096];
    for (int i = 0; i < 1024; i++) {
        memcpy(want + 4 * i, (unsigned char[4]){(unsigned char)i, (unsigned char)(i >> 8), 7, 9}, 4);
    }
    holds("wide", want, sizeof want);
    unlink(in_folder("wide"));
}

static void output_special(void **state)
{
    (void)state;
    mo_output *out;
    assert_int_equal(mo_output_create("/dev/null", 1 << 20, &out, &err), MO_OK);
    assert_int_equal(mo_output_append(out, "x", 1, &err), MO_OK);
    assert_int_equal(mo_output_write_at(out, "x", 1, 1000, &err), MO_OK);
    assert_int_equal(mo_output_commit(out, &err), MO_OK);
    struct stat st;
    assert_true(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
    assert_int_equal(mo_output_create("/dev/full", 12345, &out, &err), MO_OK);
    assert_int_equal(mo_output_append(out, "x", 1, &err), MO_ENOSPC);
    check_says(&err, "/dev/full");
    check_says(&err, "0 bytes of 12.1 KiB");
    check_says(&err, "another path");
    mo_output_abort(out);
    assert_true(stat("/dev/full", &st) == 0 && S_ISCHR(st.st_mode));

    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    int reader = open(in_folder("pipe"), O_RDONLY | O_NONBLOCK);
    assert_int_equal(mo_output_create(in_folder("pipe"), 0, &out, &err), MO_OK);
    assert_false(mo_output_seekable(out));
    assert_int_equal(mo_output_append(out, "ab", 2, &err), MO_OK);
    assert_int_equal(mo_output_write_at(out, "cd", 2, 2, &err), MO_OK);
    assert_int_equal(mo_output_write_at(out, "ef", 2, 0, &err), MO_EUNSUPPORTED);
    char got[8];
    assert_int_equal(read(reader, got, sizeof got), 4);
    assert_memory_equal(got, "abcd", 4);
    close(reader);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(mo_output_append(out, "g", 1, &err), MO_EIO);
    assert_int_equal(mo_output_commit(out, &err), MO_OK);
    assert_true(exists("pipe"));
    unlink(in_folder("pipe"));
}

/* The soft limit only, and SIGXFSZ left as it is: a signal would end this program. */
static void output_size_limit(void **state)
{
    (void)state;
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    mo_output *out;
    mo_status reserved = mo_output_create(in_folder("big"), 1001, &out, &err);
    bool left = exists("big.moraine-part");
    char text[1001] = {0};
    mo_output *unknown;
    mo_status created = mo_output_create(in_folder("big"), 0, &unknown, NULL);
    mo_status fits = mo_output_append(unknown, text, 1000, NULL);
    mo_error over;
    mo_status more = mo_output_append(unknown, text, 1, &over);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(reserved, MO_ENOSPC);
    assert_null(out);
    assert_false(left);
    check_says(&err, "1001 bytes");
    assert_int_equal(created, MO_OK);
    assert_int_equal(fits, MO_OK);
    assert_int_equal(more, MO_ENOSPC);
    assert_non_null(strstr(over.detail, "1000 bytes"));
    mo_output_abort(unknown);
    assert_false(exists("big.moraine-part"));
}

static void output_too_large(void **state)
{
    (void)state;
    struct statvfs fs;
    assert_int_equal(statvfs(folder, &fs), 0);
    uint64_t bytes_free = (uint64_t)fs.f_bavail * fs.f_frsize;
    mo_output *out;
    assert_int_equal(mo_output_create(in_folder("big"), bytes_free * 2 + (1 << 30), &out, &err), MO_ENOSPC);
    check_says(&err, "free");
    assert_false(exists("big.moraine-part"));
    assert_int_equal(mo_output_create(in_folder("big"), UINT64_MAX, &out, &err), MO_ENOSPC);
    assert_int_equal(mo_output_create(in_folder("big"), 0, &out, &err), MO_OK);
    assert_int_equal(mo_output_write_at(out, "x", 1, UINT64_MAX, &err), MO_ENOSPC);
    mo_output_abort(out);
}

static void output_refuses(void **state)
{
    (void)state;
    mo_output *out = (mo_output *)state;
    assert_int_equal(mo_output_create(folder, 0, &out, &err), MO_EINVAL);
    assert_null(out);
    assert_int_equal(mo_output_create(in_folder("no/file"), 0, &out, &err), MO_ENOENT);
    check_says(&err, "create it");
    char name[300];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(mo_output_create(name, 0, &out, &err), MO_EINVAL);
    /* Two writers of one file: the second is told; what a killed one left is taken over. */
    mo_output *first;
    assert_int_equal(mo_output_create(in_folder("twice"), 0, &first, &err), MO_OK);
    assert_int_equal(mo_output_create(in_folder("twice"), 0, &out, &err), MO_EINVAL);
    check_says(&err, "another process");
    assert_true(exists("twice.moraine-part"));
    mo_output_abort(first);
    write_file("twice.moraine-part", "left over", 9);
    assert_int_equal(mo_output_create(in_folder("twice"), 0, &out, &err), MO_OK);
    assert_int_equal(mo_output_append(out, "new", 3, &err), MO_OK);
    assert_int_equal(mo_output_commit(out, &err), MO_OK);
    holds("twice", "new", 3);
    unlink(in_folder("twice"));
    /* The target becomes a directory meanwhile: the rename fails and nothing is left. */
    assert_int_equal(mo_output_create(in_folder("late"), 0, &out, &err), MO_OK);
    assert_int_equal(mkdir(in_folder("late"), 0700), 0);
    assert_int_equal(mo_output_commit(out, &err), MO_EIO);
    assert_false(exists("late.moraine-part"));
    rmdir(in_folder("late"));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove_empty)

/* ---- Names ------------------------------------------------------------------------------------ */

static void make_file(const char *name, off_t bytes)
{
    const int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    close(fd);
}

static void heads_are_smaller_than_their_models(void **state)
{
    (void)state;
    make_file("m-mtp.gguf", 100);
    assert_false(mo_mtp_named(in_folder("m-mtp.gguf"))); /* there is no model */
    make_file("m.gguf", 150);
    assert_false(mo_mtp_named(in_folder("m-mtp.gguf"))); /* a model of that name */
    make_file("m.gguf", 1000);
    assert_true(mo_mtp_named(in_folder("m-mtp.gguf")));
    assert_false(mo_mtp_named(in_folder("m.gguf")));
    assert_false(mo_mtp_named("-mtp.gguf"));
    unlink(in_folder("m.gguf"));
    unlink(in_folder("m-mtp.gguf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(heads_are_smaller_than_their_models),
        cmocka_unit_test(status_texts),
        cmocka_unit_test(log_levels),
        cmocka_unit_test(log_callbacks_call_the_library),
        cmocka_unit_test(log_callbacks_end),
        cmocka_unit_test(arena_slices),
        IN_FOLDER(input_reads),
        IN_FOLDER(input_refuses),
        IN_FOLDER(output_commits),
        IN_FOLDER(output_by_threads),
        IN_FOLDER(output_special),
        IN_FOLDER(output_size_limit),
        IN_FOLDER(output_too_large),
        IN_FOLDER(output_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
