/* Where a prompt's time went, for people and programs. */
#ifndef MO_CLI_SPLIT_H
#define MO_CLI_SPLIT_H

#include <moraine_server.h>

#include <jansson.h>

enum { CLI_SPLIT_PARTS = 7 };

/* Adds what another pass took. */
void cli_split_add(mo_split_report *sum, const mo_split_report *pass);
void cli_split_print(const mo_split_report *s); /* nothing where nothing was split */
json_t *cli_split_json(const mo_split_report *s);
/* The parts as shares of the whole, in percent, for a bar. */
void cli_split_pieces(const mo_split_report *s, mo_bar_piece *pieces);

#endif
