/* Unicode: what templates need to know of characters, as Python sees them. */
#ifndef MO_TEMPLATE_UNICODE_H
#define MO_TEMPLATE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/utf8.h"

bool mo_code_is_space(uint32_t code); /* str.isspace() */
bool mo_code_is_printable(
    uint32_t code); /* repr() shows it as it is; code points not yet assigned count as printable */
bool mo_code_is_letter(uint32_t code);
bool mo_code_is_digit(uint32_t code); /* a decimal one, of any script */
bool mo_code_is_word(uint32_t code);  /* of names: a letter, a digit or an underscore */

/* The other case, where it is one character. */
uint32_t mo_code_lower(uint32_t code);
uint32_t mo_code_upper(uint32_t code);

#endif
