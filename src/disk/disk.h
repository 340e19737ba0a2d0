/* Disk: reads of a model's files that go on while others compute. Aligned direct reads into the memory where
 * the bytes will be used, by a pool of reader threads or by io_uring; or through the page cache. */
#ifndef MO_DISK_DISK_H
#define MO_DISK_DISK_H

#include "disk/read.h"

typedef struct mo_disk mo_disk;

enum { MO_DISK_REASON = 320 }; /* bytes of a reason */

/* How files will be read, with nothing left to choose. */
typedef struct mo_disk_settings {
    mo_disk_options options; /* io DIRECT or CACHED; io_uring or plain; readers and piece > 0 */
    int threads; /* this many replace io_uring if it is unavailable, or cannot register its memory, which
                                is what makes it better; 0: then opening fails */
    char reason[MO_DISK_REASON]; /* one sentence */
} mo_disk_settings;

/* Opens the files of a model; mo_disk_open() (choice.h) finds the settings. A file that is written to later (other size or
 * time of change) fails the reads that come after; one that is replaced by another under its name is read on as it was.
 * MO_IO_DIRECT where the file system has no direct reads, and a ring where there is no io_uring, fail with
 * MO_EUNSUPPORTED. */
mo_status mo_disk_start(const char *const *paths, int count, const mo_disk_settings *settings, mo_disk **out,
                        mo_error *err);
/* Waits for reads under way, fails the queued ones (MO_ECANCELLED), joins. No other call may be running. NULL
 * is allowed. */
void mo_disk_close(mo_disk *disk);

/* How it was opened, for instruments: direct or cached, threads or io_uring, and why (one sentence). */
mo_io mo_disk_io(const mo_disk *disk);
mo_disk_method mo_disk_chosen(const mo_disk *disk);
int mo_disk_readers(const mo_disk *disk);
const char *mo_disk_reason(const mo_disk *disk);

/* How many files, and their sizes when they were opened. */
int mo_disk_files(const mo_disk *disk);
int64_t mo_disk_file_bytes(const mo_disk *disk, int part);
/* When its content was last changed, as it was then. */
int64_t mo_disk_file_changed_ns(const mo_disk *disk, int part);

/* Lets the page cache forget a range, as far as it will: for measuring. */
void mo_disk_forget(const mo_disk *disk, int part, int64_t offset, int64_t bytes);

/* Queues reads, in order, behind those of the same or greater urgency. Any thread; allocates nothing; does
 * not wait. */
void mo_disk_submit(mo_disk *disk, mo_read *const *reads, int count);

/* Makes a queued read urgent (a guess that came true), behind those that are. Of a read that is under way, the
 * pieces that were not taken yet. Without effect on one that has ended. */
void mo_disk_raise_priority(mo_disk *disk, mo_read *read);

/* Takes queued reads back, all or, where a piece of one is under way or done, none. Those taken back are idle again. */
bool mo_disk_withdraw(mo_disk *disk, mo_read *const *reads, int count);

/* A number that grows with every read that ends, and every time that some are taken back, after their state is written: take it, look at
 * states, and wait with it. Waits until it differs from `seen`; returns it. Spins for a moment, then sleeps;
 * without a read queued or under way it would sleep for ever. Any thread. */
uint64_t mo_disk_wait(mo_disk *disk, uint64_t seen);
uint64_t mo_disk_ended(const mo_disk *disk);
/* Waits until all of these reads, which are queued or under way, have ended, well or not. */
void mo_disk_finish(mo_disk *disk, const mo_read *reads, int count);

mo_disk_counters mo_disk_count(const mo_disk *disk);

#endif
