/* Program: runs moraine (MO_PROGRAM) in a folder of its own and tells what it printed. Included by one test program each,
 * after cmocka.h. */
#ifndef MO_TESTS_PROGRAM_H
#define MO_TESTS_PROGRAM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/moraine-cli-XXXXXX";
static char output[1 << 20], errors[1 << 16]; /* of the last run */

static int make_folder(void **state)
{
    (void)state;
    unsetenv("MORAINE_MODEL"); /* tests set it where they need it */
    unsetenv("LLAMA_MOE_LAYER_PERF");
    return mkdtemp(folder) && setenv("XDG_CACHE_HOME", folder, 1) == 0 ? 0 : -1; /* profiles stay there */
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void slurp(const char *name, char *to, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    to[fread(to, 1, size - 1, f)] = 0;
    fclose(f);
}

/* Runs "moraine ARGUMENTS" in the folder, through the shell; returns the exit code. */
static int run(const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof command, "cd %s && { '%s' %s ; } </dev/null >out 2>err", folder, MO_PROGRAM,
             arguments);
    int status = system(command);
    assert_true(WIFEXITED(status));
    slurp("out", output, sizeof output);
    slurp("err", errors, sizeof errors);
    return WEXITSTATUS(status);
}

/* A failed run says one sentence on stderr, nothing on stdout. */
static void expect_failure(const char *arguments, int code, const char *words)
{
    assert_int_equal(run(arguments), code);
    assert_int_equal(strlen(output), 0);
    if (!strstr(errors, words) || strncmp(errors, "moraine", 7) != 0) {
        fail_msg("\"%s\" does not say \"%s\"", errors, words);
    }
    assert_ptr_equal(strchr(errors, '\n'), errors + strlen(errors) - 1);
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

/* A command of the shell in the folder. */
static inline void shell(const char *command)
{
    char line[2048];
    snprintf(line, sizeof line, "cd '%s' && %s", folder, command);
    assert_int_equal(system(line), 0);
}

#endif
