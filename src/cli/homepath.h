/* Homepath: file names typed where no shell expands them. */
#ifndef MO_CLI_HOMEPATH_H
#define MO_CLI_HOMEPATH_H

/* A copy with a leading ~ replaced by the home directory. ~name and an unknown home directory are unchanged.
   free() it; NULL when out of memory. */
char *cli_homepath(const char *path);

#endif
