/* Python: the arguments of a call as Llama 3.1 writes those of built-in tools and LFM2 those of all, k="v", n=3, as JSON. */
#ifndef MO_DIALOGUE_PYTHON_H
#define MO_DIALOGUE_PYTHON_H

#include "base/bytes.h"

/* Adds an object with the keyword arguments in `text`, what stands between the parentheses. What has no key is left out. */
void mo_python_arguments(mo_bytes *to, mo_text text);

/* Where the reading of NAME(...) stands. Starts zeroed. */
typedef struct mo_python_scan {
    size_t length, open_at; /* bytes so far, and before the call's parenthesis */
    bool open, escaped;
    char quote; /* of the string it is in; 0: in none */
    int depth;  /* of brackets within the call's */
} mo_python_scan;

/* The next byte; true: the call's parenthesis closes. */
bool mo_python_scan_put(mo_python_scan *s, char c);

#endif
