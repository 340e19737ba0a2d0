/* Model header: finds a command's MODEL when only its header is needed: a file, a pulled model, a published
   shape, or a hub's model, whose header is fetched. One thread. */
#ifndef MO_CLI_MODEL_HEADER_H
#define MO_CLI_MODEL_HEADER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cli_model_header {
    char path[4096]; /* path to open */
    char name[512];  /* for messages: the given name, or the path */
    int fd;          /* of a shape's header in memory; otherwise -1 */
    bool fetched;    /* the path's folder must be removed */
} cli_model_header;

/* CLI_OK, or the exit code after printing the error (then do not close it). given: NULL is the default
   model. */
int cli_model_header_open(const char *command, const char *given, bool quiet, cli_model_header *out);
void cli_model_header_close(cli_model_header *header);

/* Replaces the path by the name. */
void cli_model_header_say(const cli_model_header *header, char *text, size_t size);

#endif
