/* Picture: small drawings (SVG) of what replays and traces say, readable on light and dark pages. */
#ifndef MO_STORE_PICTURE_H
#define MO_STORE_PICTURE_H

#include "store/trace.h"

/* mo_replay_picture() and mo_trace_picture() of moraine.h are implemented here: each writes one file that appears
 * when it is complete. A policy named "optimum" is drawn dashed. */

#endif
