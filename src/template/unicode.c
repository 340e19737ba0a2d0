#include "template/unicode.h"

#include <utf8proc.h>

bool mo_code_is_space(uint32_t code)
{
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)code);
    return p->category == UTF8PROC_CATEGORY_ZS ||
           (p->bidi_class >= UTF8PROC_BIDI_CLASS_B && p->bidi_class <= UTF8PROC_BIDI_CLASS_WS);
}

bool mo_code_is_printable(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CN: /* except code points that will never be characters */
        return code != 0x2065 && (code < 0xFFF0 || code > 0xFFFF) && (code < 0xE0000 || code > 0xE007F) &&
               code < 0xF0000;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return code == ' ';
    default: return true;
    }
}

bool mo_code_is_letter(uint32_t code)
{
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool mo_code_is_digit(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND;
}

bool mo_code_is_word(uint32_t code)
{
    return code == '_' || mo_code_is_letter(code) || mo_code_is_digit(code);
}

uint32_t mo_code_lower(uint32_t code)
{
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}

uint32_t mo_code_upper(uint32_t code)
{
    /* becomes two characters */
    return code == 0xDF ? code : (uint32_t)utf8proc_toupper((utf8proc_int32_t)code);
}
