/* Page files: the web page, built from web/ and embedded in the program. */
#ifndef SRV_PAGE_FILES_H
#define SRV_PAGE_FILES_H

typedef struct srv_page_file {
    const char *name;                /* "page.js"; "index.html" is served at / */
    const unsigned char *data, *end; /* compressed (gzip), except index.html */
} srv_page_file;

/* Terminated by a NULL name, which is the only entry if the build lacks the tools for the page. */
extern const srv_page_file srv_page_files[];

#endif
