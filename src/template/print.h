/* Print: converts values to text as Python's str() and repr() do. */
#ifndef MO_TEMPLATE_PRINT_H
#define MO_TEMPLATE_PRINT_H

#include "template/value.h"

void mo_print_str(mo_work *w, mo_jbuffer *out, mo_jv v);
void mo_print_repr(mo_work *w, mo_jbuffer *out, mo_jv v);

/* str(v); a string is returned unchanged. */
mo_jstring mo_jv_str(mo_work *w, mo_jv v);

/* The shortest digits that give the same number: "1.0", "1e-05", "inf". */
enum { MO_FLOAT_TEXT = 40 };
void mo_float_text(double number, char text[MO_FLOAT_TEXT]);

/* Parses digits with a point, independent of the locale. */
double mo_float_read(const char *text);

#endif
