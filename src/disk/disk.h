/* Disk: reads a model's files while other threads compute. Aligned direct reads into their final memory by a
 * pool of reader threads or by io_uring, or reads through the page cache. */
#ifndef MO_DISK_DISK_H
#define MO_DISK_DISK_H

#include "disk/read.h"

typedef struct mo_disk mo_disk;

enum { MO_DISK_REASON = 320 }; /* bytes of a reason text */

/* Complete settings for reading files. */
typedef struct mo_disk_settings {
    mo_disk_options options; /* io DIRECT or CACHED; io_uring or plain; readers and piece > 0 */
    /* threads that replace io_uring if it is unavailable or cannot register its memory, which is its
     * advantage; 0: opening then fails */
    int threads;
    char reason[MO_DISK_REASON]; /* one sentence */
} mo_disk_settings;

/* Opens the files of a model; mo_disk_open() (choice.h) finds the settings. If a file is written to later
 * (its size or modification time changes), later reads fail. A file that is replaced under its name is read
 * on unchanged. MO_EUNSUPPORTED: MO_IO_DIRECT without support in the file system, or a ring without
 * io_uring. */
mo_status mo_disk_start(const char *const *paths, int count, const mo_disk_settings *settings, mo_disk **out,
                        mo_error *err);
/* Waits for reads in flight, fails queued ones (MO_ECANCELLED), and joins the threads. No other call may be
 * running. NULL is allowed. */
void mo_disk_close(mo_disk *disk);

/* The method in use, for reports: direct or cached, threads or io_uring, and the reason (one sentence). */
mo_io mo_disk_io(const mo_disk *disk);
mo_disk_method mo_disk_chosen(const mo_disk *disk);
int mo_disk_readers(const mo_disk *disk);
const char *mo_disk_reason(const mo_disk *disk);

/* Number of files, and their sizes at open. */
int mo_disk_files(const mo_disk *disk);
int64_t mo_disk_file_bytes(const mo_disk *disk, int part);
/* Modification time at open. */
int64_t mo_disk_file_changed_ns(const mo_disk *disk, int part);

/* Drops a range from the page cache if possible: for measuring. */
void mo_disk_forget(const mo_disk *disk, int part, int64_t offset, int64_t bytes);

/* Queues reads in order, after those of the same or higher urgency. Any thread; allocates nothing; does not
 * wait. */
void mo_disk_submit(mo_disk *disk, mo_read *const *reads, int count);

/* Makes a queued read urgent (a prediction that came true), after those already urgent. For a read in flight,
 * applies to its pending pieces. No effect after it has ended. */
void mo_disk_raise_priority(mo_disk *disk, mo_read *read);

/* Cancels queued reads: all of them, or none if a piece of one is in flight or done. Cancelled reads are idle
 * again. */
bool mo_disk_withdraw(mo_disk *disk, mo_read *const *reads, int count);

/* A counter that grows with every read that ends or is cancelled, after its state is written. Take the
 * counter, check the states, then wait with that value. mo_disk_wait() waits until the counter differs from
 * `seen` and returns it. It spins briefly, then sleeps; without queued reads or reads in flight it would
 * sleep forever. Any thread. */
uint64_t mo_disk_wait(mo_disk *disk, uint64_t seen);
uint64_t mo_disk_ended(const mo_disk *disk);
/* Waits until all of these reads, queued or in flight, have ended, successfully or not. */
void mo_disk_finish(mo_disk *disk, const mo_read *reads, int count);

mo_disk_counters mo_disk_count(const mo_disk *disk);

#endif
