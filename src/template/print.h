/* Print: values as texts, the way Python's str() and repr() write them. */
#ifndef MO_TEMPLATE_PRINT_H
#define MO_TEMPLATE_PRINT_H

#include "template/value.h"

void mo_print_str(mo_work *w, mo_jbuffer *out, mo_jv v);
void mo_print_repr(mo_work *w, mo_jbuffer *out, mo_jv v);

/* str(v); a string is itself. */
mo_jstring mo_jv_str(mo_work *w, mo_jv v);

/* The shortest digits that read back as the number: "1.0", "1e-05", "inf". */
enum { MO_FLOAT_TEXT = 40 };
void mo_float_text(double number, char text[MO_FLOAT_TEXT]);

/* A number from a text of digits with a point, whatever the locale. */
double mo_float_read(const char *text);

#endif
