#include "cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/nearest.h"
#include "cli/foreign.h"
#include "cli/help.h"
#include "cli/print/wrapping.h"

#define HELP_VALUE 256 /* getopt_long()'s number for --help; options of the table follow */

/* ---- Tables ---- */

void cli_options_add(cli_options *to, const cli_option *table, size_t count)
{
    memcpy(to->item + to->count, table, count * sizeof *table);
    to->count += (int)count;
}

void cli_options_pick(cli_options *to, const cli_options *from, const char *names)
{
    for (size_t length; *names; names += length + (names[length] == ' ')) {
        length = strcspn(names, " ");
        for (int i = 0; i < from->count; i++) {
            const char *name = from->item[i].name;
            if (strlen(name) == length && strncmp(name, names, length) == 0) {
                cli_options_add(to, &from->item[i], 1);
                break;
            }
        }
    }
}

/* ---- Values ---- */

bool cli_size_parse(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGTP";
    char *end;
    if ((*text < '0' || *text > '9') && *text != '.') {
        return false;
    }
    errno = 0;
    double value = strtod(text, &end);
    double factor = 1;
    if (end == text || errno || !isfinite(value) || strpbrk(text, "xX")) {
        return false;
    }
    if (*end) {
        const char upper = (char)(*end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end);
        const char *unit = strchr(units, upper);
        if (unit) {
            factor = ldexp(1.0, 10 * (int)(unit - units + 1));
            end++;
            end += strncasecmp(end, "iB", 2) == 0 ? 2 : *end == 'B' || *end == 'b' ? 1 : 0;
        } else if (upper == 'B') {
            end++;
        }
    }
    if (*end || value * factor >= 9.2e18) {
        return false;
    }
    *bytes = (uint64_t)(value * factor);
    return true;
}

static int bad_value(const cli_usage *u, const cli_option *o, const char *text, const char *wanted)
{
    if (u->command) {
        fprintf(stderr, "moraine %s: --%s %s: expected %s; see moraine %s --help\n", u->command, o->name,
                text, wanted, u->command);
    } else {
        cli_wrapping_say("/set %s %s: expected %s", o->name, text, wanted);
    }
    return CLI_USAGE;
}

static int store_integer(const cli_usage *u, const cli_option *o, const char *text)
{
    const bool bounded = o->min != 0 || o->max != 0;
    const char *what = strchr(text, ',') ? "one integer" : "an integer";
    char *end, wanted[96];
    errno = 0;
    long long n = strtoll(text, &end, 10);
    snprintf(wanted, sizeof wanted, "%s", what);
    if (bounded && o->max == INT64_MAX) {
        snprintf(wanted, sizeof wanted, "%s of at least %lld", what, (long long)o->min);
    } else if (bounded) {
        snprintf(wanted, sizeof wanted, "%s from %lld to %lld", what, (long long)o->min, (long long)o->max);
    }
    if (end == text || *end || errno || (bounded && (n < o->min || n > o->max))) {
        return bad_value(u, o, text, wanted);
    }
    if (o->kind == CLI_INT) {
        *(int *)o->out = (int)n;
    } else {
        *(int64_t *)o->out = n;
    }
    return -1;
}

static int store_real(const cli_usage *u, const cli_option *o, const char *text)
{
    const bool above = o->kind == CLI_ABOVE, bounded = o->min != 0 || o->max != 0 || above;
    const bool open = o->max == INT64_MAX;
    const double min = (double)o->min, max = (double)o->max;
    char *end, wanted[96] = "a number";
    errno = 0;
    double value = strtod(text, &end);
    if (bounded && open) {
        snprintf(wanted, sizeof wanted, "a number %s %g", above ? "above" : "of at least", min);
    } else if (bounded) {
        snprintf(wanted, sizeof wanted, above ? "a number above %g, at most %g" : "a number from %g to %g",
                 min, max);
    }
    if (end == text || *end || errno || !isfinite(value) ||
        (bounded && (above ? value <= min : value < min)) || (bounded && !open && value > max)) {
        return bad_value(u, o, text, wanted);
    }
    *(double *)o->out = value;
    return -1;
}

/* Is the number so small that the unit was probably forgotten? */
static bool lacks_unit(const char *text, uint64_t bytes)
{
    return bytes > 0 && bytes < 1 << 20 && strspn(text, "0123456789.") == strlen(text);
}

static int ask_unit(const cli_usage *u, const cli_option *o, const char *text, const char *one)
{
    fprintf(stderr, "moraine %s: --%s %s: expected a size with its unit; did you mean %sG?\n", u->command,
            o->name, text, one);
    return CLI_USAGE;
}

static int store_size(const cli_usage *u, const cli_option *o, const char *text)
{
    uint64_t bytes;
    if (!cli_size_parse(text, &bytes)) {
        return bad_value(u, o, text, "a size such as 512M or 6G");
    }
    if (o->min == 1 && lacks_unit(text, bytes)) {
        return ask_unit(u, o, text, text);
    }
    if (bytes < (uint64_t)o->min) {
        return bad_value(u, o, text, "a size above 0");
    }
    *(uint64_t *)o->out = bytes;
    return -1;
}

static int store_sizes(const cli_usage *u, const cli_option *o, const char *text)
{
    cli_sizes *list = o->out;
    list->count = 0;
    for (const char *at = text; at;) {
        char one[32];
        const char *comma = strchr(at, ',');
        const size_t length = strcspn(at, ",");
        if (list->count == CLI_SIZES_MAX || length >= sizeof one) {
            return bad_value(u, o, text, "at most 8 comma-separated sizes such as 6G");
        }
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        if (!cli_size_parse(one, &list->item[list->count])) {
            return bad_value(u, o, text, "a size such as 512M or 6G, or a comma-separated list");
        }
        if (lacks_unit(one, list->item[list->count++])) {
            return ask_unit(u, o, text, one);
        }
        at = comma ? comma + 1 : NULL;
    }
    return -1;
}

bool cli_pairs_next(const char **text, int32_t *id, float *value)
{
    char *end;
    errno = 0;
    const long number = strtol(*text, &end, 10);
    if (end == *text || *end != ':' || errno || number < 0 || number > INT32_MAX) {
        return false;
    }
    const char *from = end + 1;
    const float x = strtof(from, &end);
    if (end == from || (*end != ',' && *end != '\0') || isnan(x)) {
        return false;
    }
    *id = (int32_t)number;
    *value = x;
    *text = *end ? end + 1 : end;
    return true;
}

static int store_pairs(const cli_usage *u, const cli_option *o, const char *text)
{
    const char *at = text;
    int32_t id;
    float value;
    while (cli_pairs_next(&at, &id, &value)) {
    }
    if (*at) {
        return bad_value(u, o, text, "token ids and numbers such as 12:1.5,99:-inf");
    }
    *(const char **)o->out = text;
    return -1;
}

static int store_text(const cli_usage *u, const cli_option *o, const char *text)
{
    cli_texts *list = o->out;
    if (list->count == CLI_TEXTS_MAX) {
        fprintf(stderr, "moraine %s: --%s can be given at most %d times\n", u->command, o->name,
                CLI_TEXTS_MAX);
        return CLI_USAGE;
    }
    list->item[list->count++] = text;
    return -1;
}

/* Stores the value. -1, or the exit code. */
static int store(const cli_usage *u, const cli_option *o, const char *text)
{
    switch (o->kind) {
    case CLI_FLAG: *(bool *)o->out = true; return -1;
    case CLI_TEXT: *(const char **)o->out = text; return -1;
    case CLI_TEXTS: return store_text(u, o, text);
    case CLI_INTEGER:
    case CLI_INT: return store_integer(u, o, text);
    case CLI_REAL:
    case CLI_ABOVE: return store_real(u, o, text);
    case CLI_SIZE: return store_size(u, o, text);
    case CLI_SIZES: return store_sizes(u, o, text);
    case CLI_PAIRS: return store_pairs(u, o, text);
    }
    return CLI_USAGE;
}

bool cli_option_store(const cli_option *option, const char *text)
{
    const cli_usage conversation = {.command = NULL};
    return store(&conversation, option, text) == -1;
}

/* ---- Parsing ---- */

static int complain(const cli_usage *u, const char *what, const char *which)
{
    fprintf(stderr, "moraine %s: %s%s; see moraine %s --help\n", u->command, what, which, u->command);
    return CLI_USAGE;
}

/* If "--x" is a prefix of several options: prints that and returns true. */
static bool complain_ambiguous(const cli_usage *u, const char *typed)
{
    const size_t length = strcspn(typed + 2, "=");
    int count = 0;
    for (int print = 0; print < 2; print++) {
        for (int i = 0; i < u->option_count; i++) {
            const char *name = u->options[i].name;
            if (length == 0 || strncmp(name, typed + 2, length) != 0) {
                continue;
            }
            if (print) {
                fprintf(stderr, "%s --%s", count++ ? "," : "", name);
            } else {
                count++;
            }
        }
        if (!print && count < 2) {
            return false;
        }
        if (!print) {
            fprintf(stderr, "moraine %s: %.*s is ambiguous:", u->command, (int)length + 2, typed);
            count = 0;
        }
    }
    fprintf(stderr, "; see moraine %s --help\n", u->command);
    return true;
}

/* Reports an unknown option "--wrod=x" with the most similar one. */
static int complain_unknown(const cli_usage *u, const char *typed)
{
    mo_nearest nearest = {.word = typed + 2, .length = strcspn(typed + 2, "=")};
    mo_nearest_offer(&nearest, "help");
    for (int i = 0; i < u->option_count; i++) {
        mo_nearest_offer(&nearest, u->options[i].name);
    }
    if (!nearest.best) {
        return complain(u, "unknown option ", typed);
    }
    fprintf(stderr, "moraine %s: unknown option %s; did you mean --%s? See moraine %s --help\n", u->command,
            typed, nearest.best, u->command);
    return CLI_USAGE;
}

/* Is it another program's way to name the model: "-m FILE", "--model=FILE"? */
static bool names_model(const char *option)
{
    return strcmp(option, "-m") == 0 || strcmp(option, "--model") == 0 ||
           strncmp(option, "--model=", strlen("--model=")) == 0;
}

/* Reports a word that getopt_long() rejected: argv[optind - 1]. */
static int complain_option(const cli_usage *u, int code, char **argv)
{
    char letter[3] = {'-', (char)optopt, 0};
    const bool is_letter = optopt > 0 && optopt < HELP_VALUE;
    const char *which = is_letter ? letter : argv[optind - 1];
    if (code != ':' && names_model(which) && u->arguments && strstr(u->arguments, "MODEL")) {
        fprintf(
            stderr,
            "moraine %s: there is no option %s; give the model as a plain argument. See moraine %s --help\n",
            u->command, which, u->command);
        return CLI_USAGE;
    }
    if (code != ':' && !is_letter && strncmp(which, "--", 2) == 0) {
        if (complain_ambiguous(u, which)) {
            return CLI_USAGE;
        }
        return complain_unknown(u, which);
    }
    return complain(u, code == ':' ? "missing value for " : "unknown option ", which);
}

int cli_options_parse(const cli_usage *u, int argc, char **argv, int *first)
{
    struct option names[CLI_OPTIONS_MAX + 2] = {{0}};
    char letters[2 * CLI_OPTIONS_MAX + 8] = ":h";
    size_t used = strlen(letters);
    const int translated = u->foreign ? cli_foreign_translate(u, &argc, argv) : -1;
    if (translated != -1) {
        return translated;
    }
    const int count = u->option_count < CLI_OPTIONS_MAX ? u->option_count : CLI_OPTIONS_MAX;
    names[0] = (struct option){"help", no_argument, NULL, HELP_VALUE};
    for (int i = 0; i < count; i++) {
        const cli_option *o = &u->options[i];
        const bool takes = o->kind != CLI_FLAG;
        names[i + 1] =
            (struct option){o->name, takes ? required_argument : no_argument, NULL, HELP_VALUE + 1 + i};
        if (o->letter) {
            letters[used++] = o->letter;
            if (takes) {
                letters[used++] = ':';
            }
        }
    }
    letters[used] = 0;
    opterr = 0;
    optind = 0; /* restarts GNU getopt */
    for (int code; (code = getopt_long(argc, argv, letters, names, NULL)) != -1;) {
        const cli_option *o = NULL;
        if (code == 'h' || code == HELP_VALUE) {
            cli_help_print(u);
            return CLI_OK;
        }
        for (int i = 0; i < count; i++) {
            if (code == HELP_VALUE + 1 + i || (u->options[i].letter && code == u->options[i].letter)) {
                o = &u->options[i];
            }
        }
        int result = o ? store(u, o, optarg) : complain_option(u, code, argv);
        if (result != -1) {
            return result;
        }
    }
    *first = optind;
    if (argc - optind < u->min_arguments) {
        return complain(u, "missing argument: ", u->arguments);
    }
    if (argc - optind > u->max_arguments) {
        const char *which = argv[optind + u->max_arguments];
        if (!u->surplus) {
            return complain(u, "unexpected argument: ", which);
        }
        fprintf(stderr, "moraine %s: unexpected argument: %s; %s. See moraine %s --help\n", u->command, which,
                u->surplus, u->command);
        return CLI_USAGE;
    }
    return -1;
}
