#include "template/unicode.h"

#include <locale.h>
#include <pthread.h>
#include <wctype.h>

size_t mo_utf8_encode(uint32_t code, char *bytes)
{
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
        code = 0xFFFD;
    }
    if (code < 0x80) {
        bytes[0] = (char)code;
        return 1;
    }
    const size_t count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = count - 1; i > 0; i--, code >>= 6) {
        bytes[i] = (char)(0x80 | (code & 0x3F));
    }
    bytes[0] = (char)((count == 2 ? 0xC0 : count == 3 ? 0xE0 : 0xF0) | code);
    return count;
}

typedef struct range {
    uint32_t first, last;
} range;

static bool is_in(const range *ranges, size_t count, uint32_t code)
{
    for (size_t i = 0; i < count && ranges[i].first <= code; i++) {
        if (code <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

bool mo_code_is_space(uint32_t code)
{
    static const range spaces[] = {{0x09, 0x0D},     {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                   {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                   {0x205F, 0x205F}, {0x3000, 0x3000}};
    return is_in(spaces, sizeof spaces / sizeof *spaces, code);
}

bool mo_code_is_printable(uint32_t code)
{
    /* Controls, formats, private use, and separators other than the blank. */
    static const range hidden[] = {
        {0, 0x1F},          {0x7F, 0xA0},       {0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},
        {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},     {0x1680, 0x1680},
        {0x180E, 0x180E},   {0x2000, 0x200F},   {0x2028, 0x202F},   {0x205F, 0x206F},   {0x3000, 0x3000},
        {0xD800, 0xF8FF},   {0xFEFF, 0xFEFF},   {0xFFF0, 0xFFFB},   {0xFFFE, 0xFFFF},   {0x110BD, 0x110BD},
        {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE007F},
        {0xF0000, 0x10FFFF}};
    return !is_in(hidden, sizeof hidden / sizeof *hidden, code);
}

/* ---- What the C library knows ---- */

static locale_t unicode_locale;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_locale(void)
{
    unicode_locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!unicode_locale) { /* then ASCII alone has cases */
        unicode_locale = newlocale(LC_CTYPE_MASK, "C", (locale_t)0);
    }
}

static locale_t locale_of_unicode(void)
{
    pthread_once(&once, open_locale);
    return unicode_locale;
}

bool mo_code_is_letter(uint32_t code)
{
    if (code < 0x80) {
        return (code | 32) >= 'a' && (code | 32) <= 'z';
    }
    return iswalpha_l((wint_t)code, locale_of_unicode()) && !mo_code_is_digit(code);
}

bool mo_code_is_digit(uint32_t code)
{
    static const range digits[] = {{'0', '9'},       {0x660, 0x669},   {0x6F0, 0x6F9},   {0x7C0, 0x7C9},
                                   {0x966, 0x96F},   {0x9E6, 0x9EF},   {0xA66, 0xA6F},   {0xAE6, 0xAEF},
                                   {0xB66, 0xB6F},   {0xBE6, 0xBEF},   {0xC66, 0xC6F},   {0xCE6, 0xCEF},
                                   {0xD66, 0xD6F},   {0xE50, 0xE59},   {0xED0, 0xED9},   {0xF20, 0xF29},
                                   {0x1040, 0x1049}, {0x17E0, 0x17E9}, {0x1810, 0x1819}, {0xFF10, 0xFF19}};
    return is_in(digits, sizeof digits / sizeof *digits, code);
}

bool mo_code_is_word(uint32_t code)
{
    return code == '_' || mo_code_is_letter(code) || mo_code_is_digit(code);
}

uint32_t mo_code_lower(uint32_t code)
{
    if (code < 0x80) {
        return code >= 'A' && code <= 'Z' ? code + 32 : code;
    }
    return (uint32_t)towlower_l((wint_t)code, locale_of_unicode());
}

uint32_t mo_code_upper(uint32_t code)
{
    if (code < 0x80) {
        return code >= 'a' && code <= 'z' ? code - 32 : code;
    }
    return (uint32_t)towupper_l((wint_t)code, locale_of_unicode());
}
