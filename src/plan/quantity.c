#include "plan/quantity.h"

#include <stdio.h>
#include <string.h>

/* Units of each kind. The first is used for writing; a size may have none. */
static const struct unit {
    mo_quantity_kind kind;
    const char *name;
    double factor;
} units[] = {
    {MO_QUANTITY_SIZE, "", 1},
    {MO_QUANTITY_SIZE, "K", 0x1p10},
    {MO_QUANTITY_SIZE, "M", 0x1p20},
    {MO_QUANTITY_SIZE, "G", 0x1p30},
    {MO_QUANTITY_SIZE, "T", 0x1p40},
    {MO_QUANTITY_SIZE, "KiB", 0x1p10},
    {MO_QUANTITY_SIZE, "MiB", 0x1p20},
    {MO_QUANTITY_SIZE, "GiB", 0x1p30},
    {MO_QUANTITY_SIZE, "TiB", 0x1p40},
    {MO_QUANTITY_RATE, "GB/s", 1e9},
    {MO_QUANTITY_RATE, "MB/s", 1e6},
    {MO_QUANTITY_RATE, "TB/s", 1e12},
    {MO_QUANTITY_WIRE, "Gbit/s", 1e9 / 8},
    {MO_QUANTITY_WIRE, "Mbit/s", 1e6 / 8},
    {MO_QUANTITY_WIRE, "GB/s", 1e9},
    {MO_QUANTITY_WIRE, "MB/s", 1e6},
    {MO_QUANTITY_TIME, "us", 1e-6},
    {MO_QUANTITY_TIME, "ns", 1e-9},
    {MO_QUANTITY_TIME, "ms", 1e-3},
};

static const struct range {
    double least, most;
    const char *words, *example;
} ranges[] = {
    [MO_QUANTITY_SIZE] = {0, 0x1p60, "a size of at most 1 EiB", "64G"},
    [MO_QUANTITY_RATE] = {1e3, 1e15, "a rate above 1 kB/s", "25GB/s"},
    [MO_QUANTITY_WIRE] = {1e3, 1e15, "a rate above 8 kbit/s", "10Gbit/s"},
    [MO_QUANTITY_TIME] = {0, 10, "a time of at most 10 s", "30us"},
};

static const char *read_number(const char *text, double *out)
{
    double value = 0, step = 1;
    const char *at = text;
    int digits = 0;
    for (; *at >= '0' && *at <= '9'; at++, digits++) {
        value = 10 * value + (*at - '0');
    }
    if (*at == '.') {
        for (at++; *at >= '0' && *at <= '9'; at++, digits++) {
            step /= 10;
            value += step * (*at - '0');
        }
    }
    *out = value;
    return digits > 0 ? at : NULL;
}

const char *mo_quantity_words(mo_quantity_kind kind)
{
    return ranges[kind].words;
}

const char *mo_quantity_example(mo_quantity_kind kind)
{
    return ranges[kind].example;
}

bool mo_quantity_read(mo_quantity_kind kind, const char *text, double *out)
{
    double number = 0;
    const char *unit = read_number(text, &number);
    for (size_t i = 0; unit && i < sizeof units / sizeof *units; i++) {
        if (units[i].kind == kind && strcmp(units[i].name, unit) == 0) {
            *out = number * units[i].factor;
            return *out >= ranges[kind].least && *out <= ranges[kind].most;
        }
    }
    return false;
}

const char *mo_quantity_write(mo_quantity_kind kind, double value, char *text, size_t size)
{
    size_t first = 0;
    while (units[first].kind != kind) {
        first++;
    }
    snprintf(text, size, "%.4f%s", value / units[first].factor, units[first].name);
    return text;
}
