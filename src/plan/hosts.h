/* Hosts: machines among which a model is divided, one rank on each, as a text file describes them. Written by hand for machines that are
 * not there, or by `moraine probe` under mpirun. docs/several-machines.md explains the format:
 *
 *     # rank 0 comes first
 *     default  cpu=25GB/s disk=2GB/s link=10Gbit/s latency=30us
 *     anna     ram=64G
 *     bert     ram=32G cpu=18GB/s
 */
#ifndef MO_PLAN_HOSTS_H
#define MO_PLAN_HOSTS_H

#include "plan/division.h"

enum { MO_HOST_NAME = 64 };

typedef struct mo_host {
    char name[MO_HOST_NAME];
    int64_t ram_bytes;                   /* that its rank may use */
    double cpu_bytes_s, disk_bytes_s;    /* as products read memory; as files are read */
    int64_t vram_bytes;                  /* 0: none */
    double gpu_bytes_s;                  /* as products read that */
    mo_network_wire lead;                /* between it and the first host; of the first: its own end */
    double next_latency_s, next_bytes_s; /* to the host after it; 0: not said, the worse of both ends */
} mo_host;

typedef struct mo_hosts {
    mo_host host[MO_DIVISION_RANKS];
    int count;
} mo_hosts;

/* MO_ENOENT: there is no such file; MO_EFORMAT: err names the line and what is wrong with it. Any thread; *out is large. */
mo_status mo_hosts_load(const char *path, mo_hosts *out, mo_error *err);
/* The same of a text; `name` stands for it in messages. */
mo_status mo_hosts_read(const char *name, const char *text, size_t length, mo_hosts *out, mo_error *err);
/* Makes the directories above the file; an older file stays until the new one is complete. */
mo_status mo_hosts_save(const char *path, const mo_hosts *hosts, mo_error *err);
/* Where those that were measured are kept; fails as mo_cachedir_path() does. */
mo_status mo_hosts_path(char *path, size_t size, mo_error *err);

/* What divisions see of them. `other_bytes` is left at 0. */
void mo_hosts_ranks(const mo_hosts *hosts, mo_division_rank *ranks);
/* Fills the wires of ranks on machines of these names with those that were measured and kept. The first must be the one that measured; the
 * others may be fewer, and in another order. False: not all are known, and they are left alone. Any thread. */
bool mo_hosts_wires(mo_division_rank *ranks, const char *const *names, int count);

#endif
