/* Outfile: an output file that appears under its name when it is complete; before, it is PATH.part. Pipes and
   devices are written directly. For a link its target is replaced. */
#ifndef MO_CLI_OUTFILE_H
#define MO_CLI_OUTFILE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct cli_outfile {
    const char *command, *path;
    char *real; /* the path without links; NULL: written directly */
    char *part; /* NULL: written directly */
    FILE *stream;
} cli_outfile;

/* False after printing the error; then there is nothing to close. */
bool cli_outfile_open(cli_outfile *f, const char *command, const char *path);

/* False after printing the error: the file will not be kept. */
bool cli_outfile_write(cli_outfile *f, const void *bytes, size_t size);

/* Renames the file if `keep`, otherwise removes it, if it is open. False after printing the error. */
bool cli_outfile_close(cli_outfile *f, bool keep);

#endif
