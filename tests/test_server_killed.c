/* A server that is killed: at each of the calls by which sessions come to the disk and leave it, before it, and in the middle of what it
 * writes. What had been reported as kept is found, and computed with the same bits. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folder.h"
#include "server/scheduler/kept.h"
#include "server_case.h"

/* ---- Dying on demand --------------------------------------------------------------------------- */

static _Atomic long calls_left = -1; /* before the process ends; -1: it does not */
static bool in_the_middle;           /* half of what was to be written is */

ssize_t __real_write(int fd, const void *bytes, size_t size);
int __real_fdatasync(int fd);
int __real_fsync(int fd);
int __real_renameat(int from, const char *old, int to, const char *new);
int __real_unlinkat(int dir, const char *name, int flags);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_renameat(int from, const char *old, int to, const char *new);
int __wrap_unlinkat(int dir, const char *name, int flags);

static bool is_last(void)
{
    return calls_left >= 0 && calls_left-- == 0;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

ssize_t __wrap_write(int fd, const void *bytes, size_t size)
{
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && is_last()) {
        if (in_the_middle && __real_write(fd, bytes, size / 2) < 0) {
            _exit(1);
        }
        die();
    }
    return __real_write(fd, bytes, size);
}

int __wrap_fdatasync(int fd)
{
    if (is_last()) {
        die();
    }
    return __real_fdatasync(fd);
}

int __wrap_fsync(int fd)
{
    if (is_last()) {
        die();
    }
    return __real_fsync(fd);
}

int __wrap_renameat(int from, const char *old, int to, const char *new)
{
    if (is_last()) {
        die();
    }
    return __real_renameat(from, old, to, new);
}

int __wrap_unlinkat(int dir, const char *name, int flags)
{
    if (is_last()) {
        die();
    }
    return __real_unlinkat(dir, name, flags);
}

/* ---- A talk ------------------------------------------------------------------------------------ */

enum { TURNS = 3, TURN = 70, ALL = TURNS * TURN };

/* The longest session that is reported on disk. */
static int64_t reported(srv_engine *e)
{
    srv_kept_report list[16];
    int64_t most = 0;
    const int count = srv_engine_kept(e, &(srv_caller){.admin = true}, list, 16);
    for (int i = 0; i < count && i < 16; i++) {
        most = list[i].disk_bytes > 0 && list[i].tokens > most ? list[i].tokens : most;
    }
    return most;
}

/* Each turn goes on from the one before, which is no longer needed then. Says through the pipe what is reported. */
static void talk(const char *path, const char *directory, int to)
{
    int32_t tokens[ALL];
    mo_model *model = open_model(path, "none", 1);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1, .cache_dir = directory});
    prompt_of(vocab_of(model), 3, 0, 3, ALL, tokens);
    for (int64_t turn = 1; turn <= TURNS; turn++) {
        client *c = ask(e, tokens, (int)turn * TURN, 1); /* its only token is not fed */
        free_client(c);
        int64_t kept;
        do {
            usleep(200);
            kept = reported(e);
        } while (kept < turn * TURN);
        if (__real_write(to, &kept, sizeof kept) != sizeof kept) {
            _exit(1);
        }
    }
    srv_engine_close(e);
    mo_model_close(model);
}

/* A process that talks and is killed at that call; what it had reported. *ended: it was not killed any more. */
static int64_t talk_until(const char *path, const char *directory, long call, bool middle, bool *ended)
{
    int pipes[2], how;
    int64_t kept = 0, more;
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
        close(pipes[0]);
        calls_left = call;
        in_the_middle = middle;
        talk(path, directory, pipes[1]);
        _exit(0);
    }
    close(pipes[1]);
    while (read(pipes[0], &more, sizeof more) == sizeof more) {
        kept = more;
    }
    close(pipes[0]);
    assert_int_equal(waitpid(child, &how, 0), child);
    *ended = WIFEXITED(how);
    assert_true(*ended ? WEXITSTATUS(how) == 0 : WTERMSIG(how) == SIGKILL);
    return kept;
}

/* Drafts that somebody left are gone, and every file is whole. */
static void look_for_drafts(const char *directory)
{
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (const struct dirent *f; (f = readdir(d));) {
        assert_null(strstr(f->d_name, ".unfinished"));
    }
    closedir(d);
}

static void dies_at_every_call(const char *path, bool middle)
{
    const int step = SANITIZED ? 3 : 1;
    bool ended = false;
    int64_t least = ALL, most = 0;
    for (long call = 0; !ended; call += step) {
        char directory[256];
        int32_t tokens[ALL + 1], expected[4];
        snprintf(directory, sizeof directory, "%s/at%ld", folder, call);
        const int64_t kept = talk_until(path, directory, call, middle, &ended);
        least = kept < least ? kept : least;
        most = !ended && kept > most ? kept : most;
        assert_true(!ended || kept == ALL);
        mo_model *model = open_model(path, "none", 1);
        srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1, .cache_dir = directory});
        look_for_drafts(directory);
        prompt_of(vocab_of(model), 3, 0, 3, ALL, tokens);
        tokens[ALL] = 1;
        client *c = ask(e, tokens, ALL + 1, 4);
        assert_true((int64_t)c->usage.cached_tokens >= kept);
        assert_int_equal(c->count[0], alone(model, tokens, ALL + 1, 4, expected));
        assert_memory_equal(c->tokens[0], expected, sizeof *expected * (size_t)c->count[0]);
        free_client(c);
        srv_engine_close(e);
        mo_model_close(model);
    }
    assert_true(least == 0 &&
                most >= (TURNS - 1) * TURN); /* it died at the first of them, and in the last turn */
}

static void before_every_call(void **state)
{
    (void)state;
    dies_at_every_call(families[0], false);
}

static void before_every_call_of_a_recurrent_family(void **state)
{
    (void)state;
    dies_at_every_call(families[2], false);
}

static void in_the_middle_of_every_write(void **state)
{
    (void)state;
    dies_at_every_call(families[0], true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(before_every_call, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(before_every_call_of_a_recurrent_family, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(in_the_middle_of_every_write, folder_make, folder_remove),
    };
    return cmocka_run_group_tests_name("server_killed", tests, NULL, NULL);
}
