/* Outfile: a file of the program's own results, which appears under its name when it is complete; until then it is
 * PATH.part. Pipes and devices are written directly; of a link, the file that it leads to is replaced. */
#ifndef MO_CLI_OUTFILE_H
#define MO_CLI_OUTFILE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct cli_outfile {
    const char *command, *path;
    char *real; /* the path without links; NULL: written directly */
    char *part; /* and so is this */
    FILE *stream;
} cli_outfile;

/* False after saying what is wrong; then nothing is there to close. */
bool cli_outfile_open(cli_outfile *f, const char *command, const char *path);

/* False after saying what went wrong: the file is as if nothing had been written. */
bool cli_outfile_write(cli_outfile *f, const void *bytes, size_t size);

/* Gives the file its name if `keep`, otherwise removes what was written. False after saying what went wrong. One that is
 * not open is allowed. */
bool cli_outfile_close(cli_outfile *f, bool keep);

#endif
