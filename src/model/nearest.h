/* Nearest: of the families that run, the one that an unknown architecture is most like. */
#ifndef MO_MODEL_NEAREST_H
#define MO_MODEL_NEAREST_H

/* The name of that architecture, a constant; NULL: it resembles none. */
const char *mo_family_nearest(const char *architecture);

#endif
