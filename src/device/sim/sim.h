/* Sim: a GPU made of threads, for machines that have none and for tests. Its memory is in an address range of its
 * own: a host pointer used on the device, or a device address used on the host, is caught and named. Each stream is a
 * thread, so copies and ops really run in parallel; the link is as slow as configured; faults
 * come on command. */
#ifndef MO_DEVICE_SIM_SIM_H
#define MO_DEVICE_SIM_SIM_H

#include "device/device.h"
#include "numeric/kernels.h"

typedef enum mo_sim_fault {
    MO_SIM_NONE,
    MO_SIM_ALLOC, /* a device allocation fails */
    MO_SIM_PIN,   /* pinning is refused */
    MO_SIM_COPY,  /* one copy fails: its call gives MO_EIO, nothing is copied, the device goes on */
    MO_SIM_PEER,  /* the same of one from another device alone */
    MO_SIM_MAKE,  /* a program cannot be made */
    MO_SIM_HANG,  /* an event is never done: waiting for it fails after `hang_ms`; the device is lost then */
    MO_SIM_OPEN,  /* it cannot be opened */
    MO_SIM_LOST,  /* the device is lost: this and every later call fails */
} mo_sim_fault;

typedef struct mo_sim_options {
    int64_t memory_bytes; /* 0: 1 GiB */
    double link_bytes_s;  /* of each direction; 0: not throttled */
    double link_copy_s;   /* fixed cost of each copy */
    double call_s;        /* that asking for a copy or an op keeps the caller busy, as a driver's call does */
    double memory_bytes_s;     /* of its own memory, as reported to plans; 0: unknown */
    bool alone;                /* no other device reaches its memory, nor it theirs */
    bool exact;                /* it has no products in bfloat16 (MO_OP_BF16) */
    const mo_kernels *kernels; /* NULL: the best */
    mo_sim_fault fault;
    int64_t
        after; /* the fault hits a call of its kind after this many successes (LOST: ops and copies counted
                      together) */
    int64_t count; /* and this many calls in a row; 0: one. LOST is permanent, so it has no count */
    int hang_ms;   /* 0: 200 */
    int index;     /* its number, where there are several */
} mo_sim_options;

mo_status mo_sim_open(const mo_sim_options *options, mo_device **out, mo_error *err);

/* While it runs: arms another fault (counting begins now), or none. It hits once; or `count` calls in a row. */
void mo_sim_arm(mo_device *device, mo_sim_fault fault, int64_t after);
void mo_sim_arm_row(mo_device *device, mo_sim_fault fault, int64_t after, int64_t count);

/* Bytes of device memory in use, and the most that ever were. */
void mo_sim_usage(mo_device *device, int64_t *now, int64_t *peak);

#endif
