/* Page files: the page for browsers, as the build made it of web/ and put it into the program. */
#ifndef SRV_PAGE_FILES_H
#define SRV_PAGE_FILES_H

typedef struct srv_page_file {
    const char *name;                /* "page.js"; "index.html" is what / shows */
    const unsigned char *data, *end; /* compressed (gzip), but for index.html */
} srv_page_file;

/* A list that ends with a NULL name: only that in a build without what the page is made with. */
extern const srv_page_file srv_page_files[];

#endif
