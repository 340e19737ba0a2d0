#include "server/status/page_files.h"

#include <stddef.h>

#ifdef MO_PAGE_FOLDER /* where the build left them */

/* The assembler reads the files: no compiler has to parse them as numbers. */
#define PAGE_FILE(symbol, name)                                                                              \
    __asm__(".pushsection .rodata\n"                                                                         \
            ".balign 16\n"                                                                                   \
            ".global srv_page_" #symbol "\n"                                                                 \
            ".hidden srv_page_" #symbol "\n"                                                                 \
            "srv_page_" #symbol ":\n"                                                                        \
            ".incbin \"" MO_PAGE_FOLDER "/" name "\"\n"                                                      \
            ".global srv_page_" #symbol "_end\n"                                                             \
            ".hidden srv_page_" #symbol "_end\n"                                                             \
            "srv_page_" #symbol "_end:\n"                                                                    \
            ".byte 0\n"                                                                                      \
            ".popsection\n");                                                                                \
    extern const unsigned char srv_page_##symbol[], srv_page_##symbol##_end[];
PAGE_FILE(html, "index.html")
PAGE_FILE(icon, "icon.svg.gz")
PAGE_FILE(style, "page.css.gz")
PAGE_FILE(script, "page.js.gz")
PAGE_FILE(code, "code.js.gz")
PAGE_FILE(math, "math.js.gz")
PAGE_FILE(notices, "notices.txt.gz")

const srv_page_file srv_page_files[] = {
    {"index.html", srv_page_html, srv_page_html_end},
    {"icon.svg", srv_page_icon, srv_page_icon_end},
    {"page.css", srv_page_style, srv_page_style_end},
    {"page.js", srv_page_script, srv_page_script_end},
    {"code.js", srv_page_code, srv_page_code_end},
    {"math.js", srv_page_math, srv_page_math_end},
    {"notices.txt", srv_page_notices, srv_page_notices_end}, /* of the libraries in them */
    {NULL, NULL, NULL},
};

#else

const srv_page_file srv_page_files[] = {{NULL, NULL, NULL}};

#endif
