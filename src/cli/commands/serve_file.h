/* Serve file: settings of several models, a section each:
 *
 *   # comment
 *   [name]
 *   model = /path/to/model.gguf
 *   ctx = 16384
 *   pin
 *
 * A section's lines are options of moraine serve without their dashes. */
#ifndef MO_CLI_SERVE_FILE_H
#define MO_CLI_SERVE_FILE_H

#include <stdbool.h>

enum { CLI_SECTION_WORDS = 64 };

typedef struct cli_section {
    const char *name;
    char *words[CLI_SECTION_WORDS]; /* "serve", "--ctx=16384", ..., NULL */
    int count;
} cli_section;

typedef struct cli_sections {
    cli_section *item;
    int count;
    char *memory;
} cli_sections;

/* Reads the file. False after printing the error. Its contents live as long as the process. */
bool cli_sections_read(const char *command, const char *path, cli_sections *out);

#endif
