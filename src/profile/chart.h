/* Chart: small drawings (SVG) of replays and traces, readable on light and dark pages. */
#ifndef MO_PROFILE_CHART_H
#define MO_PROFILE_CHART_H

#include "profile/trace.h"

/* Implements mo_replay_chart() and mo_trace_chart() of moraine.h. Each writes one file, which appears when it
   is complete. A policy named "optimum" is drawn dashed. */

#endif
