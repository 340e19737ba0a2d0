/* Hosts: text files describing the machines that share a model, one rank on each. Written by hand for planned
 * machines or by `moraine probe` under mpirun. docs/several-machines.md explains the format:
 *
 *     # rank 0 comes first
 *     default  cpu=25GB/s disk=2GB/s link=10Gbit/s latency=30us
 *     anna     ram=64G
 *     bert     ram=32G cpu=18GB/s */
#ifndef MO_PLAN_HOSTS_H
#define MO_PLAN_HOSTS_H

#include "plan/division.h"

enum { MO_HOST_NAME = 64 };

typedef struct mo_host {
    char name[MO_HOST_NAME];
    int64_t ram_bytes;                   /* available to its rank */
    double cpu_bytes_s, disk_bytes_s;    /* RAM rate of products; rate of file reads */
    int64_t vram_bytes;                  /* 0: none */
    double gpu_bytes_s;                  /* VRAM rate of products */
    mo_network_wire lead;                /* link to the first host; for the first, its own end */
    double next_latency_s, next_bytes_s; /* to the next host; 0: not given, the worse of both ends */
} mo_host;

typedef struct mo_hosts {
    mo_host host[MO_DIVISION_RANKS];
    int count;
} mo_hosts;

/* MO_ENOENT: no such file. MO_EFORMAT: err names the line and the fault. Any thread; *out is large. */
mo_status mo_hosts_load(const char *path, mo_hosts *out, mo_error *err);
/* Parses a text; `name` stands for it in messages. */
mo_status mo_hosts_read(const char *name, const char *text, size_t length, mo_hosts *out, mo_error *err);
/* Creates the parent directories. An existing file is replaced only when the new one is complete. */
mo_status mo_hosts_save(const char *path, const mo_hosts *hosts, mo_error *err);
/* Path of the measured hosts; fails as mo_cachedir_path() does. */
mo_status mo_hosts_path(char *path, size_t size, mo_error *err);

/* Converts hosts to ranks for division. `other_bytes` stays 0. */
void mo_hosts_ranks(const mo_hosts *hosts, mo_division_rank *ranks);
/* Fills the links of ranks on the named machines from the stored measurements. The first must be the machine
 * that measured; the others may be fewer and in another order. Returns false and changes nothing unless all
 * are known. Any thread. */
bool mo_hosts_wires(mo_division_rank *ranks, const char *const *names, int count);

#endif
