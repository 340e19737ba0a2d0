/* Version: of the definition of every number. It grows with every change of docs/numerics.md that changes a bit of a result or of a
 * saved state; the history is there. */
#ifndef MO_NUMERIC_VERSION_H
#define MO_NUMERIC_VERSION_H

enum { MO_NUMERICS = 3 };

#endif
