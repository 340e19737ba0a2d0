/* Infile: reads a whole text file, or stdin. */
#ifndef MO_CLI_INFILE_H
#define MO_CLI_INFILE_H

#include <stddef.h>

/* The whole of a file, or of stdin for "-", terminated; free() it. NULL after printing the error. */
char *cli_read_file(const char *command, const char *path, size_t *length);

#endif
