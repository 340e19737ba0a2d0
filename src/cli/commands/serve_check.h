/* Serve check: validates options of `serve` before anything is opened. Each function prints the error on
   stderr and returns false. NULL (option not given) is valid. */
#ifndef CLI_SERVE_CHECK_H
#define CLI_SERVE_CHECK_H

#include <stdbool.h>

/* Comma-separated names, none empty. */
bool cli_check_names(const char *option, const char *list);
/* Origins of web pages, such as "https://chat.example:8443", or "*". The list ends with NULL. */
bool cli_check_origins(const char *const *origins);
/* Names and addresses of this machine without a port, or "*". The list ends with NULL. */
bool cli_check_hosts(const char *const *hosts);
/* The syntax of a Jinja template. */
bool cli_check_template(const char *option, const char *text);
/* The file contains the text of a request: a JSON object. */
bool cli_check_request(const char *option, const char *path, const char *text);
/* A readable directory. */
bool cli_check_directory(const char *option, const char *path);

#endif
