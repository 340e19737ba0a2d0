/* Divide: splits a model's layers among several devices. Each device gets a range of consecutive layers with
 * their cores, their part of the sessions and as many of their experts as fit. The time of a token decides
 * the ranges and whether a device is used at all. Layers of a divided model are never streamed: if the cores
 * of all layers do not fit into the devices together, one device alone is faster. */
#ifndef MO_PLAN_DIVIDE_H
#define MO_PLAN_DIVIDE_H

#include "plan/plan.h"

enum { MO_PLAN_DEVICES = 8 }; /* maximum devices per model */

/* The hidden state goes from one device to the next while the host waits: 35 us through pinned RAM on an H200
 * named twice. */
#define MO_PLAN_HOP_SECONDS 40e-6

/* Minimum tokens per piece of a prompt, maximum pieces per batch. */
enum { MO_PLAN_PIECE_LEAST = 256, MO_PLAN_PIECES = 16 };

/* A device: the process's limits with this device's ceiling and rates. */
typedef struct mo_plan_device_limits {
    mo_plan_limits limits;
    mo_rates rates;
} mo_plan_device_limits;

typedef struct mo_plan_run {
    int device;     /* index in the list of devices */
    int first, end; /* its layers: [first, end) */
    double seconds; /* per token in these layers */
    mo_plan_device plan;
} mo_plan_run;

typedef struct mo_plan_division {
    int count;
    mo_plan_run run[MO_PLAN_DEVICES]; /* in the order of layers and of devices */
    int64_t piece; /* tokens per piece when batches are pipelined through the devices; 0: whole batches */
} mo_plan_division;

/* Limits and rates of all devices combined into one, for a first plan that decides about RAM. */
mo_plan_device_limits mo_plan_devices_sum(const mo_plan_model *model, const mo_plan_device_limits *devices,
                                          int count);

/* Divides the model. *plan was made for the sum of the devices: its RAM part stays, its device part becomes
 * the sum of the ranges, and its speed theirs. named: every device that can hold a layer is used; otherwise a
 * device that makes tokens slower is left out. MO_EDEVICE: the cores do not fit, or the model does not list
 * its layers; *plan is then unchanged. MO_ENOMEM. Any thread. */
mo_status mo_plan_divide(const mo_plan_model *model, const mo_plan_device_limits *devices, int count,
                         bool named, mo_run_plan *plan, mo_plan_division *out, mo_error *err);

#endif
