/* Serve check: what options of `serve` say, held against what can be meant, before anything is opened. Each function tells
 * what is wrong on stderr and returns false. NULL, an option that was not given, is right. */
#ifndef CLI_SERVE_CHECK_H
#define CLI_SERVE_CHECK_H

#include <stdbool.h>

/* Names with commas between them, none of them empty. */
bool cli_check_names(const char *option, const char *list);
/* Origins of web pages, as "https://chat.example:8443", or "*"; NULL at the end. */
bool cli_check_origins(const char *const *origins);
/* Names and addresses of this machine, without a port, or "*"; NULL at the end. */
bool cli_check_hosts(const char *const *hosts);
/* A Jinja template: its syntax. */
bool cli_check_template(const char *option, const char *text);
/* The text of a request in the file `path`: a JSON object. */
bool cli_check_request(const char *option, const char *path, const char *text);
/* A directory that can be read. */
bool cli_check_directory(const char *option, const char *path);

#endif
