/* Split: the parts of a prompt's time, as text and JSON. */
#ifndef MO_CLI_SPLIT_H
#define MO_CLI_SPLIT_H

#include <moraine_server.h>

#include <jansson.h>

enum { CLI_SPLIT_PARTS = 7 };

/* Adds another pass. */
void cli_split_add(mo_split_report *sum, const mo_split_report *pass);
void cli_split_print(const mo_split_report *s); /* prints nothing if nothing was measured */
json_t *cli_split_json(const mo_split_report *s);
/* The parts in percent, for a bar. */
void cli_split_pieces(const mo_split_report *s, mo_bar_piece *pieces);

#endif
