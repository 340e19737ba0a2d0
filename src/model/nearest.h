/* Nearest: the supported family that is most similar to an unknown architecture. */
#ifndef MO_MODEL_NEAREST_H
#define MO_MODEL_NEAREST_H

/* The name of that architecture, a constant; NULL: none is similar. */
const char *mo_family_nearest(const char *architecture);

#endif
