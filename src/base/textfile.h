/* Textfile: small text files, such as those of the kernel. */
#ifndef MO_BASE_TEXTFILE_H
#define MO_BASE_TEXTFILE_H

#include "moraine.h"

/* Reads the beginning of a file, at most bytes - 1, and terminates it; the path is a format. False if it
   cannot be read or is empty; text is then "". Any thread. */
bool mo_textfile_read(char *text, size_t bytes, const char *path_fmt, ...) MO_PRINTF(3, 4);

/* Copies the rest of the first line that begins with key (and blanks or a colon after it), without the
   newline, at most bytes - 1. False if there is no such line. */
bool mo_textfile_value(const char *text, const char *key, char *value, size_t bytes);

#endif
