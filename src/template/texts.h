/* Texts: what filters and methods of the same names do to strings. */
#ifndef MO_TEMPLATE_TEXTS_H
#define MO_TEMPLATE_TEXTS_H

#include "template/run.h"

typedef enum mo_jcase {
    MO_CASE_LOWER,
    MO_CASE_UPPER,
    MO_CASE_TITLE,
    MO_CASE_CAPITAL,
    MO_CASE_SWAPPED
} mo_jcase;

/* title: of str.title(), a word begins after whatever is no letter. */
mo_jstring mo_text_case(mo_work *w, mo_jstring s, mo_jcase to);
/* At most `count` times; below 0: everywhere. */
mo_jstring mo_text_replace(mo_work *w, mo_jstring s, mo_jstring old, mo_jstring new, int64_t count);
/* Blanks (or another character) on the sides until it has this many characters. */
mo_jstring mo_text_pad(mo_work *w, mo_jstring s, int64_t width, mo_jstring fill, bool left, bool right);
/* Lines without their ends, or with them. */
mo_jlist *mo_text_lines(mo_work *w, mo_jstring s, bool keep_ends);
mo_jstring mo_text_join(mo_work *w, mo_jstring separator, const mo_jlist *items);

#endif
