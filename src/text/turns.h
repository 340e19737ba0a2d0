/* Turns: chat formats that are nothing but marks around every message. */
#ifndef MO_TEXT_TURNS_H
#define MO_TEXT_TURNS_H

#include "text/chat_format.h"

typedef struct mo_turns {
    mo_chat_format format;
    const char *mark[2];        /* of a template that writes it, and of a vocabulary; NULL: one is enough */
    const char *begin;          /* of the text */
    const char *open[3];        /* before a message, by role */
    const char *close[3];       /* after it */
    const char *prompt;         /* for the assistant to begin */
    const char *default_system; /* where there is no system message; NULL: none */
} mo_turns;

/* The marks of a format; NULL: it is none of these. */
const mo_turns *mo_turns_of(mo_chat_format format);

/* By number; NULL past the last. */
const mo_turns *mo_turns_at(int index);

#endif
