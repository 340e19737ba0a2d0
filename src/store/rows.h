/* Rows: an embedding that stays in its file. A token needs one row of a few kilobytes; the table has hundreds
 * of megabytes. */
#ifndef MO_STORE_ROWS_H
#define MO_STORE_ROWS_H

#include "model/load.h"

typedef struct mo_rows mo_rows;

/* For the embedding that the loader left on disk. */
mo_status mo_rows_open(const mo_checkpoint *model, mo_rows **out, mo_error *err);
void mo_rows_close(mo_rows *rows); /* NULL is allowed */

/* Reads row `row` into data; any number of threads at once. */
mo_status mo_rows_read(const mo_rows *rows, int64_t row, uint8_t *data, mo_error *err);

#endif
