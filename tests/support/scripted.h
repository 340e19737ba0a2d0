/* Scripted: models that say what a script says, for tests of what is built around a model. Any text may be the prompt; the
 * answer is the script whose word stands in the prompt (of several the one given last), or else the first script, then the
 * end token. Every token of a script is one of its own, so the model needs to know no more than the token before:
 *
 *     embedding         one dimension for each token
 *     attention         even over all positions; carries words, and nothing else, to dimensions of their own
 *     output            a token of a script follows the one before it; the first of each follows every other token,
 *                       and likes its word
 *
 * The vocabulary has all bytes, the marks that occur in the template or in a script (control tokens, or user-defined ones
 * where they have no bar), and the words. Marks in scripts are single tokens, other text is cut into tokens of three bytes. */
#ifndef MO_TESTS_SCRIPTED_H
#define MO_TESTS_SCRIPTED_H

#include "moraine.h"

typedef struct scripted_script {
    const char *word; /* NULL: the script of prompts without any word; exactly one has none, the first */
    const char *text; /* what the model says, with the marks of its format, without the end token */
} scripted_script;

enum { SCRIPTED_SCRIPTS = 4 };

/* Writes such a model to `path`. chat_template: Jinja. */
mo_status scripted_write(const char *path, const char *chat_template, const scripted_script *scripts,
                         int count, mo_error *err);

#endif
