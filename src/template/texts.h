/* Texts: string operations shared by filters and methods of the same names. */
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

/* MO_CASE_TITLE: as in str.title(), a word begins after any character that is not a letter. */
mo_jstring mo_text_case(mo_work *w, mo_jstring s, mo_jcase to);
/* Replaces at most `count` times; negative: all. */
mo_jstring mo_text_replace(mo_work *w, mo_jstring s, mo_jstring old, mo_jstring new, int64_t count);
/* Pads with blanks (or another character) to this many characters. */
mo_jstring mo_text_pad(mo_work *w, mo_jstring s, int64_t width, mo_jstring fill, bool left, bool right);
/* Splits into lines, without or with their ends. */
mo_jlist *mo_text_lines(mo_work *w, mo_jstring s, bool keep_ends);
mo_jstring mo_text_join(mo_work *w, mo_jstring separator, const mo_jlist *items);

#endif
