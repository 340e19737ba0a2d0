/* Divide: several devices share a model by its layers: each has a run of neighbours, with their cores, the states of sessions
 * there and as many of their experts as fit. Which runs, and whether a device is worth using at all, is decided by the time of
 * a token. Layers of a divided model are never streamed: where the cores of all layers do not fit into the devices together, one
 * device alone does better. */
#ifndef MO_PLAN_DIVIDE_H
#define MO_PLAN_DIVIDE_H

#include "plan/plan.h"

enum { MO_PLAN_DEVICES = 8 }; /* most devices of a model */

/* The stream goes from one device to the next, and the host waits in between: 35 us through pinned RAM on an H200 named twice. */
#define MO_PLAN_HOP_SECONDS 40e-6

/* Minimum tokens of a piece of a prompt, and maximum pieces of a batch. */
enum { MO_PLAN_PIECE_LEAST = 256, MO_PLAN_PIECES = 16 };

/* A device: the limits of the process with this device's ceiling, and the rates with its own. */
typedef struct mo_plan_device_limits {
    mo_plan_limits limits;
    mo_rates rates;
} mo_plan_device_limits;

typedef struct mo_plan_run {
    int device;     /* its number in the list */
    int first, end; /* its layers: [first, end) */
    double seconds; /* of a token, in these layers */
    mo_plan_device plan;
} mo_plan_run;

typedef struct mo_plan_division {
    int count;
    mo_plan_run run[MO_PLAN_DEVICES]; /* in the order of layers and of devices */
    int64_t piece; /* tokens of a piece in which batches go through the devices, pipelined; 0: as a whole */
} mo_plan_division;

/* The limits of all devices together, as if they were one: for a first plan, which decides about RAM. The rates likewise. */
mo_plan_device_limits mo_plan_devices_sum(const mo_plan_model *model, const mo_plan_device_limits *devices,
                                          int count);

/* Divides. *plan was made for the sum: its RAM stays, its device part becomes the sum of the runs, and its speed theirs. named:
 * every device is used that can hold a layer; otherwise one that makes a token slower is left out. MO_EDEVICE: the cores do not
 * fit, or a model that does not list its layers; *plan is as it was. MO_ENOMEM. Any thread. */
mo_status mo_plan_divide(const mo_plan_model *model, const mo_plan_device_limits *devices, int count,
                         bool named, mo_run_plan *plan, mo_plan_division *out, mo_error *err);

#endif
