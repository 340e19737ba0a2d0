#include "cli/default_model.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/pulled.h"

/* Relative to the program's directory: in a build directory, and installed. */
static const char *const beside[] = {"../models/pebble.gguf", "../share/moraine/pebble.gguf"};

/* The directory of the program, with links resolved. False if it is unknown. */
static bool program_directory(char *directory, size_t size)
{
    const ssize_t length = readlink("/proc/self/exe", directory, size - 1);
    if (length <= 0 || (size_t)length >= size - 1) {
        return false;
    }
    directory[length] = '\0';
    char *slash = strrchr(directory, '/');
    if (slash) {
        *slash = '\0';
    }
    return slash != NULL;
}

/* NULL: not found. */
static const char *built_in(void)
{
    static char path[PATH_MAX];
    char directory[PATH_MAX - 64];
    if (program_directory(directory, sizeof directory)) {
        for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
            snprintf(path, sizeof path, "%s/%s", directory, beside[i]);
            if (access(path, R_OK) == 0) {
                return path;
            }
        }
    }
    return access(MO_INSTALLED_MODEL, R_OK) == 0 ? MO_INSTALLED_MODEL : NULL;
}

bool cli_model_name(const char *path)
{
    const size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".gguf") == 0;
}

const char *cli_model_path(const char *command, const char *given, bool quiet, int *code)
{
    const char *named = getenv("MORAINE_MODEL");
    const bool pebble = given && strcmp(given, "pebble") == 0 && access(given, F_OK) != 0 && built_in();
    if (given && !pebble) {
        return cli_pulled_path(command, given, code);
    }
    if (!pebble && named && *named) {
        named = cli_pulled_path(command, named, code);
        if (!named) {
            return NULL;
        }
        if (access(named, R_OK) != 0) {
            fprintf(stderr, "moraine %s: cannot read the model %s named by MORAINE_MODEL: %s\n", command,
                    named, strerror(errno));
            *code = CLI_FAILED;
            return NULL;
        }
        if (!quiet) {
            fprintf(stderr, "model: %s (MORAINE_MODEL)\n", named);
        }
        return named;
    }
    const char *path = built_in();
    if (!path) {
        fprintf(stderr,
                "moraine %s: no MODEL given, and the built-in pebble.gguf is not "
                "next to the program; name a GGUF file or set MORAINE_MODEL\n",
                command);
        *code = CLI_USAGE;
    } else if (!quiet && !pebble) {
        fprintf(stderr, "model: pebble (built in)\n");
    }
    return path;
}
