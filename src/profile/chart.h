/* Chart: small drawings (SVG) of what replays and traces say, readable on light and dark pages. */
#ifndef MO_PROFILE_CHART_H
#define MO_PROFILE_CHART_H

#include "profile/trace.h"

/* mo_replay_chart() and mo_trace_chart() of moraine.h are implemented here: each writes one file that appears
 * when it is complete. A policy named "optimum" is drawn dashed. */

#endif
