/* Homepath: names of files as people type them where no shell reads them first. */
#ifndef MO_CLI_HOMEPATH_H
#define MO_CLI_HOMEPATH_H

/* A copy with a leading ~ replaced by the home directory, as a shell would; ~name and a home that is not known stay as they
 * are. free() it; NULL when memory is out. */
char *cli_homepath(const char *path);

#endif
