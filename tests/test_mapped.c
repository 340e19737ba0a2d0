/* A model whose file is mapped and changes meanwhile: feeds fail with a sentence, on any thread and whatever it has blocked, and
 * signals that are not the library's reach the handler that was there before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/mapped.h"
#include "check.h"
#include "folder.h"
#include "moraine_server.h"

#define MODEL MO_TEST_DATA "/oracle/qwen3moe.gguf"

enum { PROMPT = 40 };

static void copy_file(const char *from, const char *to)
{
    char buffer[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, in)) > 0;) {
        assert_int_equal(fwrite(buffer, 1, n, out), n);
    }
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static mo_model *open_mapped(const char *path, int threads, const char *device)
{
    mo_error err;
    mo_model *model = NULL;
    mo_model_options o = mo_model_options_default();
    o.map = true;
    o.threads = threads;
    o.context = 128;
    o.batch = 16;
    o.device = device;
    o.learning.profile = "off";
    check_status(mo_model_open(path, &o, &model, &err), &err);
    return model;
}

static mo_session *open_session(mo_model *model)
{
    mo_error err;
    mo_session *session = NULL;
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    return session;
}

static mo_status feed(mo_session *session, int64_t count, mo_error *err)
{
    int32_t tokens[PROMPT];
    for (int i = 0; i < PROMPT; i++) {
        tokens[i] = i * 7 + 3;
    }
    const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = count};
    return mo_session_feed(&f, 1, err);
}

static void check_lost(mo_session *session, int64_t count, const char *says)
{
    mo_error err = {0};
    assert_int_equal(feed(session, count, &err), MO_EIO);
    check_says(&err, "model.gguf");
    check_says(&err, says);
}

static void truncated_between_feeds(void **state)
{
    (void)state;
    const char *path = in_folder("model.gguf");
    for (int threads = 1; threads <= 3; threads += 2) {
        mo_error err;
        copy_file(MODEL, path);
        mo_model *model = open_mapped(path, threads, "none");
        mo_session *session = open_session(model);
        check_status(feed(session, 5, &err), &err);
        assert_int_equal(truncate(path, 4096), 0);
        check_lost(session, 20, "changed size while it was mapped");
        assert_int_equal(mo_session_length(session), 5); /* what it was */
        check_lost(session, 20, "changed size while it was mapped");
        mo_session_close(session);
        mo_model_close(model);
        assert_int_equal(remove(path), 0);
    }
}

/* A thread that has blocked every signal, as servers' threads do. */
static void *feed_blocked(void *session)
{
    sigset_t all, after;
    mo_error err = {0};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    const mo_status status = feed(session, 20, &err);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    return (void *)(intptr_t)(status == MO_EIO && sigismember(&after, SIGBUS) ? 1 : 0);
}

static void truncated_under_a_thread_that_blocks_signals(void **state)
{
    (void)state;
    const char *path = in_folder("model.gguf");
    void *good = NULL;
    pthread_t thread;
    copy_file(MODEL, path);
    mo_model *model = open_mapped(path, 1, "none");
    mo_session *session = open_session(model);
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(pthread_create(&thread, NULL, feed_blocked, session), 0);
    pthread_join(thread, &good);
    assert_ptr_equal(good, (void *)1);
    mo_session_close(session);
    mo_model_close(model);
    assert_int_equal(remove(path), 0);
}

/* ---- During a feed ---------------------------------------------------------------------------- */

static bool cut(void *user, int64_t done, int64_t total)
{
    (void)total;
    if (done >= 16 && done < 32) { /* between two steps of one feed */
        assert_int_equal(truncate(user, 65536), 0);
    }
    return true;
}

static void cut_routes(void *user, int layer, int64_t position, const int32_t *ids, const float *weights,
                       int used)
{
    (void)position;
    (void)ids;
    (void)weights;
    (void)used;
    if (layer == 0) { /* in the middle of a step */
        assert_int_equal(truncate(user, 65536), 0);
    }
}

static void truncated_during_a_feed(void **state)
{
    (void)state;
    const char *path = in_folder("model.gguf");
    int32_t tokens[PROMPT];
    for (int i = 0; i < PROMPT; i++) {
        tokens[i] = i + 1;
    }
    for (int way = 0; way < 4; way++) {
        mo_error err = {0};
        copy_file(MODEL, path);
        mo_model *model = open_mapped(path, 2, way < 2 ? "none" : "sim");
        mo_session *session = open_session(model);
        const mo_feed f = {.size = sizeof f,
                           .session = session,
                           .tokens = tokens,
                           .count = PROMPT,
                           .progress = way % 2 ? NULL : cut,
                           .routes = way % 2 ? cut_routes : NULL,
                           .user = (void *)(uintptr_t)path};
        assert_int_equal(mo_session_feed(&f, 1, &err), MO_EIO);
        check_says(&err, "mapped");
        mo_session_close(session);
        mo_model_close(model);
        assert_int_equal(remove(path), 0);
    }
}

static void written_to(void **state)
{
    (void)state;
    const char *path = in_folder("model.gguf");
    mo_error err;
    copy_file(MODEL, path);
    mo_model *model = open_mapped(path, 1, "none");
    mo_session *session = open_session(model);
    check_status(feed(session, 5, &err), &err);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "x", 1, 100000), 1);
    const struct timespec times[2] = {{.tv_sec = 1},
                                      {.tv_sec = 1}}; /* clocks of file systems may be coarse */
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    check_lost(session, 6, "was modified while it was mapped");
    mo_session_close(session);
    mo_model_close(model);
    assert_int_equal(remove(path), 0);
}

/* ---- Signals of others ------------------------------------------------------------------------ */

static sigjmp_buf back;
static atomic_int caught;

static void on_bus(int number, siginfo_t *info, void *context)
{
    (void)context;
    atomic_fetch_add(&caught, 1);
    if (number == SIGBUS && info->si_code > 0) {
        siglongjmp(back, 1);
    }
}

static void *fault(void)
{
    const char *path = in_folder("other");
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    volatile char *memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0); /* of an empty file */
    close(fd);
    return (void *)memory;
}

static void other_faults_reach_the_handler_before(void **state)
{
    (void)state;
    struct sigaction ours = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO}, before, now;
    assert_int_equal(sigaction(SIGBUS, &ours, &before), 0);
    mo_model *first = open_mapped(MODEL, 1, "none"), *second = open_mapped(MODEL, 1, "none");
    volatile char *memory = fault();
    if (sigsetjmp(back, 1) == 0) {
        (void)memory[0];
        fail_msg("there was no fault");
    }
    assert_int_equal(atomic_load(&caught), 1);
    raise(SIGBUS); /* somebody sent one */
    assert_int_equal(atomic_load(&caught), 2);
    mo_model_close(first);
    assert_int_equal(sigaction(SIGBUS, NULL, &now), 0);
    assert_true(now.sa_sigaction != on_bus); /* the second still needs it */
    mo_model_close(second);
    assert_int_equal(sigaction(SIGBUS, NULL, &now), 0);
    assert_true(now.sa_sigaction == on_bus); /* given back */
    munmap((void *)memory, 4096);
    assert_int_equal(sigaction(SIGBUS, &before, NULL), 0);
}

/* Without a handler before it, a fault elsewhere ends the process as it always did. */
static void other_faults_still_kill(void **state)
{
    (void)state;
    for (int sent = 0; sent < 2; sent++) {
        const pid_t child = fork();
        if (child == 0) {
            const struct sigaction none = {.sa_handler = SIG_DFL};
            sigaction(SIGBUS, &none, NULL);
            mo_input *input = NULL;
            mo_mapped *mapped = NULL;
            if (mo_input_open(MODEL, &input, NULL) != MO_OK ||
                mo_mapped_open(input, 4096, &mapped, NULL) != MO_OK) {
                _exit(3);
            }
            if (sent) {
                raise(SIGBUS);
            } else {
                volatile char *memory = fault();
                (void)memory[0];
            }
            _exit(4);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated_between_feeds),
        cmocka_unit_test(truncated_under_a_thread_that_blocks_signals),
        cmocka_unit_test(truncated_during_a_feed),
        cmocka_unit_test(written_to),
        cmocka_unit_test(other_faults_reach_the_handler_before),
        cmocka_unit_test(other_faults_still_kill),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove_empty);
}
