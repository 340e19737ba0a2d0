#include "cli/outfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/signals.h"

static bool complain(const cli_outfile *f)
{
    fprintf(stderr, "moraine %s: cannot write %s: %s\n", f->command, f->path, strerror(errno));
    return false;
}

static void forget(cli_outfile *f)
{
    cli_signals_discard(NULL);
    free(f->real);
    free(f->part);
    f->real = f->part = NULL;
    f->stream = NULL;
}

bool cli_outfile_open(cli_outfile *f, const char *command, const char *path)
{
    struct stat st;
    const bool exists = stat(path, &st) == 0, direct = exists && !S_ISREG(st.st_mode);
    *f = (cli_outfile){.command = command, .path = path};
    if (!direct) {
        f->real = exists ? realpath(path, NULL) : strdup(path);
        if (!f->real || asprintf(&f->part, "%s.part", f->real) < 0) {
            f->part = NULL;
            complain(f);
            forget(f);
            return false;
        }
    }
    f->stream = fopen(f->part ? f->part : path, "wb");
    if (!f->stream) {
        complain(f);
        forget(f);
        return false;
    }
    cli_signals_discard(f->part);
    return true;
}

bool cli_outfile_write(cli_outfile *f, const void *bytes, size_t size)
{
    return fwrite(bytes, 1, size, f->stream) == size || complain(f);
}

bool cli_outfile_close(cli_outfile *f, bool keep)
{
    bool fine = true;
    if (f->stream) {
        fine = fclose(f->stream) == 0 || !keep || complain(f);
        if (keep && fine && f->part && rename(f->part, f->real) != 0) {
            fine = complain(f);
        }
        if (f->part && !(keep && fine)) {
            unlink(f->part);
        }
        forget(f);
    }
    return fine;
}
