#include "base/size_text.h"

#include <stdio.h>

const char *mo_size_text(uint64_t bytes, char *text)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double amount = (double)bytes;
    int unit = 0;
    while (amount >= (unit ? 999.5 : 1023.5) &&
           unit < 6) { /* three digits are shown at most, but for bytes */
        amount /= 1024;
        unit++;
    }
    snprintf(text, 32, "%.*f %s",
             unit == 0        ? 0
             : amount < 9.995 ? 2
             : amount < 99.95 ? 1
                              : 0,
             amount, units[unit]);
    return text;
}
