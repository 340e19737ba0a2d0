/* Unicode: properties of characters as Python defines them. */
#ifndef MO_TEMPLATE_UNICODE_H
#define MO_TEMPLATE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/utf8.h"

bool mo_code_is_space(uint32_t code);     /* str.isspace() */
bool mo_code_is_printable(uint32_t code); /* for repr(); unassigned code points count as printable */
bool mo_code_is_letter(uint32_t code);
bool mo_code_is_digit(uint32_t code); /* a decimal digit of any script */
bool mo_code_is_word(uint32_t code);  /* a letter, a digit or an underscore */

/* The other case, if it is a single character. */
uint32_t mo_code_lower(uint32_t code);
uint32_t mo_code_upper(uint32_t code);

#endif
